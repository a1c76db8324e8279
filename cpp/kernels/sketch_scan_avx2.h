// The scan with AVX2: a register of 32 bytes looks up four bits of 32 classes.
#pragma once
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

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
size_t scan_blocks(const ScanPlan& plan, ScanQuery* queries, size_t begin, size_t end) {
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

}  // namespace
}  // namespace manyclass::MANYCLASS_ISA
