// A search from end to end: retrieve candidates (search_tables, search_scan, search_cells or all classes), put them in
// order, compute their exact logits (exact_logits), rank (search_topk).
#include "search.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <memory>

#include "exact_logits.h"
#include "thread_pool.h"
#include "vector_norm.h"

namespace manyclass {

Search::Search(Index& index, const SearchPlan& plan, const SearchOut& out, SearchScratch& scratch)
    : index_(index),
      plan_(plan),
      out_(out),
      kernels_(kernels()),
      scratch_(scratch),
      workers_(scratch.workers),
      lists_(scratch.lists),
      ids_(scratch.ids),
      excluded_(scratch.excluded),
      logits_(scratch.logits),
      cell_scores_(scratch.cell_scores),
      cell_lists_(scratch.cell_lists) {
    if (workers_.size() < plan.threads) workers_.resize(plan.threads);
    for (SearchWorker& worker : workers_) worker.scanned.resize(kQueryBlock), worker.scans.resize(kQueryBlock);
    excluded_.resize(kQueryBlock);
    for (std::vector<uint32_t>& ids : excluded_) ids.clear();
}

SearchStatus Search::run(const float* queries, size_t count) {
    for (size_t q = 0; q < count; ++q)
        if (!std::isfinite(vector_norm(queries + q * index_.shape_.features, index_.shape_.features)))
            return {SearchStatus::query_not_finite, q};
    std::atomic<size_t> overflow{count};
    for (size_t begin = 0; begin < count; begin += kQueryBlock) {
        IndexLock::Reading reading(index_.lock_);
        queries_ = queries + begin * index_.shape_.features;
        count_ = std::min(kQueryBlock, count - begin);
        first_ = begin;
        coordinates_ = queries_;
        if (index_.balance_) {
            scratch_.coordinates.resize(kQueryBlock * index_.shape_.width);
            index_.map_queries(queries_, count_, plan_.threads, scratch_.coordinates.data());
            coordinates_ = scratch_.coordinates.data();
        }
        for (size_t q = 0; plan_.excluded && q < count_; ++q) list_excluded(q);
        retrieve();
        if (!out_.classes) {
            parallel_for(count_, plan_.threads, [&](size_t q, size_t) { list_candidates(q); });
            continue;
        }
        exact_logits({index_.rows_, index_.bias_.data(), index_.classes_, queries_, count_, plan_.threads}, scratch_);
        parallel_for(count_, plan_.threads, [&](size_t q, size_t worker) {
            if (!finish(q, workers_[worker])) overflow.store(begin + q);
        });
    }
    return overflow < count ? SearchStatus{SearchStatus::logits_overflow, overflow} : SearchStatus{};
}

void Search::retrieve() {
    if (ids_.size() < kQueryBlock) ids_.resize(kQueryBlock), logits_.resize(kQueryBlock);
    if (index_.tables_) {
        const bool divisible = plan_.probes > 1 && index_.sketch_;
        const size_t splits = divisible && count_ < plan_.threads ? plan_.threads : 1;
        if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
        parallel_for(count_ * splits, plan_.threads, [&](size_t task, size_t worker) {
            by_tables(task / splits, task % splits, splits, lists_[task], workers_[worker]);
        });
        gather_lists(splits, plan_.candidates, true);
    } else if (index_.scan_) {
        const bool parted = index_.cells_ && plan_.cells < index_.cells_->count();
        parted ? by_cells() : by_flat_scan();
        if (index_.sketch_) refine();
    } else {
        return parallel_for(count_, plan_.threads, [&](size_t q, size_t) { everything(q); });
    }
    if (out_.classes)
        parallel_for(count_, plan_.threads, [&](size_t q, size_t worker) { sort_ids(ids_[q], workers_[worker]); });
}

void Search::everything(size_t q) {
    ids_[q].clear();
    for (uint32_t id = 0; id < index_.classes_; ++id)
        if (!index_.hidden(id) && !excluded(q, id)) ids_[q].push_back(id);
}

void Search::list_excluded(size_t q) {
    std::vector<uint32_t>& ids = excluded_[q];
    ids.clear();
    const int64_t* from = plan_.excluded + (first_ + q) * plan_.excluded_width;
    for (size_t i = 0; i < plan_.excluded_width; ++i)
        if (from[i] >= 0) ids.push_back(static_cast<uint32_t>(from[i]));
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

// Joins what the threads found for each query, leaves out what is excluded, and cuts again.
void Search::gather_lists(size_t splits, size_t kept, bool repeats) {
    parallel_for(count_, plan_.threads, [&](size_t q, size_t) {
        BestList& all = lists_[q * splits];
        if (splits > 1) {
            size_t total = 0;
            for (size_t split = 0; split < splits; ++split) total += lists_[q * splits + split].count;
            all.grow(total);
            for (size_t split = 1; split < splits; ++split)
                for (const uint64_t key : lists_[q * splits + split]) all.push(key);
            if (repeats) all.drop_repeats();
        }
        if (!excluded_[q].empty())
            all.count = static_cast<size_t>(std::remove_if(all.data(), all.data() + all.count,
                                                           [&](uint64_t key) { return excluded(q, key_id(key)); }) -
                                            all.data());
        if (splits > 1 || !excluded_[q].empty()) all.set_limit(kept), all.cut(false);
        if (!out_.classes) std::sort(all.data(), all.data() + all.count);  // a shortlist is in order of rank
        ids_[q].resize(all.count);
        std::transform(all.begin(), all.end(), ids_[q].begin(), key_id);
    });
}

// In order of ids rows are read in order of memory, and sums do not depend on who found what.
void Search::sort_ids(std::vector<uint32_t>& ids, SearchWorker& worker) {
    const size_t words = (index_.classes_ + 63) / 64;
    if (words > 16 * ids.size()) return std::sort(ids.begin(), ids.end());
    worker.seen.resize(words, 0);
    for (const uint32_t id : ids) worker.seen[id / 64] |= uint64_t{1} << (id % 64);
    size_t at = 0;
    for (size_t word = 0; word < words; ++word)
        for (uint64_t& bits = worker.seen[word]; bits; bits &= bits - 1)
            ids[at++] = static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
}

SearchStatus Index::search(const float* queries, size_t count, const SearchPlan& plan, const SearchOut& out) {
    std::unique_ptr<SearchScratch> scratch;
    for (auto& slot : idle_)
        if (!scratch) scratch.reset(slot.exchange(nullptr));
    if (!scratch) scratch = std::make_unique<SearchScratch>();
    const SearchStatus status = Search(*this, plan, out, *scratch).run(queries, count);
    for (auto& slot : idle_)
        if (SearchScratch* empty = nullptr; scratch && slot.compare_exchange_strong(empty, scratch.get()))
            scratch.release();
    return status;
}

}  // namespace manyclass
