#include "class_tree.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "prefetch.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr uint32_t kNoParent = 0xffffffffu;
constexpr size_t kClimbers = 32;  // paths followed side by side: each step waits for memory
constexpr size_t kTile = 4;       // inputs that share one pass over the nodes
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Log probabilities of the - and the + answer to a question with this logit.
struct Answers {
    explicit Answers(float logit) {
        const float shared = std::log1p(std::exp(-std::fabs(logit)));
        log_probs[0] = std::min(-logit, 0.0f) - shared;
        log_probs[1] = std::min(logit, 0.0f) - shared;
    }
    float log_probs[2];
};

struct Leaf {
    int64_t count;
    uint32_t id;
};

// Classes from the rarest on; ties in order of their numbers.
std::vector<Leaf> sorted_leaves(std::span<const int64_t> counts) {
    std::vector<Leaf> leaves(counts.size());
    for (size_t i = 0; i < counts.size(); ++i) leaves[i] = {counts[i], static_cast<uint32_t>(i)};
    std::stable_sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) { return a.count < b.count; });
    return leaves;
}

// A place the search may go on from: a node, or a class (as ~class).
struct Place {
    float log_prob;
    int32_t at;
};

// A heap's "less": the best place is the most probable one; of equals nodes first, as a class of a lower number may
// be below them; then lower numbers. Negative `at` are classes, and ~class falls as the number rises.
bool worse(const Place& a, const Place& b) {
    if (a.log_prob != b.log_prob) return a.log_prob < b.log_prob;
    if ((a.at < 0) != (b.at < 0)) return a.at < 0;
    return a.at < 0 ? a.at < b.at : a.at > b.at;
}

}  // namespace

ClassTree::ClassTree(std::span<const int64_t> counts) {
    const size_t classes = counts.size(), inner = classes - 1;
    const std::vector<Leaf> leaves = sorted_leaves(counts);
    inner_up_.assign(inner, kNoParent);
    leaf_up_.assign(classes, kNoParent);
    children_.resize(2 * inner);
    // Two queues: leaves by count, and nodes, which come into being in order of weight. The last one made is the
    // root, so that numbering them backwards puts parents first.
    std::vector<int64_t> weights(inner);
    size_t next_leaf = 0, next_made = 0;
    for (size_t made = 0; made < inner; ++made) {
        const size_t node = inner - 1 - made;
        for (size_t side = 0; side < 2; ++side) {
            const bool leaf =
                next_leaf < classes && (next_made == made || leaves[next_leaf].count <= weights[next_made]);
            const auto up = static_cast<uint32_t>(2 * node + side);
            if (leaf) {
                weights[made] += leaves[next_leaf].count;
                leaf_up_[leaves[next_leaf].id] = up;
                children_[up] = ~static_cast<int32_t>(leaves[next_leaf++].id);
            } else {
                weights[made] += weights[next_made];
                const size_t child = inner - 1 - next_made++;
                inner_up_[child] = up;
                children_[up] = static_cast<int32_t>(child);
            }
        }
    }
    std::vector<uint8_t> depths(inner, 1);
    for (size_t node = 0; node < inner; ++node) {
        if (node) depths[node] = static_cast<uint8_t>(depths[inner_up_[node] / 2] + 1);
        depth_ = std::max<size_t>(depth_, depths[node]);
    }
}

void ClassTree::links(int64_t* parents, int8_t* sides) const {
    for (const auto* up : {&inner_up_, &leaf_up_})
        for (const uint32_t link : *up) {
            *parents++ = link == kNoParent ? -1 : static_cast<int64_t>(link / 2);
            *sides++ = static_cast<int8_t>(link == kNoParent ? 0 : link % 2 ? 1 : -1);
        }
}

void ClassTree::paths(std::span<const int64_t> targets, int64_t* nodes, int8_t* sides, size_t threads) const {
    const size_t tasks = (targets.size() + kClimbers - 1) / kClimbers;
    parallel_for(tasks, threads, [&](size_t task, size_t) {
        const size_t first = task * kClimbers, count = std::min(kClimbers, targets.size() - first);
        uint32_t up[kClimbers];
        size_t steps[kClimbers] = {};
        for (size_t i = 0; i < count; ++i) {
            const int64_t target = targets[first + i];
            up[i] = target < 0 ? kNoParent : leaf_up_[static_cast<size_t>(target)];
        }
        for (bool climbing = true; climbing;) {
            climbing = false;
            for (size_t i = 0; i < count; ++i) {
                if (up[i] == kNoParent) continue;
                const size_t slot = (first + i) * depth_ + steps[i]++;
                nodes[slot] = up[i] / 2;
                sides[slot] = up[i] % 2 ? 1 : -1;
                up[i] = inner_up_[up[i] / 2];
                climbing = true;
            }
        }
        for (size_t i = 0; i < count; ++i) {
            int64_t* path = nodes + (first + i) * depth_;
            int8_t* turns = sides + (first + i) * depth_;
            std::reverse(path, path + steps[i]);
            std::reverse(turns, turns + steps[i]);
            std::fill(path + steps[i], path + depth_, -1);
            std::fill(turns + steps[i], turns + depth_, 0);
        }
    });
}

void ClassTree::log_probs(const TreeWeights& weights, const float* input, size_t count, float* out,
                          size_t threads) const {
    const Kernels& run = kernels();
    if (!nodes()) std::fill(out, out + count, 0.0f);
    std::vector<std::vector<float>> scratch(threads);
    parallel_for(nodes() ? (count + kTile - 1) / kTile : 0, threads, [&](size_t task, size_t worker) {
        const size_t first = task * kTile, n = std::min(kTile, count - first);
        std::vector<float>& reached = scratch[worker];  // [node][n] log probability of getting there
        reached.resize(nodes() * kTile);
        const float* inputs[kTile];
        for (size_t i = 0; i < n; ++i) inputs[i] = input + (first + i) * weights.features, reached[i] = 0;
        for (size_t node = 0; node < nodes(); ++node) {
            float logits[kTile] = {};
            run.dots(weights.rows + node * weights.features, RowType::f32, inputs, n, weights.features, logits);
            for (size_t i = 0; i < n; ++i) {
                const Answers answers(weights.bias ? logits[i] + weights.bias[node] : logits[i]);
                for (size_t side = 0; side < 2; ++side) {
                    const int32_t child = children_[2 * node + side];
                    const float log_prob = reached[node * n + i] + answers.log_probs[side];
                    if (child < 0)
                        out[(first + i) * classes() + static_cast<size_t>(~child)] = log_prob;
                    else
                        reached[static_cast<size_t>(child) * n + i] = log_prob;
                }
            }
        }
    });
}

void ClassTree::topk(const TreeWeights& weights, const float* input, size_t count, size_t k, int64_t* classes,
                     float* log_probs, size_t threads) const {
    const Kernels& run = kernels();
    std::vector<std::vector<Place>> scratch(threads);
    parallel_for(count, threads, [&](size_t query, size_t worker) {
        std::vector<Place>& open = scratch[worker];
        open.assign(1, {0.0f, nodes() ? 0 : ~0});
        const float* own = input + query * weights.features;
        size_t found = 0;
        while (found < k && !open.empty()) {
            std::pop_heap(open.begin(), open.end(), worse);
            const Place best = open.back();
            open.pop_back();
            if (best.at < 0) {
                classes[query * k + found] = ~best.at;
                log_probs[query * k + found++] = best.log_prob;
                continue;
            }
            const auto node = static_cast<size_t>(best.at);
            float logit = 0;
            run.dots(weights.rows + node * weights.features, RowType::f32, &own, 1, weights.features, &logit);
            if (weights.bias) logit += weights.bias[node];
            const Answers answers(logit);
            for (size_t side = 0; side < 2; ++side) {
                const int32_t child = children_[2 * node + side];
                if (child >= 0)
                    prefetch_row(weights.rows + static_cast<size_t>(child) * weights.features,
                                 weights.features * sizeof(float));
                open.push_back({best.log_prob + answers.log_probs[side], child});
                std::push_heap(open.begin(), open.end(), worse);
            }
        }
        std::fill(classes + query * k + found, classes + (query + 1) * k, -1);
        std::fill(log_probs + query * k + found, log_probs + (query + 1) * k, kMinusInfinity);
    });
}

}  // namespace manyclass
