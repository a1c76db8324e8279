// One search on its way through the stages. Each stage is a file: tables, votes, scan, cells, rerank, topk; they share
// the state below.
#pragma once
#include <algorithm>
#include <cstring>
#include <span>

#include "index.h"
#include "search_scratch.h"

namespace manyclass {

// Orders floats as best_first_key orders integers.
inline uint64_t best_first(float score, uint32_t id) {
    uint32_t bits;
    score += 0.0f;
    std::memcpy(&bits, &score, sizeof bits);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (static_cast<uint64_t>(~bits) << 32) | id;
}

class Search {
public:
    Search(Index& index, const SearchPlan& plan, const SearchOut& out, SearchScratch& scratch);
    SearchStatus run(const float* queries, size_t count);

private:
    // search.cpp
    void retrieve();
    void everything(size_t q);
    void gather_lists(size_t splits, size_t kept, bool repeats);
    void sort_ids(std::vector<uint32_t>& ids, SearchWorker& worker);
    // The coordinates that all stages but the exact logits look at.
    const float* query(size_t q) const { return coordinates_ + q * index_.shape_.width; }
    void list_excluded(size_t q);
    bool excluded(size_t q, uint32_t id) const {
        return std::binary_search(excluded_[q].begin(), excluded_[q].end(), id);
    }
    // What a stage keeps, and what it looks for: more, as some of it may have to be left out.
    size_t wanted(size_t q, size_t kept) const { return kept + excluded_[q].size(); }

    // search_tables.cpp
    void by_tables(size_t q, size_t split, size_t splits, BestList& list, SearchWorker& worker);
    void drop_repeats(SearchWorker& worker);

    // search_votes.cpp: both leave the best `keep` classes in worker.voted, in order of ids.
    void count_votes(SearchWorker& worker);
    void count_hits(SearchWorker& worker);
    template <class Table>
    void count_block(size_t bands, SearchWorker& worker, Table table);

    // search_scan.cpp
    size_t scan_kept() const { return index_.sketch_ ? plan_.keep : plan_.candidates; }
    void by_flat_scan();
    void scan(size_t first, size_t count, size_t split, size_t splits, SearchWorker& worker);
    void scan_spans(ScanQuery* scans, BestList** lists, size_t count, size_t split, size_t splits,
                    SearchWorker& worker);
    void guess_floors(ScanQuery* scans, BestList** lists, size_t count, size_t limit, SearchWorker& worker);
    void add_outliers(ScanQuery& scan, const ScannedQuery& query);
    void lower_sunk(ScanQuery& scan, const ScannedQuery& query);
    void cut(BestList& list, ScanQuery& scan, const ScannedQuery& query);

    // search_cells.cpp
    void by_cells();
    void choose_cells();
    void best_cells(size_t q, SearchWorker& worker);
    void scan_cells(size_t first, size_t count, size_t split, size_t splits, SearchWorker& worker);
    template <class List>
    void scan_cell(size_t cell, ScanQuery* scans, size_t count, List full);
    int32_t* scores_of(size_t q) { return cell_scores_.data() + q * index_.cells_->count(); }

    // search_rerank.cpp
    void refine();
    void score_by_sketch(size_t q, std::span<const uint32_t> ids, BestList& list, SearchWorker& worker);
    void rescore(size_t q, BestList& list, SearchWorker& worker);

    // search_topk.cpp
    bool finish(size_t q, SearchWorker& worker);
    void list_candidates(size_t q) const;

    Index& index_;
    const SearchPlan& plan_;
    const SearchOut& out_;
    const Kernels& kernels_;
    SearchScratch& scratch_;
    std::vector<SearchWorker>& workers_;
    std::vector<BestList>& lists_;
    std::vector<std::vector<uint32_t>>& ids_;
    std::vector<std::vector<uint32_t>>& excluded_;
    std::vector<std::vector<float>>& logits_;
    std::vector<int32_t>& cell_scores_;
    std::vector<std::vector<uint32_t>>& cell_lists_;
    // The block of queries in work: its first query, how many there are, and the number of the first.
    const float *queries_ = nullptr, *coordinates_ = nullptr;
    size_t count_ = 0, first_ = 0;
};

}  // namespace manyclass
