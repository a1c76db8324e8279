// A coarse partition of the classes: each is filed under the nearest of some centres, and a query scans only the cells
// whose centres have the largest logits. A centre has a bias too, the mean of its classes.
//
// Vectors and centres are rounded to whole numbers in [-127, 127]: sums are exact, so cells are the same everywhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace manyclass {

class Cells {
public:
    Cells(size_t features, size_t count);
    size_t count() const { return count_; }
    // centres [count][features], in units of `scale`; biases [count].
    void set(const int8_t* centres, const float* biases, double scale);
    // The cells of up to kScanTile classes: the centres nearest to (residual, bias); ties go to the lowest.
    void nearest(const float* residuals, const float* biases, size_t count, uint16_t* out) const;
    // Logits of the centres begin..end for up to kScanTile queries, in units that suit the query; out[q][cell].
    void scores(const float* const* queries, size_t count, size_t begin, size_t end, int32_t* const* out) const;

private:
    double levels(const float* x, int16_t* out) const;  // returns the unit they are in
    size_t features_, width_, count_;
    double scale_ = 0, bias_unit_ = 0;
    std::vector<int8_t> centres_;  // [count][width]: features rounded up to 16, zeros at the end
    std::vector<double> biases_, offsets_;
};

}  // namespace manyclass
