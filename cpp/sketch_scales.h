// Which scales suit the factors and biases of some classes, and when they no longer do.
//
// The scan has 16 bits for a factor and for a bias. A scale that covered every class would leave nothing of the others
// where one row is very long or one bias very large. So scales cover all but a few classes: those are outliers, and
// are scored apart (sketch_blocks.h). A bias far below all others is no outlier: it may be cut off, as it cannot win.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sketch.h"

namespace manyclass {

constexpr int16_t kSunk = -32768;  // stands for a bias below -scale; a fraction is never less than -32767

// A factor and a bias as 16-bit fractions of the scales.
struct SketchWeights {
    int16_t factor = 0, bias = 0;
};

SketchWeights to_weights(const SketchScales& scales, float factor, float bias);

inline bool outside(const SketchScales& scales, float factor, float bias) {
    return factor > scales.factor || bias > scales.bias;
}

// The scales for these classes (both arrays are left in another order).
SketchScales choose_scales(std::vector<float>& factors, std::vector<float>& biases, size_t bits);

// What must be known of all visible classes to tell whether their scales still suit them.
struct SketchCensus {
    size_t visible = 0, outliers = 0;
    size_t large = 0;  // factors above 1/64 of the scale
    size_t high = 0;   // biases above 1/32 of the scale
    size_t low = 0;    // biases below -1/32 of the scale
    size_t sunk = 0;

    void add(const SketchWeights& weights, bool outlier) { change(weights, outlier, 1); }
    void take_away(const SketchWeights& weights, bool outlier) { change(weights, outlier, size_t{0} - 1); }
    // False where too many classes are outside the scales, or the scales are many times what they need be. True for
    // scales that were just chosen.
    bool suits(const SketchScales& scales, size_t bits) const;

private:
    void change(const SketchWeights& weights, bool outlier, size_t step);
};

}  // namespace manyclass
