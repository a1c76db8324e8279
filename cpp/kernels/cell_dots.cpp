// Products of centres (8 bits) with a few vectors (16 bits): whole numbers, the same on every instruction set.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

#if defined(__AVX512VNNI__)

constexpr size_t kChunk = 4096;  // columns whose vectors are narrowed together

// Of each register the sum of its lanes.
template <size_t Q>
inline __m128i sums_of_lanes(const __m512i (&lanes)[Q]) {
    __m256i half[4] = {};
    for (size_t q = 0; q < Q; ++q)
        half[q] = _mm256_add_epi32(_mm512_castsi512_si256(lanes[q]), _mm512_extracti64x4_epi64(lanes[q], 1));
    const __m256i quarters =
        _mm256_hadd_epi32(_mm256_hadd_epi32(half[0], half[1]), _mm256_hadd_epi32(half[2], half[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
}

// Four products of bytes are summed at once, but of bytes with a sign with bytes without one: 128 is added to the
// centres, and what that adds to the sum is known beforehand.
template <size_t Q>
void dots_of_columns(const int8_t* centres, size_t width, size_t begin, size_t end, const int16_t* const* vectors,
                     int32_t* const* out, size_t first) {
    const size_t n = width - first < kChunk ? width - first : kChunk;
    alignas(64) int8_t narrow[Q][kChunk];
    alignas(16) int32_t surplus[4] = {};
    for (size_t q = 0; q < Q; ++q) {
        for (size_t i = 0; i < n; ++i) {
            narrow[q][i] = static_cast<int8_t>(vectors[q][first + i]);
            surplus[q] += 128 * vectors[q][first + i];
        }
        for (size_t i = n; i % 64; ++i) narrow[q][i] = 0;
    }
    const __m512i lift = _mm512_set1_epi8(-128);
    const __mmask64 rest = n % 64 ? (__mmask64{1} << n % 64) - 1 : ~__mmask64{0};
    for (size_t cell = begin; cell < end; ++cell) {
        const int8_t* centre = centres + cell * width + first;
        __m512i sums[Q];
        for (size_t q = 0; q < Q; ++q) sums[q] = _mm512_setzero_si512();
        for (size_t i = 0; i < n; i += 64) {
            const __m512i levels =
                i + 64 <= n ? _mm512_loadu_si512(centre + i) : _mm512_maskz_loadu_epi8(rest, centre + i);
            const __m512i lifted = _mm512_xor_si512(levels, lift);
            for (size_t q = 0; q < Q; ++q)
                sums[q] = _mm512_dpbusd_epi32(sums[q], lifted, _mm512_load_si512(narrow[q] + i));
        }
        alignas(16) int32_t found[4];
        _mm_store_si128(reinterpret_cast<__m128i*>(found),
                        _mm_sub_epi32(sums_of_lanes<Q>(sums), _mm_load_si128(reinterpret_cast<__m128i*>(surplus))));
        for (size_t q = 0; q < Q; ++q) out[q][cell] = (first ? out[q][cell] : 0) + found[q];
    }
}

template <size_t Q>
void dots_of_cells(const int8_t* centres, size_t width, size_t begin, size_t end, const int16_t* const* vectors,
                   int32_t* const* out) {
    for (size_t first = 0; first < width; first += kChunk)
        dots_of_columns<Q>(centres, width, begin, end, vectors, out, first);
}

#elif defined(__AVX2__)

inline int32_t sum_lanes(__m256i lanes) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
}

template <size_t Q>
void dots_of_cell(const int8_t* centre, size_t width, const int16_t* const* vectors, int32_t* const* out, size_t cell) {
    __m256i sums[Q];
    for (size_t q = 0; q < Q; ++q) sums[q] = _mm256_setzero_si256();
    for (size_t i = 0; i < width; i += 16) {
        const __m256i levels = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(centre + i)));
        for (size_t q = 0; q < Q; ++q) {
            const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(vectors[q] + i));
            sums[q] = _mm256_add_epi32(sums[q], _mm256_madd_epi16(levels, vector));
        }
    }
    for (size_t q = 0; q < Q; ++q) out[q][cell] = sum_lanes(sums[q]);
}

#elif defined(MANYCLASS_NEON)

template <size_t Q>
void dots_of_cell(const int8_t* centre, size_t width, const int16_t* const* vectors, int32_t* const* out, size_t cell) {
    int32x4_t sums[Q][2];
    for (size_t q = 0; q < Q; ++q) sums[q][0] = sums[q][1] = vdupq_n_s32(0);
    for (size_t i = 0; i < width; i += 8) {
        const int16x8_t levels = vmovl_s8(vld1_s8(centre + i));
        for (size_t q = 0; q < Q; ++q) {
            const int16x8_t vector = vld1q_s16(vectors[q] + i);
            sums[q][0] = vmlal_s16(sums[q][0], vget_low_s16(levels), vget_low_s16(vector));
            sums[q][1] = vmlal_high_s16(sums[q][1], levels, vector);
        }
    }
    for (size_t q = 0; q < Q; ++q) out[q][cell] = vaddvq_s32(vaddq_s32(sums[q][0], sums[q][1]));
}

#else

template <size_t Q>
void dots_of_cell(const int8_t* centre, size_t width, const int16_t* const* vectors, int32_t* const* out, size_t cell) {
    for (size_t q = 0; q < Q; ++q) {
        int32_t sum = 0;
        for (size_t i = 0; i < width; ++i) sum += centre[i] * vectors[q][i];
        out[q][cell] = sum;
    }
}

#endif
#if !defined(__AVX512VNNI__)

template <size_t Q>
void dots_of_cells(const int8_t* centres, size_t width, size_t begin, size_t end, const int16_t* const* vectors,
                   int32_t* const* out) {
    for (size_t cell = begin; cell < end; ++cell) dots_of_cell<Q>(centres + cell * width, width, vectors, out, cell);
}

#endif

}  // namespace

void cell_dots(const int8_t* centres, size_t width, size_t begin, size_t end, const int16_t* const* vectors,
               size_t count, int32_t* const* out) {
    switch (count) {
        case 1:
            return dots_of_cells<1>(centres, width, begin, end, vectors, out);
        case 2:
            return dots_of_cells<2>(centres, width, begin, end, vectors, out);
        case 3:
            return dots_of_cells<3>(centres, width, begin, end, vectors, out);
        default:
            return dots_of_cells<4>(centres, width, begin, end, vectors, out);
    }
}

}  // namespace manyclass::MANYCLASS_ISA
