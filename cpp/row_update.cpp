#include "row_update.h"

#include <algorithm>

#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kSliceFloats = 32768;  // a task: long enough to hide its start, short enough to share out evenly
constexpr size_t kAhead = 4;            // rows fetched in advance: scattered rows defeat the hardware's own guess
constexpr size_t kLine = 16;            // floats in a cache line

void fetch(float* row, size_t width) {
    if (!row) return;
    for (size_t i = 0; i < width; i += kLine) __builtin_prefetch(row + i, 1);
}

}  // namespace

void update_rows(const RowRule& rule, const RowsToUpdate& rows, const int64_t* ids, size_t count, const float* gradient,
                 size_t threads) {
    const size_t width = rows.width;
    if (!count || !width) return;
    float* const weight = rows.weight;
    float* const first = rule.uses_first() ? rows.first : nullptr;
    float* const second = rule.uses_second() ? rows.second : nullptr;
    const auto at = [width](float* base, int64_t id) {
        return base ? base + static_cast<size_t>(id) * width : nullptr;
    };
    const Kernels& table = kernels();
    const size_t slice = std::max<size_t>(1, kSliceFloats / width), slices = (count + slice - 1) / slice;
    parallel_for(slices, threads, [&](size_t task, size_t) {
        const size_t begin = task * slice, end = std::min(count, begin + slice);
        for (size_t i = begin; i < end; ++i) {
            if (i + kAhead < end) {
                const int64_t next = ids[i + kAhead];
                fetch(at(weight, next), width);
                fetch(at(first, next), width);
                fetch(at(second, next), width);
            }
            table.apply_rule(rule, at(weight, ids[i]), at(first, ids[i]), at(second, ids[i]), gradient + i * width,
                             width);
        }
    });
}

}  // namespace manyclass
