// A coarse partition of the classes: each is filed under the nearest of some centres, and a query scans only the cells
// that promise the largest logits: the logit of the centre, and more the farther a class of the cell may be from it.
// Biases are one more coordinate of rows and centres.
//
// Vectors and centres are rounded to whole numbers in [-127, 127]: sums are exact, so cells are the same everywhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "level_matrix.h"

namespace manyclass {

class Cells {
public:
    Cells(size_t features, size_t count);
    size_t count() const { return count_; }
    size_t bytes() const { return centres_.bytes() + 2 * count_ * sizeof(double); }
    // centres [count][features], in units of `scale`; biases [count].
    void set(const int8_t* centres, const float* biases, double scale);
    // The cells of up to kScanTile classes: the centres nearest to (residual, bias); ties go to the lowest. A bias
    // beyond those of all centres counts as the last of them. distances, of the rows alone, may be null.
    void nearest(const float* residuals, const float* biases, size_t count, uint16_t* out, float* distances) const;
    // What the cells begin..end promise up to kScanTile queries, in units that suit the query; out[q][cell].
    // radii [count]: how far the farthest class of each cell is; top_biases [count]: the largest bias in each.
    void scores(const float* const* queries, size_t count, const float* radii, const double* top_biases, size_t begin,
                size_t end, int32_t* const* out) const;

private:
    double levels(const float* x, int16_t* out) const;  // returns the unit they are in
    size_t features_, count_;
    double scale_ = 0, lowest_bias_ = 0, highest_bias_ = 0;
    LevelMatrix centres_;                   // [count][features]
    std::vector<double> biases_, offsets_;  // offsets: half the squared length of a centre
};

}  // namespace manyclass
