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

}  // namespace manyclass
