// Whole-vector reductions and the Hadamard transform, in a fixed order of additions so that every build agrees.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

constexpr size_t kLanes = 16;

// Sixteen running sums, folded 8+8, 4+4, 2+2, 1+1: the order that _reference/vector_math.py spells out.
template <class Term>
double lane_sum(size_t n, Term term) {
    double sums[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
    for (size_t lane = 0; i < n; ++i, ++lane) sums[lane] += term(i);
    for (size_t half = kLanes / 2; half; half /= 2)
        for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    return sums[0];
}

inline float magnitude(float x) {
    return x < 0 ? -x : x;
}

inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 31, fraction = half & 1023u, bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | (fraction << 13);
    } else if (exponent) {
        bits = sign | ((exponent + 112) << 23) | (fraction << 13);
    } else {
        const float tiny = static_cast<float>(fraction) * 5.9604644775390625e-08f;  // 2^-24
        std::memcpy(&bits, &tiny, sizeof bits);
        bits |= sign;
    }
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
}

template <int h>
inline f32x8 butterfly(f32x8 v);
template <>
inline f32x8 butterfly<4>(f32x8 v) {
    const f32x8 swapped = {v[4], v[5], v[6], v[7], v[0], v[1], v[2], v[3]};
    return swapped + v * f32x8{1, 1, 1, 1, -1, -1, -1, -1};
}
template <>
inline f32x8 butterfly<2>(f32x8 v) {
    const f32x8 swapped = {v[2], v[3], v[0], v[1], v[6], v[7], v[4], v[5]};
    return swapped + v * f32x8{1, 1, -1, -1, 1, 1, -1, -1};
}
template <>
inline f32x8 butterfly<1>(f32x8 v) {
    const f32x8 swapped = {v[1], v[0], v[3], v[2], v[5], v[4], v[7], v[6]};
    return swapped + v * f32x8{1, -1, 1, -1, 1, -1, 1, -1};
}

}  // namespace

float largest_magnitude(const float* x, size_t n) {
    float largest[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (size_t lane = 0; lane < kLanes; ++lane) {
            const float m = magnitude(x[i + lane]);
            largest[lane] = m > largest[lane] ? m : largest[lane];
        }
    float out = 0;
    for (; i < n; ++i) out = magnitude(x[i]) > out ? magnitude(x[i]) : out;
    for (float m : largest) out = m > out ? m : out;
    return out;
}

double sum_squares(const float* x, size_t n) {
    return lane_sum(n, [x](size_t i) { return static_cast<double>(x[i]) * x[i]; });
}

double sum_magnitudes(const float* x, size_t n) {
    return lane_sum(n, [x](size_t i) { return static_cast<double>(magnitude(x[i])); });
}

void load_row(const void* row, RowType type, size_t n, float* out) {
    switch (type) {
        case RowType::f32:
            std::memcpy(out, row, n * sizeof(float));
            break;
        case RowType::f64:
            for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(static_cast<const double*>(row)[i]);
            break;
        case RowType::f16:
            for (size_t i = 0; i < n; ++i) out[i] = half_to_float(static_cast<const uint16_t*>(row)[i]);
            break;
        case RowType::bf16:
            for (size_t i = 0; i < n; ++i) {
                const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(row)[i]) << 16;
                std::memcpy(out + i, &bits, sizeof bits);
            }
            break;
    }
}

// Unnormalised Walsh-Hadamard transform in place; n is a power of two.
void hadamard(float* x, size_t n) {
    for (size_t h = n / 2; h >= 8; h /= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; j += 8) {
                const f32x8 a = load<f32x8>(x + j), b = load<f32x8>(x + j + h);
                store(x + j, a + b);
                store(x + j + h, a - b);
            }
    if (n >= 8) {
        for (size_t i = 0; i < n; i += 8) store(x + i, butterfly<1>(butterfly<2>(butterfly<4>(load<f32x8>(x + i)))));
        return;
    }
    for (size_t h = n / 2; h; h /= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; ++j) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
}

void multiply(float* x, const float* y, size_t n) {
    for (size_t i = 0; i < n; ++i) x[i] *= y[i];
}

void query_levels(const float* z, size_t n, float scale, int8_t* out) {
    constexpr float shift = 12582912.0f;
    for (size_t i = 0; i < n; ++i) {
        const float scaled = z[i] * scale + shift;
        out[i] = static_cast<int8_t>(static_cast<int32_t>(scaled - shift));
    }
}

}  // namespace manyclass::MANYCLASS_ISA
