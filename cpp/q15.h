// Fractions as 16-bit integers: 32768 would be 1.0.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace manyclass {

constexpr double kQ15One = 32768;

inline int16_t to_q15(double fraction) {
    return static_cast<int16_t>(std::clamp(std::nearbyint(fraction * kQ15One), -32767.0, 32767.0));
}

// Rounded as the SIMD instruction of the scan does.
inline int16_t q15_product(int a, int b) {
    return static_cast<int16_t>((a * b + 0x4000) >> 15);
}

}  // namespace manyclass
