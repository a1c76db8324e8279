// The scan with NEON: two registers of 16 bytes look up four bits of 32 classes.
#pragma once
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

// The rounded product is that of the other instruction sets but for -1 times -1, and weights are never -1.
inline int16x8_t finish(uint16x8_t raw, const ScanPlan& plan, const ScanQuery& query, const int16_t* factor_bias) {
    const uint16x8_t offset = vdupq_n_u16(static_cast<uint16_t>(kQueryLevels * plan.bits));
    const int16x8_t centred = vreinterpretq_s16_u16(vsubq_u16(raw, offset));
    const int16x8_t score =
        vqrdmulhq_n_s16(vshlq_s16(centred, vdupq_n_s16(static_cast<int16_t>(plan.gain))), query.alpha);
    return vqaddq_s16(vqrdmulhq_s16(score, vld1q_s16(factor_bias)),
                      vqrdmulhq_n_s16(vld1q_s16(factor_bias + 32), query.beta));
}

template <size_t Q>
inline void score_block(const ScanPlan& plan, const uint8_t* block, ScanQuery* queries, uint16x8_t (&even)[Q][2],
                        uint16x8_t (&odd)[Q][2]) {
    const uint8x16_t nibble = vdupq_n_u8(15);
    for (size_t q = 0; q < Q; ++q)
        for (size_t half = 0; half < 2; ++half) even[q][half] = odd[q][half] = vdupq_n_u16(0);
    for (size_t byte = 0; byte < plan.bits / 8; byte += 2)
        for (size_t half = 0; half < 2; ++half) {
            const uint8x16_t first = vld1q_u8(block + byte * kBlock + 16 * half);
            const uint8x16_t next = vld1q_u8(block + (byte + 1) * kBlock + 16 * half);
            const uint8x16_t codes[4] = {vandq_u8(first, nibble), vshrq_n_u8(first, 4), vandq_u8(next, nibble),
                                         vshrq_n_u8(next, 4)};
            for (size_t q = 0; q < Q; ++q) {
                const uint8_t* table = queries[q].tables + byte * 32;
                uint8x16_t sum = vqtbl1q_u8(vld1q_u8(table), codes[0]);
                for (size_t g = 1; g < 4; ++g) sum = vaddq_u8(sum, vqtbl1q_u8(vld1q_u8(table + 16 * g), codes[g]));
                const uint16x8_t both = vreinterpretq_u16_u8(sum);
                even[q][half] = vaddq_u16(even[q][half], both);  // the odd bytes come along, and go at the end
                odd[q][half] = vsraq_n_u16(odd[q][half], both, 8);
            }
        }
    for (size_t q = 0; q < Q; ++q)
        for (size_t half = 0; half < 2; ++half) even[q][half] = vsubq_u16(even[q][half], vshlq_n_u16(odd[q][half], 8));
}

template <size_t Q>
size_t scan_blocks(const ScanPlan& plan, ScanQuery* queries, size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
        for (size_t q = 0; q < Q; ++q)
            if (queries[q].count + kBlock > queries[q].capacity) return b;
        const uint8_t* block = plan.blocks + b * plan.block_bytes;
        const auto* factor_bias = reinterpret_cast<const int16_t*>(block + plan.bits / 8 * kBlock);
        const uint32_t* ids = plan.ids + b * kBlock;
        uint16x8_t even[Q][2], odd[Q][2];
        score_block<Q>(plan, block, queries, even, odd);
        for (size_t q = 0; q < Q; ++q) {
            ScanQuery& query = queries[q];
            int16_t scores[2][16];  // even lanes, odd lanes
            const int16x8_t floor = vdupq_n_s16(query.floor);
            uint16x8_t above = vdupq_n_u16(0);
            for (size_t half = 0; half < 2; ++half) {
                const int16x8_t evens = finish(even[q][half], plan, query, factor_bias + 8 * half);
                const int16x8_t odds = finish(odd[q][half], plan, query, factor_bias + 16 + 8 * half);
                above = vorrq_u16(above, vorrq_u16(vcgtq_s16(evens, floor), vcgtq_s16(odds, floor)));
                vst1q_s16(scores[0] + 8 * half, evens);
                vst1q_s16(scores[1] + 8 * half, odds);
            }
            if (!vmaxvq_u16(above)) continue;
            for (size_t lane = 0; lane < kBlock; ++lane) {
                const int16_t score = scores[lane & 1][lane >> 1];
                if (score > query.floor && ids[lane] != kNoClass)
                    query.kept[query.count++] = best_first_key(score, ids[lane]);
            }
        }
    }
    return end;
}

}  // namespace
}  // namespace manyclass::MANYCLASS_ISA
