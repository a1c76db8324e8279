#include "sketch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "q15.h"

namespace manyclass {
namespace {

constexpr double kBiasShare = 16384;  // the most a bias may take of the 16-bit range

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
    const float unit = 1.0f / static_cast<float>(width_);
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
    const float magnitude = k.sum_magnitudes(z, bits_);
    out.factor = magnitude > 0 ? k.sum_squares(residual.data(), features_) / magnitude : 0.0f;
    if (!std::isfinite(out.factor)) out.factor = 0.0f;
    out.code.assign(code_bytes(), 0);
    for (size_t i = 0; i < bits_; ++i) out.code[i / 8] |= static_cast<uint8_t>((z[i] >= 0) << (i % 8));
}

void Sketcher::encode_query(const float* x, double factor_scale, double bias_scale, bool flat, SketchQuery& out) const {
    const Kernels& k = kernels();
    thread_local std::vector<int8_t> levels;
    levels.resize(bits_);
    const float* z = rotate(x, nullptr);
    const float largest = k.largest_magnitude(z, bits_);
    if (largest < 1e-30f) {
        std::fill(levels.begin(), levels.end(), int8_t{0});
    } else {
        k.query_levels(z, bits_, static_cast<float>(kQueryLevels) / largest, levels.data());
    }
    const double sketch_unit = factor_scale * (static_cast<double>(largest) / kQueryLevels);
    // A bias of the largest size, in score units, as a fraction of the 16-bit range.
    const double wanted_beta = sketch_unit > 0 ? bias_scale * std::ldexp(1.0, gain_) / sketch_unit / kQ15One : 1e300;
    if (bias_scale <= 0) {
        out.alpha = 32767, out.beta = 0;
    } else if (wanted_beta <= kBiasShare / kQ15One) {
        out.alpha = 32767, out.beta = to_q15(wanted_beta);
    } else {
        out.alpha = to_q15(kBiasShare / kQ15One / wanted_beta), out.beta = static_cast<int16_t>(kBiasShare);
    }
    int magnitudes = 0;
    for (const int8_t level : levels) magnitudes += level < 0 ? -level : level;
    out.reach = q15_product(magnitudes * (1 << gain_), out.alpha);
    flat ? fill_tables(levels.data(), out) : fill_planes(levels.data(), out);
}

void Sketcher::fill_tables(const int8_t* levels, SketchQuery& out) const {
    out.tables.resize(bits_ * 4);
    for (size_t group = 0; group < bits_ / 4; ++group) {
        uint8_t* table = out.tables.data() + group * 16;
        const int8_t* level = levels + group * 4;
        table[0] = static_cast<uint8_t>(4 * kQueryLevels - (level[0] + level[1] + level[2] + level[3]));
        for (unsigned bit = 0; bit < 4; ++bit)
            for (unsigned low = 0; low < (1u << bit); ++low)
                table[(1u << bit) | low] = static_cast<uint8_t>(table[low] + 2 * level[bit]);
    }
}

void Sketcher::fill_planes(const int8_t* levels, SketchQuery& out) const {
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
