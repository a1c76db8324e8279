// The classes of a training step: drawn ones and given ones as one ascending list. Small sorts and merges that take
// Python ten array operations, and longer than the products of a small step may.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace manyclass {

struct CountedIds {
    std::vector<int64_t> ids;    // distinct, ascending
    std::vector<int64_t> times;  // how often each occurs
};

// The distinct ids among `draws`, in any order, which number the ids that are not among `members`, distinct and
// ascending: 0 is the lowest of those. Without members draws are the ids themselves. Negative draws are left out.
CountedIds counted_ids(std::span<const int64_t> draws, std::span<const int64_t> members);

struct WeightedClasses {
    std::vector<int64_t> ids;  // distinct, ascending
    std::vector<double> log_weights;
};

// Given ids, in any order, repeated or negative for none, each with the same log weight, and drawn ones, distinct and
// ascending, with their own, which they keep where they are also given.
WeightedClasses merged_classes(std::span<const int64_t> given, double log_weight, std::span<const int64_t> drawn,
                               std::span<const double> drawn_log_weights);

// What the chance of a class to be in a step follows from, as src/manyclass/torch/tail_and_targets.py explains it.
struct Chances {
    double known;         // targets that are counted
    double alike;         // times that each class counts as met beforehand
    double new_share;     // of the targets that are of classes not met before
    double classes_left;  // that are not removed
    double others;        // targets of the other examples
    double draws;         // uniform ones
};

// Targets and draws, in any order, repeated or negative for none, as one sample: each class once, with -log of the
// chance that it is there. counts: of every id, how often it was a target lately.
WeightedClasses sampled_classes(std::span<const int64_t> targets, std::span<const int64_t> draws,
                                std::span<const int32_t> counts, const Chances& chances);

struct Repetitions {
    int64_t met;    // sum over the targets of how often each was counted before
    int64_t unmet;  // targets that were not
    int64_t pairs;  // ordered pairs of equal targets in the batch
};

// Counts targets, no more than the ring holds, into `counts` and writes them to the ring from `place` on, past its end
// to its beginning; what they overwrite there counts no more.
Repetitions count_targets(std::span<const int64_t> targets, std::span<int32_t> counts, std::span<int32_t> ring,
                          size_t place);

}  // namespace manyclass
