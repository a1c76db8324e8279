// A Huffman tree over the classes: each class is a leaf, each inner node a yes-or-no question with a row of weights,
// and a class's probability is the product of the answers on its path (hierarchical softmax).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace manyclass {

// The rows of the inner nodes; bias may be null.
struct TreeWeights {
    const float* rows;  // [inner nodes][features]
    const float* bias;  // [inner nodes]
    size_t features;
};

class ClassTree {
public:
    // Counts are at least 0 and their sum fits; at least one class, fewer than 2^31. Rare classes end up deep.
    // Where weights are equal, classes are joined before nodes and lower numbers before higher ones.
    explicit ClassTree(std::span<const int64_t> counts);

    size_t classes() const { return leaf_up_.size(); }
    // Nodes are numbered from the root, 0, so that a parent comes before its children.
    size_t nodes() const { return inner_up_.size(); }
    // Nodes on the longest path.
    size_t depth() const { return depth_; }

    // Parent and side (-1 or +1; 0 for the root, whose parent is -1) of the nodes, then of the classes.
    void links(int64_t* parents, int8_t* sides) const;

    // nodes, sides [count][depth]: the path to each target, root first; -1 and 0 after its end. A negative target has
    // no path.
    void paths(std::span<const int64_t> targets, int64_t* nodes, int8_t* sides, size_t threads) const;

    // out [count][classes]: log probability of every class.
    void log_probs(const TreeWeights& weights, const float* input, size_t count, float* out, size_t threads) const;

    // classes, log_probs [count][k]: the k most probable classes, best first; equal ones by number. Exact: a best-first
    // search, in which no node below the k-th class is looked at. -1 and -inf where there are fewer classes than k.
    void topk(const TreeWeights& weights, const float* input, size_t count, size_t k, int64_t* classes,
              float* log_probs, size_t threads) const;

private:
    std::vector<uint32_t> inner_up_, leaf_up_;  // parent * 2 + (1 on the + side)
    std::vector<int32_t> children_;             // [node][-, +]: a node, or ~class
    size_t depth_ = 0;
};

}  // namespace manyclass
