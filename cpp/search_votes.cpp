// Votes: in how many bands a class shares the query's bucket (paper, section 3.2).
#include <algorithm>

#include "search.h"

namespace manyclass {

// Dense counting, block of classes by block: the paper's votes. Leaves the best `keep` in worker.voted.
void Search::count_votes(SearchWorker& worker) {
    const BandTables& tables = *index_.tables_;
    const size_t bands = index_.hasher_->bands(), total = index_.classes_;
    int floor = 0;
    const size_t span = tables.blocked() ? BandTables::kBlockClasses : total;
    for (size_t block = 0; block < tables.blocks(); ++block) {
        const size_t first = block * span, n = std::min(span, total - first);
        worker.counters.assign(n, 0);
        if (tables.blocked())
            count_block(bands, worker, [&](size_t band) -> auto& { return tables.block_table(block, band); });
        else
            count_block(bands, worker, [&](size_t band) -> auto& { return tables.table(band); });
        for (size_t at = 0; at < n;) {
            at = kernels_.scan_counters(worker.counters.data(), at, n, static_cast<uint16_t>(std::max(floor, 0)),
                                        static_cast<uint32_t>(first), worker.voted.data(), &worker.voted.count,
                                        worker.voted.capacity());
            if (at < n) floor = std::max(floor, rank_score(worker.voted.cut()));
        }
        floor = std::max(floor, rank_score(worker.voted.cut()));
    }
}

template <class Table>
void Search::count_block(size_t bands, SearchWorker& worker, Table table) {
    constexpr size_t ahead = 8;
    const auto& winners = worker.winners;
    const bool skip = index_.shape_.skip_silent;
    uint16_t* counters = worker.counters.data();
    for (size_t band = 0; band < bands; ++band) {
        if (band + 2 * ahead < bands)
            __builtin_prefetch(table(band + 2 * ahead).header(winners.buckets[band + 2 * ahead]));
        if (band + ahead < bands) __builtin_prefetch(table(band + ahead)[winners.buckets[band + ahead]].data());
        if (skip && winners.silent[band]) continue;
        for (const auto id : table(band)[winners.buckets[band]]) ++counters[id];
    }
}

// Votes from a bag of hits: equal ids become neighbours.
void Search::count_hits(SearchWorker& worker) {
    std::vector<uint32_t>& hits = worker.hits;
    std::sort(hits.begin(), hits.end());
    for (size_t i = 0, j; i < hits.size(); i = j) {
        for (j = i; j < hits.size() && hits[j] == hits[i];) ++j;
        worker.voted.push(best_first_key(static_cast<int>(j - i), hits[i]));
    }
    worker.voted.cut();
}

void Index::votes(const float* query, uint16_t* counts, size_t count) {
    IndexLock::Reading reading(lock_);
    std::fill(counts, counts + count, uint16_t{0});
    QueryWinners winners;
    std::vector<float> coordinates(balance_ ? shape_.width : 0);
    if (balance_) map_queries(query, 1, 1, coordinates.data());
    if (!hasher_->hash_query(balance_ ? coordinates.data() : query, winners)) return;
    const auto add = [&](size_t id) {
        if (id < count) ++counts[id];  // a class that was appended since the caller looked is left out
    };
    for (size_t band = 0; band < hasher_->bands(); ++band) {
        if (shape_.skip_silent && winners.silent[band]) continue;
        if (!tables_->blocked()) {
            for (const uint32_t id : tables_->table(band)[winners.buckets[band]]) add(id);
            continue;
        }
        for (size_t block = 0; block < tables_->blocks(); ++block)
            for (const uint16_t id : tables_->block_table(block, band)[winners.buckets[band]])
                add(block * BandTables::kBlockClasses + id);
    }
}

}  // namespace manyclass
