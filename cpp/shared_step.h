// A training step in which all examples compute the same classes: losses, probabilities and gradients in one pass.
//
// logit[e][n] = (input[e] . weight[ids[n]] + bias[ids[n]]) * scale. A class that is one of an example's own positives
// counts once in its normaliser; any other class n counts e^log_weight[n] times, which may be zero times. Targets:
// share[e][p] of each own positive, and spread[n] of every other class, the same for all examples.
//
//   softmax    loss[e] = mass[e] * log(sum of counts * e^logit) - sum of targets * logit,   mass: sum of the targets
//   logistic   loss[e] = sum of counts * log(1 + e^logit) - sum of targets * logit
//
// A class that counts zero times and gets no spread matters to those alone whose positive it is. Unless these are many,
// it is left out of the dense products, and its few pairs are computed one by one (shared_step_alone.cpp): with several
// positives per example most classes of a step are such.
//
// Everything has one owner: blocks of classes up to the gradients of logits and for the rows, tiles of examples for the
// inputs. So no sum depends on the number of threads. Logits are stored class by class, one line of examples each:
// a class's row is then read once, from where it lies, for all examples.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aligned_floats.h"
#include "row_products.h"

namespace manyclass {

constexpr size_t kClassBlock = 72;  // classes worked on together: whole tiles of every instruction set

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
    // What a block of classes adds to every example: lines of one float each.
    struct Partial {
        float* shift;    // softmax: the largest logit; then what the block's values are multiplied with
        float* sums;     // softmax: of e^(logit - shift); logistic: of the losses
        float* squares;  // of what `sums` (logistic: the shares) adds up, where a class stands for several
        float* spread;   // sum of spread * product
    };

    static size_t padded(size_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

    // Classes by place: dense ones first, then those that are alone with their pairs.
    void set_order(const SharedLoss& loss);
    size_t given(size_t place) const { return order_[place]; }
    int64_t id(size_t place) const { return ids_[given(place)]; }
    std::span<const Pair> pairs_of(size_t place) const {
        return {pairs_.data() + starts_[given(place)], pairs_.data() + starts_[given(place) + 1]};
    }
    size_t blocks() const { return (dense_ + kClassBlock - 1) / kClassBlock; }
    size_t block_size(size_t block) const { return std::min(kClassBlock, dense_ - block * kClassBlock); }
    float* logits_of(size_t place) { return logits_.data() + place * lanes_; }
    const float* logits_of(size_t place) const { return logits_.data() + place * lanes_; }
    void block_logits(const SharedLoss& loss, const float* const* rows, const float* panels, size_t block,
                      Partial& partial, float* own);
    void softmax_block(const SharedLoss& loss, size_t block, Partial& partial, const float* own);
    void logistic_block(const SharedLoss& loss, size_t block, Partial& partial, const float* own, float* pull);
    void softmax_shares(const SharedLoss& loss, size_t block, const float* factors, const float* mass, float* pull);
    void keep_row(const float* row, size_t features, size_t place);

    // Pairs of classes that are alone: their logits to `own`; what they add to every example; their gradients.
    void alone_logits(const SharedLoss& loss, float* own, size_t threads);
    void alone_softmax(Partial& partial, const float* own, size_t threads);
    void alone_softmax_shares(const SharedLoss& loss, const float* factors, const float* mass, float* pull);
    void alone_logistic_shares(const SharedLoss& loss, const float* own, float* pull);
    void add_alone_input_gradients(const float* gradient, float* out, size_t threads) const;
    template <class Finish>
    void each_row_gradient(const float* gradient, const float* input, float* sums, size_t threads, Finish finish) const;
    float alone_row_gradient(size_t place, const float* factors, const float* input, float* out) const;

    std::vector<int64_t> ids_;
    size_t examples_, width_, lanes_, features_ = 0, dense_ = 0;
    float scale_ = 1;
    std::vector<uint32_t> order_;         // of each place, which of the ids it is
    std::vector<uint32_t> starts_;        // where a class's pairs begin; one more than classes
    std::vector<Pair> pairs_;             // (example, positive), grouped by class
    AlignedFloats logits_;                // [dense][lanes]: logits, then gradients for them before those of the losses
    AlignedFloats rows_;                  // [classes][features, padded]: the classes' rows as they were, by place
    std::vector<uint32_t> alone_places_;  // [examples][width]: the place of a class that is alone, or kNotAlone
    AlignedFloats alone_;                 // [examples][width]: the same as logits_, of these pairs
    static constexpr uint32_t kNotAlone = UINT32_MAX;
};

}  // namespace manyclass
