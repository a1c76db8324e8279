#include "sketch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "q15.h"
#include "wide_score.h"

namespace manyclass {
namespace {

constexpr double kBiasShare = 16384;  // the most a bias may take of the 16-bit range
constexpr int kMostScore = 32766;
// The two transforms sum up to width^2 elements before they are scaled back: huge ones are shrunk first.
constexpr float kHuge = 0x1p80f, kShrink = 0x1p-64f;

}  // namespace

Sketcher::Sketcher(size_t features, size_t bits, size_t width, const float* signs)
    : features_(features),
      bits_(bits),
      width_(width),
      chunks_((bits + width - 1) / width),
      signs_(signs, signs + chunks_ * 2 * width),
      centre_(features, 0.0f) {
    while ((static_cast<size_t>(kQueryLevels) * bits_ << (gain_ + 1)) <= 32767) ++gain_;
}

const float* Sketcher::rotate(const float* x, const float* minus) const {
    const Kernels& k = kernels();
    thread_local std::vector<float> out, source;
    source.resize(width_);
    for (size_t i = 0; i < features_; ++i) source[i] = minus ? x[i] - minus[i] : x[i];
    std::fill(source.begin() + static_cast<std::ptrdiff_t>(features_), source.end(), 0.0f);
    out.resize(chunks_ * width_);
    float unit = 1.0f / static_cast<float>(width_);
    if (k.largest_magnitude(source.data(), features_) > kHuge) {
        for (float& value : source) value *= kShrink;
        unit /= kShrink;
    }
    for (size_t chunk = 0; chunk < chunks_; ++chunk) {
        float* part = out.data() + chunk * width_;
        const float* signs = signs_.data() + chunk * 2 * width_;
        std::memcpy(part, source.data(), width_ * sizeof(float));
        k.multiply(part, signs, width_);
        k.hadamard(part, width_);
        k.multiply(part, signs + width_, width_);
        k.hadamard(part, width_);
        for (size_t i = 0; i < width_; ++i) part[i] *= unit;
    }
    return out.data();
}

void Sketcher::encode_row(const float* row, SketchRow& out) const {
    const Kernels& k = kernels();
    thread_local std::vector<float> residual;
    residual.resize(features_);
    for (size_t i = 0; i < features_; ++i) residual[i] = row[i] - centre_[i];
    const float* z = rotate(row, centre_.data());
    const double magnitude = k.sum_magnitudes(z, bits_), factor = k.sum_squares(residual.data(), features_) / magnitude;
    out.factor = std::isfinite(factor) ? nearest_float(factor) : 0.0f;
    out.code.assign(code_bytes(), 0);
    for (size_t i = 0; i < bits_; ++i) out.code[i / 8] |= static_cast<uint8_t>((z[i] >= 0) << (i % 8));
}

double Sketcher::levels_of(const float* x, int8_t* levels) const {
    const Kernels& k = kernels();
    const float* z = rotate(x, nullptr);
    const float largest = k.largest_magnitude(z, bits_);
    if (largest < kTiniest)
        std::fill(levels, levels + bits_, int8_t{0});
    else
        k.query_levels(z, bits_, static_cast<float>(kQueryLevels) / largest, levels);
    return static_cast<double>(largest) / kQueryLevels;
}

void Sketcher::encode_query(const float* x, const SketchScales& scales, ScannedQuery& out) const {
    thread_local std::vector<int8_t> levels;
    levels.resize(bits_);
    out.unit = levels_of(x, levels.data());
    const double sketch_unit = scales.factor * out.unit, shift = std::ldexp(1.0, gain_);
    // A bias of the largest size, in score units, as a fraction of the 16-bit range.
    const double wanted_beta = sketch_unit > 0 ? scales.bias * shift / sketch_unit / kQ15One : 1e300;
    const bool biases_rule = scales.bias > 0 && wanted_beta > kBiasShare / kQ15One;
    int alpha = biases_rule ? to_q15(kBiasShare / kQ15One / wanted_beta) : 32767;
    int beta = biases_rule ? static_cast<int>(kBiasShare) : scales.bias > 0 ? to_q15(wanted_beta) : 0;
    int magnitudes = 0;
    for (const int8_t level : levels) magnitudes += level < 0 ? -level : level;
    // No score may reach the end of the 16-bit range: beyond it there is no order.
    if (const int most = q15_product(magnitudes * (1 << gain_), alpha) + beta; most > kMostScore)
        alpha = alpha * kMostScore / most, beta = beta * kMostScore / most;
    out.alpha = static_cast<int16_t>(alpha), out.beta = static_cast<int16_t>(beta);
    out.reach = q15_product(magnitudes * (1 << gain_), alpha);
    out.per_unit = biases_rule ? beta / scales.bias : sketch_unit > 0 ? shift * alpha / kQ15One / sketch_unit : 1e30;
    out.tables.resize(kernels().scan_table_bytes(bits_));
    kernels().fill_scan_tables(levels.data(), bits_, out.tables.data());
}

void Sketcher::encode_query(const float* x, SketchQuery& out) const {
    thread_local std::vector<int8_t> levels;
    levels.resize(bits_);
    out.unit = levels_of(x, levels.data());
    const size_t plane_bytes = (code_bytes() + 7) & ~size_t{7};
    out.planes.assign(4 * plane_bytes, 0);
    out.level_sum = 0;
    for (size_t i = 0; i < bits_; ++i) {
        out.level_sum += levels[i];
        for (unsigned p = 0; p < 4; ++p)
            out.planes[p * plane_bytes + i / 8] |=
                static_cast<uint8_t>((((levels[i] + kQueryLevels) >> p) & 1) << (i % 8));
    }
}

}  // namespace manyclass
