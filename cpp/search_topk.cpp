// The end of a search: the best k of the candidates by exact logit, their log probabilities, and the candidates.
#include <algorithm>
#include <cmath>
#include <limits>

#include "search.h"

namespace manyclass {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

float log_sigmoid(float x) {
    return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}

}  // namespace

// False where a logit is not finite.
bool Search::finish(size_t q, SearchWorker& worker) {
    const std::vector<uint32_t>& ids = ids_[q];
    const std::vector<float>& logits = logits_[q];
    const size_t k = std::min(out_.k, ids.size()), at = first_ + q;
    std::vector<uint64_t>& ranked = worker.ranked;
    ranked.resize(ids.size());
    float highest = kNothing;
    for (size_t i = 0; i < ids.size(); ++i) {
        ranked[i] = best_first(logits[i], static_cast<uint32_t>(i));
        highest = std::max(highest, logits[i]);
    }
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(k), ranked.end());
    double sum = 0;
    if (!out_.logistic)
        for (const float logit : logits) sum += std::exp(logit - highest);
    const float normalizer = static_cast<float>(highest + std::log(sum));
    for (size_t i = 0; i < out_.k; ++i) {
        const size_t slot = i < k ? key_id(ranked[i]) : 0;
        const float logit = i < k ? logits[slot] : kNothing;
        out_.classes[at * out_.k + i] = i < k ? int64_t{ids[slot]} : -1;
        out_.logits[at * out_.k + i] = logit;
        out_.log_probs[at * out_.k + i] = i >= k ? kNothing : out_.logistic ? log_sigmoid(logit) : logit - normalizer;
    }
    list_candidates(q);
    if (out_.candidate_logits)
        for (size_t i = 0; i < plan_.candidates; ++i)
            out_.candidate_logits[at * plan_.candidates + i] = i < ids.size() ? logits[i] : kNothing;
    return std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
}

void Search::list_candidates(size_t q) const {
    if (!out_.candidates) return;
    int64_t* to = out_.candidates + (first_ + q) * plan_.candidates;
    for (size_t i = 0; i < plan_.candidates; ++i) to[i] = i < ids_[q].size() ? int64_t{ids_[q][i]} : -1;
}

}  // namespace manyclass
