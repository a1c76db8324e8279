// Scores of 1-bit sketches. A flat pass looks up four bits of 32 classes at once in a 16-entry table held in a
// register; single classes are scored from bit planes. All integer: every build returns the same survivors.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

// Rounded product of two Q15 numbers, as the SIMD instruction defines it.
inline int16_t q15_product(int16_t a, int16_t b) {
    return static_cast<int16_t>((static_cast<int32_t>(a) * b + 0x4000) >> 15);
}

inline int16_t saturate(int32_t x) {
    return static_cast<int16_t>(x > 32767 ? 32767 : x < -32768 ? -32768 : x);
}

#if defined(__AVX2__)

inline __m256i finish(__m256i raw, const ScanPlan& plan, const ScanQuery& query, const int16_t* factor_bias,
                      size_t half) {
    const __m256i offset = _mm256_set1_epi16(static_cast<int16_t>(kQueryLevels * plan.bits));
    __m256i score = _mm256_slli_epi16(_mm256_sub_epi16(raw, offset), plan.gain);
    score = _mm256_mulhrs_epi16(score, _mm256_set1_epi16(query.alpha));
    const __m256i factor = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(factor_bias + 16 * half));
    const __m256i bias = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(factor_bias + 32 + 16 * half));
    return _mm256_adds_epi16(_mm256_mulhrs_epi16(score, factor),
                             _mm256_mulhrs_epi16(bias, _mm256_set1_epi16(query.beta)));
}

template <size_t Q>
inline void score_block(const ScanPlan& plan, const uint8_t* block, ScanQuery* queries, __m256i (&even)[Q],
                        __m256i (&odd)[Q]) {
    const __m256i nibble = _mm256_set1_epi8(15);
    for (size_t q = 0; q < Q; ++q) even[q] = odd[q] = _mm256_setzero_si256();
    for (size_t byte = 0; byte < plan.bits / 8; byte += 2) {
        const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + byte * kBlock));
        const __m256i next = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + (byte + 1) * kBlock));
        const __m256i codes[4] = {_mm256_and_si256(first, nibble),
                                  _mm256_and_si256(_mm256_srli_epi16(first, 4), nibble), _mm256_and_si256(next, nibble),
                                  _mm256_and_si256(_mm256_srli_epi16(next, 4), nibble)};
        for (size_t q = 0; q < Q; ++q) {
            const __m128i* table = reinterpret_cast<const __m128i*>(queries[q].tables + byte * 32);
            __m256i sum = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table)), codes[0]);
            for (int g = 1; g < 4; ++g)
                sum = _mm256_add_epi8(
                    sum, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table + g)), codes[g]));
            even[q] = _mm256_add_epi16(even[q], sum);  // the odd bytes come along and are taken out at the end
            odd[q] = _mm256_add_epi16(odd[q], _mm256_srli_epi16(sum, 8));
        }
    }
    for (size_t q = 0; q < Q; ++q) even[q] = _mm256_sub_epi16(even[q], _mm256_slli_epi16(odd[q], 8));
}

template <size_t Q>
size_t scan(const ScanPlan& plan, ScanQuery* queries, size_t begin, size_t end) {
    const __m256i low_byte = _mm256_set1_epi16(255);
    for (size_t b = begin; b < end; ++b) {
        for (size_t q = 0; q < Q; ++q)
            if (queries[q].count + kBlock > queries[q].capacity) return b;
        const uint8_t* block = plan.blocks + b * plan.block_bytes;
        const int16_t* factor_bias = reinterpret_cast<const int16_t*>(block + plan.bits / 8 * kBlock);
        __m256i even[Q], odd[Q];
        score_block<Q>(plan, block, queries, even, odd);
        for (size_t q = 0; q < Q; ++q) {
            ScanQuery& query = queries[q];
            even[q] = finish(even[q], plan, query, factor_bias, 0);
            odd[q] = finish(odd[q], plan, query, factor_bias, 1);
            const __m256i floor = _mm256_set1_epi16(query.floor);
            const __m256i above =
                _mm256_blendv_epi8(_mm256_cmpgt_epi16(odd[q], floor), _mm256_cmpgt_epi16(even[q], floor), low_byte);
            uint32_t mask = static_cast<uint32_t>(_mm256_movemask_epi8(above));
            if (!mask) continue;
            alignas(32) int16_t scores[2][16];
            _mm256_store_si256(reinterpret_cast<__m256i*>(scores[0]), even[q]);
            _mm256_store_si256(reinterpret_cast<__m256i*>(scores[1]), odd[q]);
            for (; mask; mask &= mask - 1) {
                const unsigned lane = static_cast<unsigned>(__builtin_ctz(mask));
                query.kept[query.count] = best_first_key(scores[lane & 1][lane >> 1], plan.ids[b * kBlock + lane]);
                query.count += plan.ids[b * kBlock + lane] != kNoClass;
            }
        }
    }
    return end;
}

#else

template <size_t Q>
size_t scan(const ScanPlan& plan, ScanQuery* queries, size_t begin, size_t end) {
    const size_t bytes = plan.bits / 8;
    for (size_t b = begin; b < end; ++b) {
        for (size_t q = 0; q < Q; ++q)
            if (queries[q].count + kBlock > queries[q].capacity) return b;
        const uint8_t* block = plan.blocks + b * plan.block_bytes;
        const int16_t* factor_bias = reinterpret_cast<const int16_t*>(block + bytes * kBlock);
        for (size_t q = 0; q < Q; ++q) {
            ScanQuery& query = queries[q];
            uint16_t raw[kBlock] = {};
            for (size_t byte = 0; byte < bytes; ++byte) {
                const uint8_t* table = query.tables + byte * 32;
                const uint8_t* codes = block + byte * kBlock;
                for (size_t lane = 0; lane < kBlock; ++lane)
                    raw[lane] =
                        static_cast<uint16_t>(raw[lane] + table[codes[lane] & 15] + table[16 + (codes[lane] >> 4)]);
            }
            for (size_t lane = 0; lane < kBlock; ++lane) {
                const size_t at = 16 * (lane & 1) + (lane >> 1);
                const int centred = raw[lane] - kQueryLevels * static_cast<int>(plan.bits);
                const int16_t weighted = q15_product(static_cast<int16_t>(centred * (1 << plan.gain)), query.alpha);
                const int16_t score =
                    saturate(q15_product(weighted, factor_bias[at]) + q15_product(factor_bias[32 + at], query.beta));
                if (score > query.floor && plan.ids[b * kBlock + lane] != kNoClass)
                    query.kept[query.count++] = best_first_key(score, plan.ids[b * kBlock + lane]);
            }
        }
    }
    return end;
}

#endif

inline uint64_t load_up_to_8(const uint8_t* from, size_t bytes) {
    uint64_t word = 0;
    std::memcpy(&word, from, bytes);
    return word;
}

}  // namespace

size_t scan_sketch(const ScanPlan& plan, ScanQuery* queries, size_t count, size_t begin, size_t end) {
    switch (count) {
        case 1:
            return scan<1>(plan, queries, begin, end);
        case 2:
            return scan<2>(plan, queries, begin, end);
        case 3:
            return scan<3>(plan, queries, begin, end);
        default:
            return scan<4>(plan, queries, begin, end);
    }
}

// With level + 7 = sum of 2^p * plane_p: sum level*(2 bit - 1) = 2*(sum 2^p |code & plane_p| - 7 |code|) - sum level.
int sketch_score(const uint8_t* code, const uint8_t* planes, size_t bytes, int level_sum) {
    int total = 0;
    for (size_t at = 0; at < bytes; at += 8) {
        const size_t step = bytes - at < 8 ? bytes - at : 8;
        const uint64_t word = step == 8 ? load_up_to_8(code + at, 8) : load_up_to_8(code + at, step);
        int plane_counts = 0;
        for (int p = 0; p < 4; ++p) {
            const uint64_t plane = load_up_to_8(planes + static_cast<size_t>(p) * ((bytes + 7) & ~size_t{7}) + at, 8);
            plane_counts += __builtin_popcountll(word & plane) << p;
        }
        total += plane_counts - kQueryLevels * __builtin_popcountll(word);
    }
    return 2 * total - level_sum;
}

size_t scan_counters(const uint16_t* counters, size_t begin, size_t end, uint16_t floor, uint32_t first_id,
                     uint64_t* kept, size_t* count, size_t capacity) {
    size_t i = begin, n = *count;
    for (; i + kBlock <= end; i += kBlock) {
        uint16_t highest = 0;
        for (size_t lane = 0; lane < kBlock; ++lane)
            highest = counters[i + lane] > highest ? counters[i + lane] : highest;
        if (highest <= floor) continue;
        if (n + kBlock > capacity) break;
        for (size_t lane = 0; lane < kBlock; ++lane)
            if (counters[i + lane] > floor)
                kept[n++] = best_first_key(counters[i + lane], first_id + static_cast<uint32_t>(i + lane));
    }
    if (i + kBlock > end && n + kBlock <= capacity)
        for (; i < end; ++i)
            if (counters[i] > floor) kept[n++] = best_first_key(counters[i], first_id + static_cast<uint32_t>(i));
    *count = n;
    return i;
}

}  // namespace manyclass::MANYCLASS_ISA
