// Products of examples with chosen rows of a weight matrix, and their gradients: the inner work of training.
//
// The caller gives the rows of each example. ChosenRows sorts these (example, row) pairs by row, so that each row is
// read once for all the examples that chose it, and is written by one thread: sums do not depend on how many there are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels.h"
#include "row_update.h"

namespace manyclass {

// Rows one after the other, f32 or bf16.
struct DenseRows {
    const void* data;
    size_t count, features;
    RowType type = RowType::f32;
    size_t row_bytes() const { return features * (type == RowType::bf16 ? 2 : 4); }
    const void* row(size_t id) const { return static_cast<const std::byte*>(data) + id * row_bytes(); }
};

// Which rows each example chose.
class ChosenRows {
public:
    // ids [examples][width]: the rows of each example, negative where there is none.
    ChosenRows(const int64_t* ids, size_t examples, size_t width);

    size_t examples() const { return examples_; }
    size_t width() const { return width_; }
    // The distinct rows that were chosen, ascending.
    std::span<const int64_t> rows() const { return rows_; }

    // products [examples][width] = weight[id] . input[example] + bias[id], -inf where there is no id.
    void products(const DenseRows& weight, const float* bias, const float* input, float* out, size_t threads) const;
    // out [rows][features] = sum over the row's pairs of gradient * input; sums [rows] of the gradients alone.
    void row_gradients(const float* gradient, const DenseRows& input, float* out, float* sums, size_t threads) const;
    // The same gradients, each applied to its row at once and never stored. sums as above.
    void update_rows(const float* gradient, const DenseRows& input, const RowRule& rule, const RowsToUpdate& rows,
                     float* sums, size_t threads) const;
    // out [examples][features] = sum over the example's pairs of gradient * weight[id].
    void input_gradients(const float* gradient, const DenseRows& weight, float* out, size_t threads) const;

private:
    float row_gradient(size_t row, const float* gradient, const DenseRows& input, const Kernels& run, float* out) const;
    size_t slice_begin(size_t slice, size_t slices) const;
    size_t examples_, width_;
    std::vector<int64_t> ids_;      // as given
    std::vector<int64_t> rows_;     // distinct, ascending
    std::vector<uint32_t> starts_;  // where a row's slots begin; one more than rows
    std::vector<uint32_t> slots_;   // example * width + column, grouped by row, ascending inside a group
};

}  // namespace manyclass
