// The scan with AVX-512: a register of 64 bytes is a table of 64 entries, so that one permutation looks up six bits of
// the 64 classes of two blocks. Of three bytes of a code, the lower six bits of each are an index, and the upper two of
// all three together.
#pragma once

#include "sketch_scan_avx2.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

constexpr size_t kTriple = 3;  // bytes of a code that are looked up together
constexpr size_t kLookups = 4;
constexpr int kMiddle = 128;  // is added to the sum of a triple's look-ups, which eight bits hold without a sign

inline size_t triples(size_t bits) {
    return (bits / 8 + kTriple - 1) / kTriple;
}

// The tables of six bits lie behind those of four: a line whose first byte says whether they serve, then the tables.
struct WideTables {
    uint8_t* calm;  // 1 if no triple can leave the range of eight bits: so it is unless nearly all levels are large
    uint8_t* tables;
};

inline WideTables wide_tables(const uint8_t* tables, size_t bits) {
    const auto behind = (reinterpret_cast<uintptr_t>(tables) + bits * 4 + 63) & ~uintptr_t{63};
    return {reinterpret_cast<uint8_t*>(behind), reinterpret_cast<uint8_t*>(behind) + 64};
}

inline size_t wide_table_bytes(size_t bits) {
    return triples(bits) * kLookups * 64 + 2 * 64;
}

// One table: entry i is `start` and the six levels, each added where its bit of i is set, else taken away.
inline void fill_wide_table(const int8_t (&levels)[6], int start, uint8_t* table) {
    constexpr uint64_t set[6] = {0xaaaaaaaaaaaaaaaa, 0xcccccccccccccccc, 0xf0f0f0f0f0f0f0f0,
                                 0xff00ff00ff00ff00, 0xffff0000ffff0000, 0xffffffff00000000};
    __m512i entries = _mm512_set1_epi8(static_cast<char>(start));
    MANYCLASS_UNROLL
    for (size_t bit = 0; bit < 6; ++bit) {
        const __m512i level = _mm512_set1_epi8(levels[bit]);
        entries = _mm512_mask_add_epi8(_mm512_sub_epi8(entries, level), set[bit], entries, level);
    }
    _mm512_store_si512(table, entries);
}

inline void fill_wide_tables(const int8_t* levels, size_t bits, uint8_t* tables) {
    const WideTables wide = wide_tables(tables, bits);
    uint8_t* table = wide.tables;
    int most = 0;
    for (size_t at = 0; at < bits; at += 8 * kTriple, table += 64 * kLookups) {
        int8_t own[8 * kTriple] = {};  // beyond the last byte all levels are zero: what is read there changes nothing
        std::memcpy(own, levels + at, bits - at < sizeof own ? bits - at : sizeof own);
        int sum = 0;
        for (const int8_t level : own) sum += level < 0 ? -level : level;
        most = sum > most ? sum : most;
        for (size_t byte = 0; byte < kTriple; ++byte) {
            const int8_t* l = own + 8 * byte;
            fill_wide_table({l[0], l[1], l[2], l[3], l[4], l[5]}, byte ? 0 : kMiddle, table + 64 * byte);
        }
        fill_wide_table({own[6], own[7], own[14], own[15], own[22], own[23]}, 0, table + 64 * kTriple);
    }
    *wide.calm = most < kMiddle;
}

// 32 bytes of one block, and those at the same place of the next.
inline __m512i of_both(const uint8_t* from, size_t block_bytes) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + block_bytes));
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

// Where bits of `mask` are set those of `yes`, else those of `no`.
inline __m512i bits_of(__m512i mask, __m512i yes, __m512i no) {
    return _mm512_ternarylogic_epi64(mask, yes, no, 0xca);
}

// P pairs of blocks together: a table is then read once for all of them.
template <size_t Q, size_t P>
inline void score_pairs(const ScanPlan& plan, const uint8_t* block, const uint8_t* const (&tables)[Q],
                        __m512i (&even)[P][Q], __m512i (&odd)[P][Q]) {
    const __m512i two = _mm512_set1_epi8(3), four = _mm512_set1_epi8(15);
    for (size_t p = 0; p < P; ++p)
        for (size_t q = 0; q < Q; ++q) even[p][q] = odd[p][q] = _mm512_setzero_si512();
    for (size_t triple = 0; triple < triples(plan.bits); ++triple) {
        __m512i codes[P][kLookups];  // a permutation looks at the lower six bits of each byte alone
        MANYCLASS_UNROLL
        for (size_t p = 0; p < P; ++p) {
            const uint8_t* at = block + 2 * p * plan.block_bytes + triple * kTriple * kBlock;
            MANYCLASS_UNROLL
            for (size_t i = 0; i < kTriple; ++i) codes[p][i] = of_both(at + i * kBlock, plan.block_bytes);
            codes[p][3] = bits_of(two, _mm512_srli_epi16(codes[p][0], 6), _mm512_srli_epi16(codes[p][1], 4));
            codes[p][3] = bits_of(four, codes[p][3], _mm512_srli_epi16(codes[p][2], 2));
        }
        MANYCLASS_UNROLL
        for (size_t q = 0; q < Q; ++q) {
            __m512i sums[P];
            MANYCLASS_UNROLL
            for (size_t i = 0; i < kLookups; ++i) {
                const __m512i entries = _mm512_load_si512(tables[q] + 64 * (kLookups * triple + i));
                for (size_t p = 0; p < P; ++p) {
                    const __m512i found = _mm512_permutexvar_epi8(codes[p][i], entries);
                    sums[p] = i ? _mm512_add_epi8(sums[p], found) : found;
                }
            }
            for (size_t p = 0; p < P; ++p) {
                even[p][q] = _mm512_add_epi16(even[p][q], sums[p]);  // odd bytes come along, and go at the end
                odd[p][q] = _mm512_add_epi16(odd[p][q], _mm512_srli_epi16(sums[p], 8));
            }
        }
    }
    const __m512i offset = _mm512_set1_epi16(static_cast<int16_t>(kMiddle * triples(plan.bits)));
    for (size_t p = 0; p < P; ++p)
        for (size_t q = 0; q < Q; ++q) {
            even[p][q] = _mm512_sub_epi16(_mm512_sub_epi16(even[p][q], _mm512_slli_epi16(odd[p][q], 8)), offset);
            odd[p][q] = _mm512_sub_epi16(odd[p][q], offset);
        }
}

inline __m512i finish_pair(__m512i raw, const ScanPlan& plan, const ScanQuery& query, const uint8_t* weights,
                           size_t half) {
    const uint8_t *factors = weights + 32 * half, *biases = factors + 64;
    __m512i score = _mm512_slli_epi16(raw, static_cast<unsigned>(plan.gain));
    score = _mm512_mulhrs_epi16(score, _mm512_set1_epi16(query.alpha));
    return _mm512_adds_epi16(_mm512_mulhrs_epi16(score, of_both(factors, plan.block_bytes)),
                             _mm512_mulhrs_epi16(of_both(biases, plan.block_bytes), _mm512_set1_epi16(query.beta)));
}

// Appends what survives of the two blocks from b on.
inline void keep_above(const ScanPlan& plan, ScanQuery& query, size_t b, __m512i even, __m512i odd) {
    const uint8_t* weights = plan.blocks + b * plan.block_bytes + plan.bits / 8 * kBlock;
    even = finish_pair(even, plan, query, weights, 0);
    odd = finish_pair(odd, plan, query, weights, 1);
    const __m512i floor = _mm512_set1_epi16(query.floor);
    const uint32_t evens = _mm512_cmpgt_epi16_mask(even, floor), odds = _mm512_cmpgt_epi16_mask(odd, floor);
    if (!(evens | odds)) return;
    alignas(64) int16_t scores[2][32];
    _mm512_store_si512(scores[0], even);
    _mm512_store_si512(scores[1], odd);
    const uint32_t* ids = plan.ids + b * kBlock;
    uint64_t mask = _pdep_u64(evens, 0x5555555555555555) | _pdep_u64(odds, 0xaaaaaaaaaaaaaaaa);
    for (; mask; mask &= mask - 1) {
        const auto lane = static_cast<unsigned>(__builtin_ctzll(mask));
        query.kept[query.count] = best_first_key(scores[lane & 1][lane >> 1], ids[lane]);
        query.count += ids[lane] != kNoClass;
    }
}

template <size_t Q, size_t P>
void scan_pairs(const ScanPlan& plan, ScanQuery* queries, const uint8_t* const (&tables)[Q], size_t b) {
    __m512i even[P][Q], odd[P][Q];
    score_pairs<Q, P>(plan, plan.blocks + b * plan.block_bytes, tables, even, odd);
    for (size_t p = 0; p < P; ++p)
        for (size_t q = 0; q < Q; ++q) keep_above(plan, queries[q], b + 2 * p, even[p][q], odd[p][q]);
}

// Four or two blocks at a time; one, as AVX2 does it, where there are no more or no room for them.
template <size_t Q>
size_t scan_wide(const ScanPlan& plan, ScanQuery* queries, size_t begin, size_t end) {
    const uint8_t* tables[Q];
    for (size_t q = 0; q < Q; ++q) {
        const WideTables wide = wide_tables(queries[q].tables, plan.bits);
        if (!*wide.calm) return scan_blocks<Q>(plan, queries, begin, end);
        tables[q] = wide.tables;
    }
    for (size_t b = begin; b < end;) {
        size_t room = end - b;
        for (size_t q = 0; q < Q; ++q) {
            const size_t own = (queries[q].capacity - queries[q].count) / kBlock;
            room = own < room ? own : room;
        }
        if (room >= 4) {
            scan_pairs<Q, 2>(plan, queries, tables, b);
            b += 4;
        } else if (room >= 2) {
            scan_pairs<Q, 1>(plan, queries, tables, b);
            b += 2;
        } else {
            if (scan_blocks<Q>(plan, queries, b, b + 1) == b) return b;
            ++b;
        }
    }
    return end;
}

}  // namespace
}  // namespace manyclass::MANYCLASS_ISA
