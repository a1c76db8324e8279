#include "balance.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "wide_score.h"

namespace manyclass {
namespace {

// A feature is an integer up to so much where it is multiplied.
constexpr int kQueryFeature = 127, kRowFeature = 2047;
constexpr double kVanishing = 1e-60;  // a vector below that counts as zero

}  // namespace

Balance::Balance(const Parts& parts)
    : features_(parts.features),
      directions_(parts.directions),
      mean_(parts.mean, parts.mean + features_),
      centre_(parts.centre, parts.centre + features_),
      scales_(parts.scales, parts.scales + features_),
      query_units_(parts.query_units, parts.query_units + directions_),
      row_units_(parts.row_units, parts.row_units + directions_ + 1),
      query_levels_(directions_, features_),
      row_high_(directions_ + 1, features_),
      row_low_(directions_ + 1, features_) {
    for (size_t i = 0; i < directions_; ++i)
        for (size_t j = 0; j < features_; ++j) query_levels_.set(i, j, parts.query_levels[i * features_ + j]);
    for (size_t i = 0; i <= directions_; ++i)
        for (size_t j = 0; j < features_; ++j) {
            const int level = parts.row_levels[i * features_ + j], high = (level + 64) >> 7;
            row_high_.set(i, j, static_cast<int8_t>(high));
            row_low_.set(i, j, static_cast<int8_t>(level - 128 * high));
        }
}

double Balance::levels(const std::vector<double>& x, int most, int16_t* out) const {
    double largest = 0;
    for (size_t i = 0; i < features_; ++i) largest = std::max(largest, std::fabs(x[i]));
    std::fill(out, out + query_levels_.width(), int16_t{0});
    if (largest < kVanishing) return 0;
    const double per_unit = most / largest;
    constexpr double shift = 6755399441055744.0;  // rounds to the nearest whole number, ties to even, and vectorises
    for (size_t i = 0; i < features_; ++i)
        out[i] = static_cast<int16_t>(static_cast<int32_t>((x[i] * per_unit + shift) - shift));
    return largest / most;
}

void Balance::map_queries(const float* queries, size_t count, size_t begin, size_t end, float* out) const {
    thread_local std::vector<double> moved;
    thread_local std::vector<int16_t> whole;
    thread_local std::vector<int32_t> dots;
    const size_t padded = query_levels_.width();
    moved.resize(features_), whole.resize(kScanTile * padded),
        dots.resize(kScanTile * std::max<size_t>(1, directions_));
    const int16_t* vectors[kScanTile];
    int32_t* products[kScanTile];
    double units[kScanTile];
    for (size_t q = 0; q < count; ++q) {
        const float* x = queries + q * features_;
        for (size_t i = 0; i < features_; ++i) moved[i] = (static_cast<double>(x[i]) - mean_[i]) / scales_[i];
        if (!directions_)
            for (size_t i = begin; i < end; ++i) out[q * features_ + i] = nearest_float(moved[i]);
        else
            units[q] = levels(moved, kQueryFeature, whole.data() + q * padded);
        vectors[q] = whole.data() + q * padded, products[q] = dots.data() + q * directions_;
    }
    if (!directions_) return;
    kernels().cell_dots(query_levels_.rows(), begin, end, vectors, count, products);
    for (size_t q = 0; q < count; ++q)
        for (size_t i = begin; i < end; ++i)
            out[q * directions_ + i] = nearest_float(products[q][i] * (units[q] * query_units_[i]));
}

double Balance::map_row(const float* row, float* out) const {
    thread_local std::vector<double> moved;
    thread_local std::vector<int16_t> whole;
    thread_local std::vector<int32_t> dots;
    const size_t maps = directions_ + 1, padded = row_high_.width();
    moved.resize(features_), whole.resize(2 * padded), dots.resize(4 * maps);
    for (size_t i = 0; i < features_; ++i) moved[i] = (static_cast<double>(row[i]) - centre_[i]) * scales_[i];
    if (!directions_) std::transform(moved.begin(), moved.end(), out, nearest_float);
    const double unit = levels(moved, kRowFeature, whole.data());
    // Both factors are more than the kernel takes: a feature is 64 a + b, an element of the matrix 128 high + low.
    for (size_t i = 0; i < features_; ++i) {
        const int level = whole[i], a = (level + 32) >> 6;
        whole[i] = static_cast<int16_t>(a), whole[padded + i] = static_cast<int16_t>(level - 64 * a);
    }
    std::fill(whole.begin() + static_cast<ptrdiff_t>(padded + features_), whole.end(), int16_t{0});
    const int16_t* vectors[2] = {whole.data(), whole.data() + padded};
    int32_t *high[2] = {dots.data(), dots.data() + maps}, *low[2] = {dots.data() + 2 * maps, dots.data() + 3 * maps};
    kernels().cell_dots(row_high_.rows(), 0, maps, vectors, 2, high);
    kernels().cell_dots(row_low_.rows(), 0, maps, vectors, 2, low);
    const auto product = [&](size_t i) {
        const int64_t sum = 128 * (int64_t{64} * high[0][i] + high[1][i]) + (int64_t{64} * low[0][i] + low[1][i]);
        return static_cast<double>(sum) * (unit * row_units_[i]);
    };
    for (size_t i = 0; i < directions_; ++i) out[i] = nearest_float(product(i));
    return product(directions_);
}

}  // namespace manyclass
