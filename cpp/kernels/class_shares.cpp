// From logits to probabilities, one class's logits of many examples at a time: what a loss over shared classes does
// between its matrix products. Lengths are multiples of kPanel; nothing is contracted, so all builds give the same
// bits.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

constexpr size_t kWidth = sizeof(floats) / sizeof(float), kVectors = kPanel / kWidth;

// e^x for x <= 0, within two units in the last place; below -87, where float32 thins out, 0. NaN stays.
inline floats exponential(floats x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, in the low bits
    const floats shifted = x * 1.44269504f + kRound;
    const floats whole = shifted - kRound;
    const floats rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;  // the first product is exact
    floats sum = 1.9875691500e-4f * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    const floats value = (sum * rest) * rest + (rest + 1.0f);
    const floats power = (floats)(((ints)shifted + (127 - 0x4b400000)) << 23);
    return x < -87.0f ? floats{} : value * power;
}

// log(1 + u) for u in [0, 1], as 2 artanh(u / (2 + u)): small ones keep all their digits.
inline floats log_one_plus(floats u) {
    const floats s = u / (u + 2.0f), square = s * s;
    floats sum = square * 0.2686757f + 0.28233961f;
    sum = sum * square + 0.4000767f;
    sum = sum * square + 0.6666664f;
    return (sum * square) * s + (s + s);
}

// Lanes in order, as kPanel sums that do not depend on how wide a vector is.
struct LaneSums {
    floats parts[kVectors] = {};
    float total() const {
        float lanes[kPanel], sum = 0;
        for (size_t v = 0; v < kVectors; ++v) store(lanes + v * kWidth, parts[v]);
        for (const float lane : lanes) sum += lane;
        return sum;
    }
};

}  // namespace

void finish_logits(float* logits, float bias, float scale, float log_weight, size_t n, float* largest) {
    for (size_t i = 0; i < n; i += kWidth) {
        const floats z = (load<floats>(logits + i) + bias) * scale + log_weight, before = load<floats>(largest + i);
        store(logits + i, z);
        store(largest + i, before >= z ? before : z);
    }
}

void exponentials(float* logits, const float* shift, size_t n, float* sums, float* squares) {
    for (size_t i = 0; i < n; i += kWidth) {
        const floats u = exponential(load<floats>(logits + i) - load<floats>(shift + i));
        store(logits + i, u);
        store(sums + i, load<floats>(sums + i) + u);
        if (squares) store(squares + i, load<floats>(squares + i) + u * u);
    }
}

float softmax_shares(float* values, const float* factors, const float* mass, float spread, size_t n) {
    LaneSums sums;
    for (size_t i = 0; i < n; i += kPanel)
        for (size_t v = 0; v < kVectors; ++v) {
            const size_t at = i + v * kWidth;
            const floats share = load<floats>(values + at) * load<floats>(factors + at);
            sums.parts[v] += share;
            store(values + at, load<floats>(mass + at) * share - spread);
        }
    return sums.total();
}

float logistic_shares(float* logits, float weight, size_t n, float* losses, float* squares) {
    LaneSums sums;
    for (size_t i = 0; i < n; i += kPanel)
        for (size_t v = 0; v < kVectors; ++v) {
            const size_t at = i + v * kWidth;
            const floats z = load<floats>(logits + at), size = z < 0.0f ? z : -z, u = exponential(size);
            const floats positive = z < 0.0f ? floats{} : z;
            const floats share = ((z < 0.0f ? u : floats{} + 1.0f) / (u + 1.0f)) * weight;
            store(losses + at, load<floats>(losses + at) + (positive + log_one_plus(u)) * weight);
            if (squares) store(squares + at, load<floats>(squares + at) + share * share);
            store(logits + at, share);
            sums.parts[v] += share;
        }
    return sums.total();
}

}  // namespace manyclass::MANYCLASS_ISA
