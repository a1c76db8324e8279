// Winner-take-all codes: with the value in a key's high bits and 15 - position in its low four, max is argmax and
// ties go to the lowest position. Sixteen neighbouring bands read sixteen neighbouring elements: no gathers.
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

constexpr size_t kLanes = 16;

template <class Key>
struct Lanes;
template <>
struct Lanes<int16_t> {
    using Vector = shorts;
};
template <>
struct Lanes<int32_t> {
#if defined(__AVX512F__)
    using Vector = i32x16;
#else
    using Vector = ints;
#endif
};

template <class Vector>
inline Vector larger(Vector a, Vector b) {
    return a > b ? a : b;
}
template <class Vector>
inline Vector smaller(Vector a, Vector b) {
    return a > b ? b : a;
}

template <class Key>
void winners(const WindowPlan& plan, const Key* copies, uint32_t* buckets, const WinnerDetail* detail) {
    using Vector = typename Lanes<Key>::Vector;
    constexpr size_t width = sizeof(Vector) / sizeof(Key);
    const size_t bands = plan.groups * kLanes;
    for (size_t group = 0; group < plan.groups; ++group) {
        const Key* copy = copies + (group % plan.copies) * plan.copy_stride;
        const uint32_t* offsets = plan.offsets + group * plan.planes * plan.window;
        for (size_t lane = 0; lane < kLanes; lane += width) {
            uint32_t bucket[width] = {};
            uint8_t silent[width] = {};
            for (size_t plane = 0; plane < plan.planes; ++plane) {
                const uint32_t* offset = offsets + plane * plan.window;
                Vector best = load<Vector>(copy + offset[0] + lane) | static_cast<Key>(15);
                const unsigned shift = static_cast<unsigned>(plane * plan.code_bits);
                Key winner[width];
                if (!detail) {
                    for (size_t i = 1; i < plan.window; ++i)
                        best = larger(best, load<Vector>(copy + offset[i] + lane) | static_cast<Key>(15 - i));
                    store(winner, best);
                } else {
                    Vector next = load<Vector>(copy + offset[1] + lane) | static_cast<Key>(14);
                    Vector second = smaller(best, next);
                    best = larger(best, next);
                    for (size_t i = 2; i < plan.window; ++i) {
                        next = load<Vector>(copy + offset[i] + lane) | static_cast<Key>(15 - i);
                        second = larger(second, smaller(best, next));
                        best = larger(best, next);
                    }
                    Key runner_up[width];
                    store(winner, best);
                    store(runner_up, second);
                    const size_t at = plane * bands + group * kLanes + lane;
                    for (size_t h = 0; h < width; ++h) {
                        detail->best[at + h] = static_cast<uint8_t>(15 - (winner[h] & 15));
                        detail->second[at + h] = static_cast<uint8_t>(15 - (runner_up[h] & 15));
                        const int64_t ahead = (static_cast<int64_t>(winner[h]) >> 4) - (runner_up[h] >> 4);
                        detail->margin[at + h] = static_cast<uint16_t>(ahead > 65535 ? 65535 : ahead);
                        silent[h] |= (winner[h] >> 4) == 0 && (runner_up[h] >> 4) == 0;
                    }
                }
                for (size_t h = 0; h < width; ++h) bucket[h] |= static_cast<uint32_t>(15 - (winner[h] & 15)) << shift;
            }
            std::memcpy(buckets + group * kLanes + lane, bucket, sizeof bucket);
            if (detail) std::memcpy(detail->silent + group * kLanes + lane, silent, sizeof silent);
        }
    }
}

}  // namespace

void fast_winners(const WindowPlan& plan, const int16_t* copies, uint32_t* buckets, const WinnerDetail* detail) {
    winners<int16_t>(plan, copies, buckets, detail);
}

void exact_winners(const WindowPlan& plan, const int32_t* copies, uint32_t* buckets, const WinnerDetail* detail) {
    winners<int32_t>(plan, copies, buckets, detail);
}

// Nearest integer, halves to even, without a library call: adding 1.5 * 2^23 leaves no room for a fraction.
void fast_keys(const float* x, size_t n, float scale, int16_t* out) {
    constexpr float shift = 12582912.0f;
    for (size_t i = 0; i < n; ++i) {
        const float scaled = x[i] * scale + shift;
        out[i] = static_cast<int16_t>(static_cast<int32_t>(scaled - shift) * 16);
    }
}

// The float's bits, reordered so that integers compare as the floats do; the last four bits make room for a position.
void exact_keys(const float* x, size_t n, int32_t* out) {
    for (size_t i = 0; i < n; ++i) {
        const float value = x[i] + 0.0f;  // -0 becomes +0: they are equal and must tie
        int32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        out[i] = (bits ^ ((bits >> 31) & 0x7fffffff)) & ~15;
    }
}

}  // namespace manyclass::MANYCLASS_ISA
