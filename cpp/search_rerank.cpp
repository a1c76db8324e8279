// A second, better order of what tables or scan found: by a longer sketch, or by votes with norm and bias.
#include <algorithm>
#include <limits>
#include <span>

#include "search.h"
#include "thread_pool.h"
#include "vector_norm.h"

namespace manyclass {

// Re-ranks what the scan found by the longer sketch.
void Search::refine() {
    const size_t splits = count_ < plan_.threads ? plan_.threads : 1;
    if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
    parallel_for(count_ * splits, plan_.threads, [&](size_t task, size_t worker) {
        const size_t q = task / splits, n = ids_[q].size(), split = task % splits;
        const uint32_t* ids = ids_[q].data();
        lists_[task].start(wanted(q, plan_.candidates), plan_.candidates);
        score_by_sketch(q, {ids + n * split / splits, ids + n * (split + 1) / splits}, lists_[task], workers_[worker]);
    });
    gather_lists(splits, plan_.candidates, false);
}

void Search::score_by_sketch(size_t q, std::span<const uint32_t> ids, BestList& list, SearchWorker& worker) {
    const Sketcher& sketcher = index_.sketch_->sketcher;
    const SketchRecords& store = index_.sketch_->store;
    sketcher.encode_query(query(q), worker.sketch);
    constexpr size_t ahead = 24;
    uint64_t edge = BestList::kNoEdge;
    for (size_t i = 0; i < ids.size(); ++i) {
        if (i + ahead < ids.size()) __builtin_prefetch(store.record(ids[i + ahead]));
        const uint64_t key = best_first(store.score(ids[i], worker.sketch), ids[i]);
        if (key >> 32 > edge) continue;
        if (list.count == list.capacity()) edge = list.cut(false);
        list.push(key);
    }
    list.cut(false);
}

// Norm- and bias-aware order of the voted and the always-candidates: |x| |w| f(votes) + bias.
void Search::rescore(size_t q, BestList& list, SearchWorker& worker) {
    const float length = std::min(vector_norm(query(q), index_.shape_.width), std::numeric_limits<float>::max());
    const auto& weights = index_.vote_weights_;
    std::vector<uint64_t>& ranked = worker.ranked;
    ranked.assign(worker.voted.begin(), worker.voted.end());
    const auto by_id = [](uint64_t key, uint32_t id) { return key_id(key) < id; };
    for (const uint32_t id : index_.always_.ids()) {
        const uint64_t* at = std::lower_bound(worker.voted.begin(), worker.voted.end(), id, by_id);
        if (at == worker.voted.end() || key_id(*at) != id) ranked.push_back(best_first_key(0, id));
    }
    for (uint64_t& key : ranked) {
        const uint32_t id = key_id(key);
        const auto votes = std::min<size_t>(static_cast<size_t>(key_score(key)), weights.size() - 1);
        const float score = length * (index_.norms_[id] * weights[votes]) + index_.leads()[id];
        key = best_first(score, id);
    }
    const size_t keep = std::min(wanted(q, plan_.candidates), ranked.size());
    std::nth_element(ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(keep), ranked.end());
    ranked.resize(keep);
    if (!out_.classes || !excluded_[q].empty()) std::sort(ranked.begin(), ranked.end());
    for (size_t i = 0; i < keep; ++i) list.push(best_first_key(-static_cast<int>(i), key_id(ranked[i])));
}

}  // namespace manyclass
