// Dot products of one row with a few queries: the row is read (and widened to float32) once for all of them.
// A product is the same number whichever other queries share the pass: two sums of eight lanes, in order.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
void load_row(const void* row, RowType type, size_t n, float* out);

namespace {

template <RowType type>
inline f32x8 load8(const void* row, size_t at) {
    if constexpr (type == RowType::f32) return load<f32x8>(static_cast<const float*>(row) + at);
#if defined(__AVX2__) && defined(__F16C__)
    if constexpr (type == RowType::f16) {
        const auto* half = static_cast<const uint16_t*>(row) + at;
        return (f32x8)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half)));
    }
    if constexpr (type == RowType::bf16) {
        const auto* half = static_cast<const uint16_t*>(row) + at;
        const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half)));
        return (f32x8)_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }
#endif
    float wide[8];
    constexpr size_t size = type == RowType::f64 ? 8 : 2;
    load_row(static_cast<const uint8_t*>(row) + at * size, type, 8, wide);
    return load<f32x8>(wide);
}

inline f32x8 multiply_add(f32x8 a, f32x8 b, f32x8 c) {
#if defined(__FMA__)
    return (f32x8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

inline float fold(f32x8 v) {
    const float a = (v[0] + v[4]) + (v[2] + v[6]), b = (v[1] + v[5]) + (v[3] + v[7]);
    return a + b;
}

template <RowType type, size_t Q>
void tile(const void* row, const float* const* queries, size_t n, float* sums) {
    f32x8 first[Q] = {}, second[Q] = {};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const f32x8 a = load8<type>(row, i), b = load8<type>(row, i + 8);
        for (size_t q = 0; q < Q; ++q) {
            first[q] = multiply_add(a, load<f32x8>(queries[q] + i), first[q]);
            second[q] = multiply_add(b, load<f32x8>(queries[q] + i + 8), second[q]);
        }
    }
    float tail[16];
    constexpr size_t size = type == RowType::f64 ? 8 : type == RowType::f32 ? 4 : 2;
    load_row(static_cast<const uint8_t*>(row) + i * size, type, n - i, tail);
    for (size_t q = 0; q < Q; ++q) {
        float rest = 0;
        for (size_t j = i; j < n; ++j) rest += tail[j - i] * queries[q][j];
        sums[q] += fold(first[q] + second[q]) + rest;
    }
}

template <RowType type>
void dots_of(const void* row, const float* const* queries, size_t count, size_t n, float* sums) {
    for (; count >= 4; count -= 4, queries += 4, sums += 4) tile<type, 4>(row, queries, n, sums);
    switch (count) {
        case 3:
            return tile<type, 3>(row, queries, n, sums);
        case 2:
            return tile<type, 2>(row, queries, n, sums);
        case 1:
            return tile<type, 1>(row, queries, n, sums);
    }
}

}  // namespace

void dots(const void* row, RowType type, const float* const* queries, size_t count, size_t n, float* sums) {
    switch (type) {
        case RowType::f32:
            return dots_of<RowType::f32>(row, queries, count, n, sums);
        case RowType::f64:
            return dots_of<RowType::f64>(row, queries, count, n, sums);
        case RowType::f16:
            return dots_of<RowType::f16>(row, queries, count, n, sums);
        case RowType::bf16:
            return dots_of<RowType::bf16>(row, queries, count, n, sums);
    }
}

}  // namespace manyclass::MANYCLASS_ISA
