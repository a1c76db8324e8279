// Products of centres (8 bits) with a few vectors (16 bits): whole numbers, the same on every instruction set.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

#if defined(__AVX2__)

// Of four registers the sum of the lanes of each.
inline __m128i sums_of_lanes(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i quarters = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
}

// As many centres at once as fill the four sums that are added up together: one vector with four, two with two.
constexpr size_t centres_at_once(size_t vectors) {
    return vectors > 2 ? 1 : 4 / vectors;
}

#endif
#if defined(__AVX512VNNI__)

constexpr size_t kChunk = 4096;  // columns whose vectors are narrowed together

template <size_t Q>
struct Lifted {
    alignas(64) uint8_t levels[Q][kChunk];
};

inline __m256i halved(__m512i lanes) {
    return _mm256_add_epi32(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
}

// The products of C centres, which are `width` apart, with n columns of Q vectors.
template <size_t Q, size_t C>
inline __m128i dots_of_group(const int8_t* centres, size_t width, size_t n, const Lifted<Q>& vectors) {
    __m512i sums[4];
    MANYCLASS_UNROLL
    for (size_t s = 0; s < 4; ++s) sums[s] = _mm512_setzero_si512();
    const auto add = [&](size_t i, __mmask64 columns) {
        MANYCLASS_UNROLL
        for (size_t c = 0; c < C; ++c) {
            const __m512i levels = _mm512_maskz_loadu_epi8(columns, centres + c * width + i);
            MANYCLASS_UNROLL
            for (size_t q = 0; q < Q; ++q)
                sums[c * Q + q] =
                    _mm512_dpbusd_epi32(sums[c * Q + q], _mm512_load_si512(vectors.levels[q] + i), levels);
        }
    };
    size_t i = 0;
    for (; i + 64 <= n; i += 64) add(i, ~__mmask64{0});
    if (i < n) add(i, (__mmask64{1} << (n - i)) - 1);
    return sums_of_lanes(halved(sums[0]), halved(sums[1]), halved(sums[2]), halved(sums[3]));
}

// Four products of bytes are summed at once, but of bytes with a sign with bytes without one: 128 is added to the
// vectors, and what that adds to the sum of a centre is known beforehand.
template <size_t Q>
void dots_of_columns(const LevelRows& centres, size_t begin, size_t end, const int16_t* const* vectors,
                     int32_t* const* out, size_t first) {
    constexpr size_t together = centres_at_once(Q);
    const size_t width = centres.width, n = width - first < kChunk ? width - first : kChunk;
    Lifted<Q> lifted;
    for (size_t q = 0; q < Q; ++q) {
        for (size_t i = 0; i < n; ++i) lifted.levels[q][i] = static_cast<uint8_t>(vectors[q][first + i] + 128);
        for (size_t i = n; i % 64; ++i) lifted.levels[q][i] = 0;
    }
    const auto keep = [&](size_t cell, size_t count, __m128i products) {
        alignas(16) int32_t found[4];
        _mm_store_si128(reinterpret_cast<__m128i*>(found), products);
        for (size_t c = 0; c < count; ++c)
            for (size_t q = 0; q < Q; ++q) {
                int32_t& sum = out[q][cell + c];
                sum = (first ? sum : -128 * centres.sums[cell + c]) + found[c * Q + q];
            }
    };
    size_t cell = begin;
    for (; cell + together <= end; cell += together)
        keep(cell, together, dots_of_group<Q, together>(centres.levels + cell * width + first, width, n, lifted));
    for (; cell < end; ++cell)
        keep(cell, 1, dots_of_group<Q, 1>(centres.levels + cell * width + first, width, n, lifted));
}

template <size_t Q>
void dots_of_cells(const LevelRows& centres, size_t begin, size_t end, const int16_t* const* vectors,
                   int32_t* const* out) {
    for (size_t first = 0; first < centres.width; first += kChunk)
        dots_of_columns<Q>(centres, begin, end, vectors, out, first);
}

#elif defined(__AVX2__)

// The products of C centres, which are `width` apart, with Q vectors.
template <size_t Q, size_t C>
inline void dots_of_group(const int8_t* centres, size_t width, const int16_t* const* vectors, int32_t* const* out,
                          size_t cell) {
    __m256i sums[4];
    for (size_t s = 0; s < 4; ++s) sums[s] = _mm256_setzero_si256();
    for (size_t i = 0; i < width; i += 16)
        for (size_t c = 0; c < C; ++c) {
            const auto* at = reinterpret_cast<const __m128i*>(centres + c * width + i);
            const __m256i levels = _mm256_cvtepi8_epi16(_mm_loadu_si128(at));
            for (size_t q = 0; q < Q; ++q) {
                const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(vectors[q] + i));
                sums[c * Q + q] = _mm256_add_epi32(sums[c * Q + q], _mm256_madd_epi16(levels, vector));
            }
        }
    alignas(16) int32_t found[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(found), sums_of_lanes(sums[0], sums[1], sums[2], sums[3]));
    for (size_t c = 0; c < C; ++c)
        for (size_t q = 0; q < Q; ++q) out[q][cell + c] = found[c * Q + q];
}

template <size_t Q>
void dots_of_cells(const LevelRows& centres, size_t begin, size_t end, const int16_t* const* vectors,
                   int32_t* const* out) {
    constexpr size_t together = centres_at_once(Q);
    const size_t width = centres.width;
    size_t cell = begin;
    for (; cell + together <= end; cell += together)
        dots_of_group<Q, together>(centres.levels + cell * width, width, vectors, out, cell);
    for (; cell < end; ++cell) dots_of_group<Q, 1>(centres.levels + cell * width, width, vectors, out, cell);
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
#if !defined(__AVX2__)

template <size_t Q>
void dots_of_cells(const LevelRows& centres, size_t begin, size_t end, const int16_t* const* vectors,
                   int32_t* const* out) {
    for (size_t cell = begin; cell < end; ++cell)
        dots_of_cell<Q>(centres.levels + cell * centres.width, centres.width, vectors, out, cell);
}

#endif

#if defined(__AVX512F__)
constexpr size_t kDoubles = 8;
#else
constexpr size_t kDoubles = kVectorBytes / 8;
#endif
typedef double doubles __attribute__((vector_size(8 * kDoubles)));
typedef int64_t places __attribute__((vector_size(8 * kDoubles)));
typedef int32_t narrow_places __attribute__((vector_size(4 * kDoubles)));

}  // namespace

size_t nearest_cell(const int32_t* products, double unit, double bias, const double* biases, const double* offsets,
                    size_t count) {
    const auto merit = [&](size_t cell) {
        return static_cast<double>(products[cell]) * unit + (bias * biases[cell] - offsets[cell]);
    };
    size_t best = 0, cell = 0;
    double highest = merit(0);
    if (count >= kDoubles) {
        doubles tops = highest - doubles{};
        places where = {}, here;
        for (size_t lane = 0; lane < kDoubles; ++lane) here[lane] = static_cast<int64_t>(lane);
        for (; cell + kDoubles <= count; cell += kDoubles, here += kDoubles) {
            const auto dots = __builtin_convertvector(load<narrow_places>(products + cell), doubles);
            const doubles merits = dots * unit + (bias * load<doubles>(biases + cell) - load<doubles>(offsets + cell));
            const places better = merits > tops;
            tops = better ? merits : tops;
            where = better ? here : where;
        }
        for (size_t lane = 0; lane < kDoubles; ++lane) {
            const auto place = static_cast<size_t>(where[lane]);
            if (tops[lane] > highest || (tops[lane] == highest && place < best)) highest = tops[lane], best = place;
        }
    }
    for (; cell < count; ++cell)
        if (const double other = merit(cell); other > highest) best = cell, highest = other;
    return best;
}

void cell_dots(const LevelRows& centres, size_t begin, size_t end, const int16_t* const* vectors, size_t count,
               int32_t* const* out) {
    switch (count) {
        case 1:
            return dots_of_cells<1>(centres, begin, end, vectors, out);
        case 2:
            return dots_of_cells<2>(centres, begin, end, vectors, out);
        case 3:
            return dots_of_cells<3>(centres, begin, end, vectors, out);
        default:
            return dots_of_cells<4>(centres, begin, end, vectors, out);
    }
}

}  // namespace manyclass::MANYCLASS_ISA
