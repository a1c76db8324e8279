// A training step in which all examples compute the same classes: losses, probabilities and gradients in one pass.
//
// logit[e][n] = (input[e] . weight[ids[n]] + bias[ids[n]]) * scale. A class that is one of an example's own positives
// counts once in its normaliser; any other class n counts e^log_weight[n] times, which may be zero times. Targets:
// share[e][p] of each own positive, and spread[n] of every other class, the same for all examples.
//
//   softmax    loss[e] = mass[e] * log(sum of counts * e^logit) - sum of targets * logit,   mass: sum of the targets
//   logistic   loss[e] = sum of counts * log(1 + e^logit) - sum of targets * logit
//
// Everything has one owner: blocks of classes up to the gradients of logits and for the rows, tiles of examples for the
// inputs. So no sum depends on the number of threads. Logits are stored class by class, one line of examples each:
// a class's row is then read once, from where it lies, for all examples.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned_floats.h"
#include "row_products.h"

namespace manyclass {

struct SharedLoss {
    DenseRows weight;
    const float* bias;  // or null
    const float* input;
    float scale;
    const float* log_weights;  // [classes]
    const float* spread;       // [classes] or null
    const float* shares;       // [examples][width]
    bool logistic;
    bool gradients_follow;  // false: nothing is kept for them
};

// What comes out beside the gradients.
struct SharedResult {
    float* losses;         // [examples]
    float* pull;           // [classes] sum of the examples' probabilities, and 1 for each positive
    float* tail_variance;  // [examples] sum of squared probabilities of classes that stand for several
};

class SharedStep {
public:
    // ids [classes], ascending; positives [examples][width], negative where there is none; one that is not among the
    // ids throws std::invalid_argument.
    SharedStep(const int64_t* ids, size_t classes, const int64_t* positives, size_t examples, size_t width);

    size_t classes() const { return ids_.size(); }
    size_t examples() const { return examples_; }
    size_t width() const { return width_; }
    // 0 until `losses` has left something for the gradients.
    size_t features() const { return features_; }
    bool ids_below(size_t rows) const { return ids_.empty() || static_cast<size_t>(ids_.back()) < rows; }

    void losses(const SharedLoss& loss, const SharedResult& result, size_t threads);

    // Gradients, given those of the losses [examples]. Of the inputs, [examples][features];
    void input_gradients(const float* gradient, float* out, size_t threads) const;
    // of the classes' rows, [classes][features], and of their biases, [classes];
    void row_gradients(const float* gradient, const float* input, float* out, float* sums, size_t threads) const;
    // and the same with each row's gradient applied to it at once, and never stored.
    void update_rows(const float* gradient, const float* input, const RowRule& rule, const RowsToUpdate& rows,
                     float* sums, size_t threads) const;

private:
    struct Pair {
        uint32_t example, slot;  // slot: example * width + column
    };
    struct Partial;  // what a block of classes adds to every example

    size_t blocks() const;
    size_t block_size(size_t block) const;
    float* logits_of(size_t place) { return logits_.data() + place * lanes_; }
    const float* logits_of(size_t place) const { return logits_.data() + place * lanes_; }
    void block_logits(const SharedLoss& loss, const float* const* rows, const float* panels, size_t block,
                      Partial& partial, float* own);
    void softmax_block(const SharedLoss& loss, size_t block, Partial& partial, const float* own);
    void logistic_block(const SharedLoss& loss, size_t block, Partial& partial, const float* own, float* pull);
    void keep_rows(const float* const* rows, size_t features, size_t block);
    template <class Finish>
    void each_row_gradient(const float* gradient, const float* input, float* sums, size_t threads, Finish finish) const;

    std::vector<int64_t> ids_;
    size_t examples_, width_, lanes_, features_ = 0;
    float scale_ = 1;
    std::vector<uint32_t> starts_;  // where a class's pairs begin; one more than classes
    std::vector<Pair> pairs_;       // (example, positive), grouped by class
    AlignedFloats logits_;          // [classes][lanes]: logits, then gradients for them before those of the losses
    AlignedFloats rows_;            // [classes][features, padded]: the classes' rows as they were
};

}  // namespace manyclass
