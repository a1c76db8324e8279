// Weighted sums of rows, the products of training's backward pass. Sums run over the rows in order for every column,
// so that they do not depend on how columns are grouped.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

constexpr size_t kWidth = sizeof(floats) / sizeof(float);
typedef uint32_t words __attribute__((vector_size(sizeof(floats))));
typedef uint16_t halves __attribute__((vector_size(sizeof(floats) / 2)));

struct FloatRow {
    static float one(const void* row, size_t at) { return static_cast<const float*>(row)[at]; }
    static floats several(const void* row, size_t at) { return load<floats>(static_cast<const float*>(row) + at); }
};

struct Bfloat16Row {  // the upper half of a float32
    static float one(const void* row, size_t at) {
        return __builtin_bit_cast(float, static_cast<uint32_t>(static_cast<const uint16_t*>(row)[at]) << 16);
    }
    static floats several(const void* row, size_t at) {
        const auto upper = load<halves>(static_cast<const uint16_t*>(row) + at);
        return (floats)(__builtin_convertvector(upper, words) << 16);
    }
};

template <class Row, size_t V>
inline void columns(const void* const* rows, const float* weights, size_t count, size_t at, float* out) {
    floats sums[V] = {};
    for (size_t j = 0; j < count; ++j)
        for (size_t v = 0; v < V; ++v) sums[v] += weights[j] * Row::several(rows[j], at + kWidth * v);
    for (size_t v = 0; v < V; ++v) store(out + at + kWidth * v, load<floats>(out + at + kWidth * v) + sums[v]);
}

template <class Row>
void sum_of(const void* const* rows, const float* weights, size_t count, size_t n, float* out) {
    size_t at = 0;
    for (; at + 8 * kWidth <= n; at += 8 * kWidth) columns<Row, 8>(rows, weights, count, at, out);
    for (; at + kWidth <= n; at += kWidth) columns<Row, 1>(rows, weights, count, at, out);
    for (; at < n; ++at) {
        float sum = 0;
        for (size_t j = 0; j < count; ++j) sum += weights[j] * Row::one(rows[j], at);
        out[at] += sum;
    }
}

}  // namespace

void weighted_sum(const void* const* rows, RowType type, const float* weights, size_t count, size_t n, float* out) {
    type == RowType::bf16 ? sum_of<Bfloat16Row>(rows, weights, count, n, out)
                          : sum_of<FloatRow>(rows, weights, count, n, out);
}

}  // namespace manyclass::MANYCLASS_ISA
