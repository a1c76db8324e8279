// A coarse partition of the classes: each is filed under the nearest of some centres, and a query scans only the cells
// that promise the largest logits: the logit of the centre, and more the farther a class of the cell may be from it.
// Biases are one more coordinate of rows and centres.
//
// Vectors and centres are rounded to whole numbers in [-127, 127]: sums are exact, so cells are the same everywhere.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace manyclass {

class Cells {
public:
    Cells(size_t features, size_t count);
    size_t count() const { return count_; }
    size_t bytes() const { return centres_.capacity() + 3 * count_ * sizeof(double); }
    // centres [count][features], in units of `scale`; biases [count].
    void set(const int8_t* centres, const float* biases, double scale);
    // The cells of up to kScanTile classes: the centres nearest to (residual, bias); ties go to the lowest.
    // distances may be null.
    void nearest(const float* residuals, const float* biases, size_t count, uint16_t* out, double* distances) const;
    // The cell's farthest class. A cell never shrinks: where its farthest class went away it is scanned in vain.
    void widen(size_t cell, double distance) { radii_[cell] = std::max(radii_[cell], distance); }
    const std::vector<double>& radii() const { return radii_; }
    void set_radii(const double* radii) { radii_.assign(radii, radii + count_); }
    // What the cells begin..end promise up to kScanTile queries, in units that suit the query; out[q][cell].
    void scores(const float* const* queries, size_t count, size_t begin, size_t end, int32_t* const* out) const;

private:
    double levels(const float* x, int16_t* out) const;  // returns the unit they are in
    size_t features_, width_, count_;
    double scale_ = 0, largest_bias_ = 0;
    std::vector<int8_t> centres_;                   // [count][width]: features rounded up to 16, zeros at the end
    std::vector<double> biases_, offsets_, radii_;  // offsets: half the squared length of a centre
};

}  // namespace manyclass
