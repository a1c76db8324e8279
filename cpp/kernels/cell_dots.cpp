// Products of centres (8 bits) with a few vectors (16 bits): whole numbers, the same on every instruction set.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

#if defined(__AVX2__)

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

template <size_t Q>
void dots_of_cells(const int8_t* centres, size_t width, size_t begin, size_t end, const int16_t* const* vectors,
                   int32_t* const* out) {
    for (size_t cell = begin; cell < end; ++cell) dots_of_cell<Q>(centres + cell * width, width, vectors, out, cell);
}

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
