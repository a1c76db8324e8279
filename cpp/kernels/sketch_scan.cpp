// Scores of 1-bit sketches. A flat pass looks up four bits of 32 classes at once in a 16-entry table held in a
// register; single classes are scored from bit planes. All integer: every build returns the same survivors.
#include "vectors.h"
#if defined(__AVX2__)
#include "sketch_scan_avx2.h"
#endif
#if defined(__AVX512VBMI__)
#include "sketch_scan_avx512.h"
#endif
#if defined(MANYCLASS_NEON)
#include "sketch_scan_neon.h"
#endif

namespace manyclass::MANYCLASS_ISA {
namespace {

#if defined(__AVX512VBMI__)

template <size_t Q>
size_t scan(const ScanPlan& plan, ScanQuery* queries, size_t begin, size_t end) {
    return scan_wide<Q>(plan, queries, begin, end);
}

#elif defined(__AVX2__) || defined(MANYCLASS_NEON)

template <size_t Q>
size_t scan(const ScanPlan& plan, ScanQuery* queries, size_t begin, size_t end) {
    return scan_blocks<Q>(plan, queries, begin, end);
}

#else

// Rounded product of two Q15 numbers, as the SIMD instruction defines it.
inline int16_t q15_product(int16_t a, int16_t b) {
    return static_cast<int16_t>((static_cast<int32_t>(a) * b + 0x4000) >> 15);
}

inline int16_t saturate(int32_t x) {
    return static_cast<int16_t>(x > 32767 ? 32767 : x < -32768 ? -32768 : x);
}

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

size_t scan_table_bytes(size_t bits) {
#if defined(__AVX512VBMI__)
    return bits * 4 + wide_table_bytes(bits);
#else
    return bits * 4;
#endif
}

void fill_scan_tables(const int8_t* levels, size_t bits, uint8_t* tables) {
    constexpr uint8_t f = 255;  // where the entry's number has a certain bit, the level counts twice more than without
    const u8x16 set[4] = {{0, f, 0, f, 0, f, 0, f, 0, f, 0, f, 0, f, 0, f},
                          {0, 0, f, f, 0, 0, f, f, 0, 0, f, f, 0, 0, f, f},
                          {0, 0, 0, 0, f, f, f, f, 0, 0, 0, 0, f, f, f, f},
                          {0, 0, 0, 0, 0, 0, 0, 0, f, f, f, f, f, f, f, f}};
    for (size_t group = 0; group < bits / 4; ++group) {
        const int8_t* level = levels + group * 4;
        u8x16 table = u8x16{} + static_cast<uint8_t>(4 * kQueryLevels - (level[0] + level[1] + level[2] + level[3]));
        for (size_t bit = 0; bit < 4; ++bit) table += set[bit] & static_cast<uint8_t>(2 * level[bit]);
        store(tables + group * 16, table);
    }
#if defined(__AVX512VBMI__)
    fill_wide_tables(levels, bits, tables);
#endif
}

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
#if defined(__AVX512VPOPCNTDQ__)

int sketch_score(const uint8_t* code, const uint8_t* planes, size_t bytes, int level_sum) {
    const size_t stride = (bytes + 7) & ~size_t{7};
    __m512i set = _mm512_setzero_si512(), counts[4] = {set, set, set, set};
    for (size_t at = 0; at < bytes; at += 64) {
        const __mmask64 there = bytes - at >= 64 ? ~__mmask64{0} : (__mmask64{1} << (bytes - at)) - 1;
        const __m512i word = _mm512_maskz_loadu_epi8(there, code + at);
        set = _mm512_add_epi64(set, _mm512_popcnt_epi64(word));
        MANYCLASS_UNROLL
        for (size_t p = 0; p < 4; ++p) {
            const __m512i plane = _mm512_maskz_loadu_epi8(there, planes + p * stride + at);
            counts[p] = _mm512_add_epi64(counts[p], _mm512_popcnt_epi64(_mm512_and_si512(word, plane)));
        }
    }
    const __m512i low = _mm512_add_epi64(counts[0], _mm512_slli_epi64(counts[1], 1));
    const __m512i high = _mm512_add_epi64(counts[2], _mm512_slli_epi64(counts[3], 1));
    __m512i total = _mm512_add_epi64(low, _mm512_slli_epi64(high, 2));
    total = _mm512_sub_epi64(total, _mm512_sub_epi64(_mm512_slli_epi64(set, 3), set));
    static_assert(kQueryLevels == 7);
    return 2 * static_cast<int>(_mm512_reduce_add_epi64(total)) - level_sum;
}

#else

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

#endif

size_t scan_counters(const uint16_t* counters, size_t begin, size_t end, uint16_t floor, uint32_t first_id,
                     uint64_t* kept, size_t* count, size_t capacity) {
    size_t i = begin, n = *count;
    for (; i + kBlock <= end; i += kBlock) {
        uint16_t highest = 0;
        for (size_t lane = 0; lane < kBlock; ++lane)
            highest = counters[i + lane] > highest ? counters[i + lane] : highest;
        if (highest <= floor) continue;
        if (n + kBlock > capacity) break;
#if defined(__AVX512BW__)
        const __m512i above = _mm512_loadu_si512(counters + i);
        for (uint32_t mask = _mm512_cmpgt_epu16_mask(above, _mm512_set1_epi16(static_cast<int16_t>(floor))); mask;
             mask &= mask - 1) {
            const size_t at = i + static_cast<size_t>(__builtin_ctz(mask));
            kept[n++] = best_first_key(counters[at], first_id + static_cast<uint32_t>(at));
        }
#else
        for (size_t lane = 0; lane < kBlock; ++lane)
            if (counters[i + lane] > floor)
                kept[n++] = best_first_key(counters[i + lane], first_id + static_cast<uint32_t>(i + lane));
#endif
    }
    if (i + kBlock > end && n + kBlock <= capacity)
        for (; i < end; ++i)
            if (counters[i] > floor) kept[n++] = best_first_key(counters[i], first_id + static_cast<uint32_t>(i));
    *count = n;
    return i;
}

}  // namespace manyclass::MANYCLASS_ISA
