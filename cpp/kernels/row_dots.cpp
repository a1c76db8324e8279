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

// Adds up sixteen elements at a time and returns how many there were in all.
#if defined(MANYCLASS_NEON)

template <RowType type>
inline float32x4_t load4(const void* row, size_t at) {
    if constexpr (type == RowType::f32) {
        return vld1q_f32(static_cast<const float*>(row) + at);
    } else if constexpr (type == RowType::f64) {
        const double* wide = static_cast<const double*>(row) + at;
        return vcombine_f32(vcvt_f32_f64(vld1q_f64(wide)), vcvt_f32_f64(vld1q_f64(wide + 2)));
    } else {
        const uint16x4_t halves = vld1_u16(static_cast<const uint16_t*>(row) + at);
        if constexpr (type == RowType::f16) return vcvt_f32_f16(vreinterpret_f16_u16(halves));
        return vreinterpretq_f32_u32(vshll_n_u16(halves, 16));
    }
}

template <RowType type, size_t Q>
size_t sixteens(const void* row, const float* const* queries, size_t n, f32x8 (&sums)[Q]) {
    float32x4_t parts[Q][4];  // the two sums of eight lanes
    for (size_t q = 0; q < Q; ++q)
        for (float32x4_t& part : parts[q]) part = vdupq_n_f32(0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t p = 0; p < 4; ++p) {
            const float32x4_t a = load4<type>(row, i + 4 * p);
            for (size_t q = 0; q < Q; ++q) parts[q][p] = vfmaq_f32(parts[q][p], a, vld1q_f32(queries[q] + i + 4 * p));
        }
    for (size_t q = 0; q < Q; ++q) {
        const float32x4_t low = vaddq_f32(parts[q][0], parts[q][2]), high = vaddq_f32(parts[q][1], parts[q][3]);
        sums[q] = f32x8{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
    }
    return i;
}

#else

template <RowType type, size_t Q>
size_t sixteens(const void* row, const float* const* queries, size_t n, f32x8 (&sums)[Q]) {
    f32x8 first[Q] = {}, second[Q] = {};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const f32x8 a = load8<type>(row, i), b = load8<type>(row, i + 8);
        for (size_t q = 0; q < Q; ++q) {
            first[q] = multiply_add(a, load<f32x8>(queries[q] + i), first[q]);
            second[q] = multiply_add(b, load<f32x8>(queries[q] + i + 8), second[q]);
        }
    }
    for (size_t q = 0; q < Q; ++q) sums[q] = first[q] + second[q];
    return i;
}

#endif

#if defined(__AVX512F__)

template <RowType type>
inline __m512 load16(const void* row, size_t at) {
    if constexpr (type == RowType::f32) {
        return _mm512_loadu_ps(static_cast<const float*>(row) + at);
    } else {
        const auto* halves = reinterpret_cast<const __m256i*>(static_cast<const uint16_t*>(row) + at);
        if constexpr (type == RowType::f16) return _mm512_cvtph_ps(_mm256_loadu_si256(halves));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(halves)), 16));
    }
}

// The same with the two sums of eight lanes as halves of one register. It pays while sums are so few that they wait for
// each other.
template <RowType type, size_t Q>
size_t sixteens_at_once(const void* row, const float* const* queries, size_t n, f32x8 (&sums)[Q]) {
    __m512 both[Q];
    for (size_t q = 0; q < Q; ++q) both[q] = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 a = load16<type>(row, i);
        for (size_t q = 0; q < Q; ++q) both[q] = _mm512_fmadd_ps(a, _mm512_loadu_ps(queries[q] + i), both[q]);
    }
    for (size_t q = 0; q < Q; ++q)
        sums[q] = (f32x8)_mm512_castps512_ps256(both[q]) + (f32x8)_mm512_extractf32x8_ps(both[q], 1);
    return i;
}

#endif

template <RowType type, size_t Q>
void tile(const void* row, const float* const* queries, size_t n, float* sums) {
    f32x8 both[Q];
#if defined(__AVX512F__)
    constexpr auto sum_up = Q < 4 && type != RowType::f64 ? sixteens_at_once<type, Q> : sixteens<type, Q>;
    const size_t i = sum_up(row, queries, n, both);
#else
    const size_t i = sixteens<type, Q>(row, queries, n, both);
#endif
    float tail[16];
    constexpr size_t size = type == RowType::f64 ? 8 : type == RowType::f32 ? 4 : 2;
    load_row(static_cast<const uint8_t*>(row) + i * size, type, n - i, tail);
    for (size_t q = 0; q < Q; ++q) {
        float rest = 0;
        for (size_t j = i; j < n; ++j) rest += tail[j - i] * queries[q][j];
        sums[q] += fold(both[q]) + rest;
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
