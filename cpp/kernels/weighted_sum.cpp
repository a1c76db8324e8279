// Weighted sums of rows, the products of training's backward pass. Sums run over the rows in order for every column,
// so that they do not depend on how columns are grouped.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

template <size_t V>
inline void columns(const float* const* rows, const float* weights, size_t count, size_t at, float* out) {
    f32x8 sums[V] = {};
    for (size_t j = 0; j < count; ++j) {
        const float w = weights[j];
        const f32x8 scale = {w, w, w, w, w, w, w, w};
        for (size_t v = 0; v < V; ++v) sums[v] += scale * load<f32x8>(rows[j] + at + 8 * v);
    }
    for (size_t v = 0; v < V; ++v) store(out + at + 8 * v, load<f32x8>(out + at + 8 * v) + sums[v]);
}

}  // namespace

void weighted_sum(const float* const* rows, const float* weights, size_t count, size_t n, float* out) {
    size_t at = 0;
    for (; at + 64 <= n; at += 64) columns<8>(rows, weights, count, at, out);
    for (; at + 8 <= n; at += 8) columns<1>(rows, weights, count, at, out);
    for (; at < n; ++at) {
        float sum = 0;
        for (size_t j = 0; j < count; ++j) sum += weights[j] * rows[j][at];
        out[at] += sum;
    }
}

}  // namespace manyclass::MANYCLASS_ISA
