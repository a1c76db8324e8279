// Rows to bfloat16 by stochastic rounding (formula in row_update.h): whole numbers only, the same on every build.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

// Sixteen random bits for a column.
inline uint32_t noise(uint64_t key, uint32_t column) {
    uint32_t x = static_cast<uint32_t>(key) + column * 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x ^= static_cast<uint32_t>(key >> 32);
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x >> 16;
}

inline uint16_t rounded(uint32_t bits, uint32_t noise) {
    constexpr uint32_t largest = 0x7f7f0000u, infinity = 0x7f800000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t up = magnitude < largest ? noise : 0u, quiet = magnitude > infinity ? 0x40u : 0u;
    return static_cast<uint16_t>(((bits + up) >> 16) | quiet);
}

}  // namespace

void round_row(const float* __restrict row, size_t first, size_t n, uint64_t key, uint16_t* __restrict out) {
    const auto column = static_cast<uint32_t>(first), count = static_cast<uint32_t>(n);  // rows have far fewer columns
    for (uint32_t i = 0; i < count; ++i) out[i] = rounded(__builtin_bit_cast(uint32_t, row[i]), noise(key, column + i));
}

}  // namespace manyclass::MANYCLASS_ISA
