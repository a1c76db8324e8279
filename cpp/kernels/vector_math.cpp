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

constexpr size_t kWidth = sizeof(floats) / sizeof(float);

// The steps of the transform within one register: in every other run of h lanes the difference, else the sum.
#if defined(__AVX2__)
inline floats within(floats v) {
    v = floats{v[4], v[5], v[6], v[7], v[0], v[1], v[2], v[3]} + v * floats{1, 1, 1, 1, -1, -1, -1, -1};
    v = floats{v[2], v[3], v[0], v[1], v[6], v[7], v[4], v[5]} + v * floats{1, 1, -1, -1, 1, 1, -1, -1};
    return floats{v[1], v[0], v[3], v[2], v[5], v[4], v[7], v[6]} + v * floats{1, -1, 1, -1, 1, -1, 1, -1};
}
#else
inline floats within(floats v) {
    v = floats{v[2], v[3], v[0], v[1]} + v * floats{1, 1, -1, -1};
    return floats{v[1], v[0], v[3], v[2]} + v * floats{1, -1, 1, -1};
}
#endif

}  // namespace

float largest_magnitude(const float* x, size_t n) {
    floats largest[4] = {};
    size_t i = 0;
    for (; i + 4 * kWidth <= n; i += 4 * kWidth)
        for (size_t part = 0; part < 4; ++part) {
            const floats v = load<floats>(x + i + kWidth * part), m = v < 0 ? -v : v;
            largest[part] = m > largest[part] ? m : largest[part];
        }
    float out = 0;
    for (; i < n; ++i) out = magnitude(x[i]) > out ? magnitude(x[i]) : out;
    for (const floats& part : largest)
        for (size_t lane = 0; lane < kWidth; ++lane) out = part[lane] > out ? part[lane] : out;
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
        case RowType::f16: {
            const auto* half = static_cast<const uint16_t*>(row);
            size_t i = 0;
#if defined(MANYCLASS_NEON)
            for (; i + 4 <= n; i += 4) vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half + i))));
#elif defined(__F16C__)
            for (; i + 8 <= n; i += 8)
                _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half + i))));
#endif
            for (; i < n; ++i) out[i] = half_to_float(half[i]);
            break;
        }
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
    size_t h = n / 2;
    for (; h >= 2 * kWidth; h /= 4)  // two steps in one pass over memory
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h / 2; j += kWidth) {
                const floats a = load<floats>(x + j), b = load<floats>(x + j + h / 2);
                const floats c = load<floats>(x + j + h), d = load<floats>(x + j + h + h / 2);
                const floats ac = a + c, bd = b + d, ca = a - c, db = b - d;
                store(x + j, ac + bd);
                store(x + j + h / 2, ac - bd);
                store(x + j + h, ca + db);
                store(x + j + h + h / 2, ca - db);
            }
    if (h == kWidth)
        for (size_t i = 0; i < n; i += 2 * kWidth) {
            const floats a = load<floats>(x + i), b = load<floats>(x + i + kWidth);
            store(x + i, a + b);
            store(x + i + kWidth, a - b);
        }
    if (n >= kWidth) {
        for (size_t i = 0; i < n; i += kWidth) store(x + i, within(load<floats>(x + i)));
        return;
    }
    for (; h; h /= 2)
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
