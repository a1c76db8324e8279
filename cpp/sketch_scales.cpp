#include "sketch_scales.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "q15.h"

namespace manyclass {
namespace {

constexpr double kSlack = 2;  // scales reach so far beyond the largest value that is no outlier

// How many classes may be outside.
size_t allowed(size_t classes) {
    return classes / 128 + 8;
}

// How many classes are above the one that the scales are taken from: those that may be outside, or half of a few.
size_t rank_of(size_t classes) {
    return std::min(allowed(classes), classes / 2);
}

// The next power of two above the magnitude.
double scale_above(double magnitude) {
    int exponent;
    std::frexp(magnitude, &exponent);
    return magnitude > 0 ? std::ldexp(1.0, exponent) : 0;
}

template <class Before>
double first_but(std::vector<float>& values, size_t rank, Before before) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(values.begin(), at, values.end(), before);
    return *at;
}

// A bias beyond what the sketch could make up for, with a query whose elements are about 1, need not be told from
// others like it.
double bias_that_matters(double factor_scale, size_t bits) {
    return kSlack * factor_scale * static_cast<double>(bits);
}

}  // namespace

SketchWeights to_weights(const SketchScales& scales, float factor, float bias) {
    return {scales.factor > 0 ? to_q15(factor / scales.factor) : int16_t{0}, bias < -scales.bias ? kSunk
                                                                             : scales.bias > 0
                                                                                 ? to_q15(bias / scales.bias)
                                                                                 : int16_t{0}};
}

SketchScales choose_scales(std::vector<float>& factors, std::vector<float>& biases, size_t bits) {
    if (factors.empty()) return {};
    const size_t rank = rank_of(factors.size());
    const double longest = *std::max_element(factors.begin(), factors.end());
    const double factor = scale_above(std::min(longest, kSlack * first_but(factors, rank, std::greater<>())));
    double largest = 0;
    for (const float bias : biases) largest = std::max(largest, std::fabs(static_cast<double>(bias)));
    const double high = kSlack * std::fabs(first_but(biases, rank, std::greater<>()));
    const double low =
        std::min(kSlack * std::fabs(first_but(biases, rank, std::less<>())), bias_that_matters(factor, bits));
    return {factor, scale_above(std::min(largest, std::max(high, low)))};
}

void SketchCensus::change(const SketchWeights& weights, bool outlier, size_t step) {
    visible += step;
    if (outlier) outliers += step;
    if (weights.factor > 32768 / 64) large += step;
    if (weights.bias > 32768 / 32) high += step;
    if (weights.bias < -32768 / 32) low += step;
    if (weights.bias == kSunk) sunk += step;
}

bool SketchCensus::suits(const SketchScales& scales, size_t bits) const {
    const size_t rank = rank_of(visible), many = 2 * allowed(visible);
    const double matters = bias_that_matters(scales.factor, bits);
    const bool factors_fell = scales.factor > 0 && large <= rank;
    const bool biases_fell = scales.bias > 0 && high <= rank && low <= rank;
    const bool biases_sank = sunk && (visible - sunk <= rank || (sunk > many && scales.bias < matters));
    return !visible || !(outliers > many || factors_fell || biases_fell || biases_sank);
}

}  // namespace manyclass
