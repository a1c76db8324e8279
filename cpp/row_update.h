// Updates of single rows: the arithmetic of SGD, Adagrad and AdamW on the rows that a step touched and on no others.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace manyclass {

// One step of an optimizer with all that is the same for every row worked out beforehand. Element by element, every
// operation rounded to float32 in the order written (so that all instruction sets and the NumPy twin agree):
//
//   all      g = scale * gradient
//   sgd      g = g + weight_decay * w                          if weight_decay is not 0
//            m = first_decay * m + first_share * g;  g = m     if first_decay (momentum) is not 0; first_share is
//                                                              1 - dampening; nesterov: g = g + first_decay * m
//            w = w - step * g
//   adagrad  g = g + weight_decay * w                          if weight_decay is not 0
//            s = s + g * g
//            w = w - (step * g) / (sqrt(s) + eps)
//   adam     m = first_decay * m + first_share * g             shares are 1 - beta
//            v = second_decay * v + (second_share * g) * g
//            w = keep * w - (step * m) / (sqrt(v) / correction + eps)
//
// w is the weight; m or s is the first state, v the second. States start at zero: the first momentum of a row is
// first_share * g.
//
// Rows that are kept as bfloat16 are read exactly and written by stochastic rounding: up or down by chance, the nearer
// the likelier, so that a step too small for the format still counts on average (rounding to nearest would lose it
// every time). A finite number stays finite: from bfloat16's largest on it is cut off, not rounded up to infinity. The
// dice are a function of (noise, row, array, column): no generator has a state, and no order matters.
struct RowRule {
    enum Kind : int { sgd = 0, adagrad = 1, adam = 2 };
    Kind kind = sgd;
    float scale = 1;  // -1 climbs instead of descending; 1/n makes a mean of a sum
    float step = 0;   // learning rate; adagrad: after its decay; adam: divided by 1 - beta1^t
    float weight_decay = 0;
    float keep = 1;  // adam: 1 - learning rate * weight decay
    float first_decay = 0, first_share = 1;
    float second_decay = 0, second_share = 1;
    float correction = 1;  // adam: sqrt(1 - beta2^t)
    float eps = 0;
    bool nesterov = false;
    uint64_t noise = 0;  // another one at every step

    bool uses_first() const { return kind != sgd || first_decay != 0; }
    bool uses_second() const { return kind == adam; }
};

// One array of rows, f32 or bf16; null where a rule does not use it.
struct StoredRows {
    void* data = nullptr;
    RowType type = RowType::f32;

    void* row(size_t id, size_t width) const {
        return data ? static_cast<std::byte*>(data) + id * bytes(width) : nullptr;
    }
    size_t bytes(size_t width) const { return width * (type == RowType::bf16 ? 2 : 4); }
};

// What a rule works on: arrays of the same shape (rows, width).
struct RowsToUpdate {
    StoredRows weight, first, second;
    size_t width;

    // Brings a row near before it is its turn: scattered rows defeat the hardware's own guess.
    void prefetch(size_t id) const;
    // Takes one step on one row.
    void update(const RowRule& rule, size_t id, const float* gradient, const Kernels& run) const;
};

// Row ids[i] gets gradient row i. Ids are distinct, so each row has one writer and the result does not depend on the
// number of threads.
void update_rows(const RowRule& rule, const RowsToUpdate& rows, const int64_t* ids, size_t count, const float* gradient,
                 size_t threads);

}  // namespace manyclass
