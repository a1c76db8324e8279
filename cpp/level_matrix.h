// A matrix of whole numbers in [-128, 127] as `cell_dots` reads it: rows padded to a multiple of 16, and the sum of
// each.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace manyclass {

class LevelMatrix {
public:
    LevelMatrix(size_t rows, size_t columns)
        : width_((columns + 15) / 16 * 16), levels_(rows * width_, 0), sums_(rows, 0) {}
    size_t width() const { return width_; }
    size_t bytes() const { return levels_.size() + sums_.size() * sizeof(int32_t); }
    void set(size_t row, size_t column, int8_t level) {
        int8_t& old = levels_[row * width_ + column];
        sums_[row] += level - old;
        old = level;
    }
    LevelRows rows() const { return {levels_.data(), sums_.data(), width_}; }

private:
    size_t width_;
    std::vector<int8_t> levels_;  // [rows][width], zeros at the end of each
    std::vector<int32_t> sums_;
};

}  // namespace manyclass
