#include "cells.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "wide_score.h"

namespace manyclass {
namespace {

constexpr double kMostExtra = 1 << 30;  // leaves the sum of products the other half of 32 bits

// Adding and taking away this rounds to the nearest whole number, ties to even, and vectorises; nearbyint is a call.
int32_t rounded(double x) {
    constexpr double shift = 6755399441055744.0;
    return static_cast<int32_t>((x + shift) - shift);
}

}  // namespace

Cells::Cells(size_t features, size_t count)
    : features_(features), count_(count), centres_(count, features), biases_(count, 0.0), offsets_(count, 0.0) {}

void Cells::set(const int8_t* centres, const float* biases, double scale) {
    scale_ = scale;
    for (size_t cell = 0; cell < count_; ++cell) {
        int64_t squares = 0;
        for (size_t i = 0; i < features_; ++i) {
            const int8_t level = centres[cell * features_ + i];
            centres_.set(cell, i, level);
            squares += int64_t{level} * level;
        }
        const double bias = biases[cell];
        biases_[cell] = bias;
        offsets_[cell] = (static_cast<double>(squares) * (scale * scale) + bias * bias) * 0.5;
    }
    const auto [low, high] = std::minmax_element(biases_.begin(), biases_.end());
    lowest_bias_ = *low, highest_bias_ = *high;
}

double Cells::levels(const float* x, int16_t* out) const {
    const Kernels& k = kernels();
    thread_local std::vector<int8_t> narrow;
    narrow.resize(centres_.width());
    std::fill(out, out + centres_.width(), int16_t{0});
    const float largest = k.largest_magnitude(x, features_);
    if (largest < kTiniest) return 0;
    k.query_levels(x, features_, static_cast<float>(kCellLevels) / largest, narrow.data());
    std::copy_n(narrow.begin(), features_, out);
    return static_cast<double>(largest) / kCellLevels;
}

void Cells::nearest(const float* residuals, const float* biases, size_t count, uint16_t* out, float* distances) const {
    thread_local std::vector<int16_t> whole;
    thread_local std::vector<int32_t> dots;
    whole.resize(kScanTile * centres_.width()), dots.resize(kScanTile * count_);
    const int16_t* vectors[kScanTile];
    int32_t* products[kScanTile];
    double units[kScanTile];
    for (size_t v = 0; v < count; ++v) {
        vectors[v] = whole.data() + v * centres_.width();
        products[v] = dots.data() + v * count_;
        units[v] = levels(residuals + v * features_, whole.data() + v * centres_.width()) * scale_;
    }
    kernels().cell_dots(centres_.rows(), 0, count_, vectors, count, products);
    for (size_t v = 0; v < count; ++v) {
        // |v - c|^2 is smallest where v.c - |c|^2 / 2 is largest.
        const double bias = std::clamp(static_cast<double>(biases[v]), lowest_bias_, highest_bias_);
        const size_t best =
            kernels().nearest_cell(products[v], units[v], bias, biases_.data(), offsets_.data(), count_);
        out[v] = static_cast<uint16_t>(best);
        if (!distances) continue;
        const double product = static_cast<double>(products[v][best]) * units[v];
        const double length = kernels().sum_squares(residuals + v * features_, features_);
        const double centre = 2 * offsets_[best] - biases_[best] * biases_[best];
        distances[v] = nearest_float(std::sqrt(std::max(0.0, (length - 2 * product) + centre)));
    }
}

void Cells::scores(const float* const* queries, size_t count, const float* radii, const double* top_biases,
                   size_t begin, size_t end, int32_t* const* out) const {
    thread_local std::vector<int16_t> whole;
    whole.resize(kScanTile * centres_.width());
    const int16_t* vectors[kScanTile];
    double units[kScanTile];
    for (size_t q = 0; q < count; ++q) {
        vectors[q] = whole.data() + q * centres_.width();
        units[q] = levels(queries[q], whole.data() + q * centres_.width()) * scale_;
    }
    kernels().cell_dots(centres_.rows(), begin, end, vectors, count, out);
    const double widest = *std::max_element(radii, radii + count_);
    double largest_bias = 0;
    for (size_t cell = 0; cell < count_; ++cell)
        largest_bias = std::max({largest_bias, std::fabs(biases_[cell]), std::fabs(top_biases[cell])});
    for (size_t q = 0; q < count; ++q) {
        // A class at distance r in a random direction is above its centre by about r |x| / sqrt(features).
        const double spread =
            std::sqrt(kernels().sum_squares(queries[q], features_)) / std::sqrt(static_cast<double>(features_));
        const double unit = std::max(units[q], (largest_bias + spread * widest) / kMostExtra);
        if (unit < 1e-300) continue;  // nothing to add, or a file with an absurd scale
        const double per_unit = 1 / unit, shrink = units[q] / unit;
        for (size_t cell = begin; shrink < 1 && cell < end; ++cell) out[q][cell] = rounded(out[q][cell] * shrink);
        for (size_t cell = begin; cell < end; ++cell)
            out[q][cell] += rounded(
                std::max(biases_[cell] + spread * static_cast<double>(radii[cell]), top_biases[cell]) * per_unit);
    }
}

}  // namespace manyclass
