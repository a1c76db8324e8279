#include "row_update.h"

#include <algorithm>

#include "prefetch.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kSliceFloats = 32768;  // a task: long enough to hide its start, short enough to share out evenly
constexpr size_t kAhead = 4;            // rows fetched in advance
constexpr size_t kPiece = 512;          // columns of bfloat16 that are float32 at a time, in the nearest cache

// SplitMix64 of a counter: the key of one row of one of its arrays.
uint64_t rounding_key(uint64_t noise, size_t row, unsigned array) {
    uint64_t z = noise + (4 * static_cast<uint64_t>(row) + array + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// A piece of one row as float32: where it is, or widened here and rounded again when the rule has been applied.
class Widened {
public:
    Widened(const StoredRows& rows, size_t id, size_t width, size_t first, size_t n, const Kernels& run)
        : row_(rows.row(id, width)), narrow_(row_ && rows.type == RowType::bf16), first_(first), n_(n), run_(run) {
        if (narrow_) run.load_row(halves(), RowType::bf16, n, wide_);
    }
    float* floats() { return narrow_ ? wide_ : row_ ? static_cast<float*>(row_) + first_ : nullptr; }
    void write_back(uint64_t noise, size_t id, unsigned array) {
        if (narrow_) run_.round_row(wide_, first_, n_, rounding_key(noise, id, array), halves());
    }

private:
    uint16_t* halves() const { return static_cast<uint16_t*>(row_) + first_; }

    void* row_;
    bool narrow_;
    size_t first_, n_;
    const Kernels& run_;
    float wide_[kPiece];
};

}  // namespace

void RowsToUpdate::prefetch(size_t id) const {
    for (const StoredRows* rows : {&weight, &first, &second})
        if (rows->data) prefetch_row(rows->row(id, width), rows->bytes(width));
}

void RowsToUpdate::update(const RowRule& rule, size_t id, const float* gradient, const Kernels& run) const {
    const bool wide = weight.type == RowType::f32 && first.type == RowType::f32 && second.type == RowType::f32;
    const size_t piece = wide ? width : kPiece;
    for (size_t at = 0; at < width; at += piece) {
        const size_t n = std::min(piece, width - at);
        Widened w(weight, id, width, at, n, run), m(first, id, width, at, n, run), v(second, id, width, at, n, run);
        run.apply_rule(rule, w.floats(), m.floats(), v.floats(), gradient + at, n);
        w.write_back(rule.noise, id, 0);
        m.write_back(rule.noise, id, 1);
        v.write_back(rule.noise, id, 2);
    }
}

void update_rows(const RowRule& rule, const RowsToUpdate& rows, const int64_t* ids, size_t count, const float* gradient,
                 size_t threads) {
    const size_t width = rows.width;
    if (!count || !width) return;
    const Kernels& run = kernels();
    const size_t slice = std::max<size_t>(1, kSliceFloats / width), slices = (count + slice - 1) / slice;
    parallel_for(slices, threads, [&](size_t task, size_t) {
        const size_t begin = task * slice, end = std::min(count, begin + slice);
        for (size_t i = begin; i < end; ++i) {
            if (i + kAhead < end) rows.prefetch(static_cast<size_t>(ids[i + kAhead]));
            rows.update(rule, static_cast<size_t>(ids[i]), gradient + i * width, run);
        }
    });
}

}  // namespace manyclass
