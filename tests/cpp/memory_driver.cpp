// Memory that runs out at any moment of a change: what is there afterwards is what was there before or, where only
// tidying up failed, what the change made of it. Run under the address sanitizer (tests/test_sanitizers.py).
#include <new>

#include "../../cpp/big_array.h"
#include "small_index.h"

namespace {

thread_local long allocations_left = -1;  // negative: as many as anyone wants

bool refused() {
    if (allocations_left < 0) return false;
    if (allocations_left == 0) return true;
    --allocations_left;
    return false;
}

void* limited_aligned(size_t alignment, size_t bytes) {
    return refused() ? nullptr : std::aligned_alloc(alignment, bytes);
}

}  // namespace

void* operator new(size_t bytes) {
    void* memory = refused() ? nullptr : std::malloc(bytes ? bytes : 1);
    if (!memory) throw std::bad_alloc();
    return memory;
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

using namespace manyclass;

namespace {

// All that a search depends on, and what some searches find.
struct State {
    size_t classes = 0;
    std::vector<float> bias, norms;
    std::vector<uint8_t> removed;
    std::vector<int64_t> found;
    bool operator==(const State&) const = default;
};

State state_of(Index& index, const Pipeline& pipeline, const Rows& rows) {
    State state{index.classes(), index.bias(), index.norms(), index.removed(), {}};
    state.removed.resize(state.classes);  // empty until a class is removed
    const size_t cells = pipeline.cells ? pipeline.cells - 1 : 0;
    const SearchPlan plan{pipeline.candidates, pipeline.keep, pipeline.probes, cells, 1};
    std::vector<float> queries;
    constexpr size_t count = 40;
    for (size_t q = 0; q < count; ++q)
        queries.insert(queries.end(), rows.pattern(q, q % 2), rows.pattern(q, q % 2) + kFeatures);
    state.found.resize(count * pipeline.candidates);
    SearchOut out;
    out.candidates = state.found.data();
    index.search(queries.data(), count, plan, out);
    return state;
}

template <class Change>
void run_out_of_memory(const Pipeline& pipeline, const char* what, Change change) {
    for (long allowed = 0;; ++allowed) {
        std::mt19937 random(7);
        Rows rows(random);
        Index index = make_index(pipeline, random);
        build(pipeline, rows, random, index);
        const State before = state_of(index, pipeline, rows);
        bool failed = false;
        allocations_left = allowed;
        try {
            change(index, rows);
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        allocations_left = -1;
        const State after = state_of(index, pipeline, rows);
        if (!failed) {
            std::printf("%s, %s: %ld allocations\n", pipeline.name, what, allowed);
            return;
        }
        change(index, rows);  // again, and then it must work
        const State again = state_of(index, pipeline, rows);
        if (after != before && after != again) fail(pipeline, what, static_cast<size_t>(allowed));
    }
}

}  // namespace

int main() {
    big_allocate = limited_aligned;
    for (const Pipeline& pipeline : kPipelines) {
        run_out_of_memory(pipeline, "refresh", [](Index& index, const Rows& rows) {
            const int64_t id = 3;
            const float bias = 1e6f;
            std::vector<float> row(rows.pattern(3, 1), rows.pattern(3, 1) + kFeatures);
            index.refresh({&id, 1}, &bias, reinterpret_cast<const std::byte*>(row.data()), 1);
        });
        run_out_of_memory(pipeline, "append", [](Index& index, const Rows&) {
            if (index.classes() == kClasses) index.append(kSpare, nullptr, 1);
        });
        run_out_of_memory(pipeline, "remove", [](Index& index, const Rows&) {
            const int64_t id = 5;
            index.remove({&id, 1});
        });
    }
    return 0;
}
