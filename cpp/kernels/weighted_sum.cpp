// Weighted sums of rows, the products of training's backward pass. Sums run over the rows in order for every column,
// so that they do not depend on how columns are grouped.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

constexpr size_t kWidth = sizeof(floats) / sizeof(float);

template <size_t V>
inline void columns(const float* const* rows, const float* weights, size_t count, size_t at, float* out) {
    floats sums[V] = {};
    for (size_t j = 0; j < count; ++j)
        for (size_t v = 0; v < V; ++v) sums[v] += weights[j] * load<floats>(rows[j] + at + kWidth * v);
    for (size_t v = 0; v < V; ++v) store(out + at + kWidth * v, load<floats>(out + at + kWidth * v) + sums[v]);
}

}  // namespace

void weighted_sum(const float* const* rows, const float* weights, size_t count, size_t n, float* out) {
    size_t at = 0;
    for (; at + 8 * kWidth <= n; at += 8 * kWidth) columns<8>(rows, weights, count, at, out);
    for (; at + kWidth <= n; at += kWidth) columns<1>(rows, weights, count, at, out);
    for (; at < n; ++at) {
        float sum = 0;
        for (size_t j = 0; j < count; ++j) sum += weights[j] * rows[j][at];
        out[at] += sum;
    }
}

}  // namespace manyclass::MANYCLASS_ISA
