// The length of a vector, infinite where a float cannot hold it.
#pragma once
#include <cmath>
#include <limits>

#include "kernels.h"

namespace manyclass {

inline float vector_norm(const float* x, size_t n) {
    const double norm = std::sqrt(kernels().sum_squares(x, n));
    return norm > std::numeric_limits<float>::max() ? std::numeric_limits<float>::infinity() : static_cast<float>(norm);
}

}  // namespace manyclass
