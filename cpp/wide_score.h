// Numbers of any size made comparable: what the 16-bit scores of the scan cannot hold is scored apart, in doubles.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace manyclass {

inline float nearest_float(double x) {
    constexpr double most = std::numeric_limits<float>::max();
    return static_cast<float>(std::clamp(x, -most, most));
}

// A score as a 32-bit integer of the same order: rounded where it is small, and by the bits of the float beyond.
inline int wide_score(double score) {
    constexpr int edge = 65536;
    const double magnitude = std::fabs(score);
    if (magnitude < edge) return static_cast<int>(std::nearbyint(score));
    const int above = std::bit_cast<int>(nearest_float(magnitude)) - std::bit_cast<int>(static_cast<float>(edge));
    return score < 0 ? -edge - above : edge + above;
}

}  // namespace manyclass
