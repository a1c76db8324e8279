// Candidates from the hash tables: the buckets of the query (by votes) or the likeliest buckets (probes.cpp), then a
// re-ranking where the index has one.
#include "probes.h"
#include "search.h"
#include "thread_pool.h"

namespace manyclass {

void Search::by_tables(size_t q, size_t split, size_t splits, BestList& list, SearchWorker& worker) {
    list.start(wanted(q, plan_.candidates), plan_.candidates);
    worker.hits.clear();
    worker.voted.start(wanted(q, plan_.keep), 4 * kBlock);
    const bool hashed = index_.hasher_->hash_query(query(q), worker.winners);  // a constant query has no codes
    if (hashed && plan_.probes > 1) {
        worker.probes.plan(*index_.hasher_, worker.winners, *index_.tables_, index_.shape_.skip_silent, plan_.probes,
                           wanted(q, plan_.keep));
        worker.probes.read(*index_.tables_, split, splits, worker.hits);
        if (!index_.sketch_) count_hits(worker);
    } else if (hashed) {
        count_votes(worker);
    }
    if (index_.sketch_) {
        const std::vector<uint32_t>& always = index_.always_.ids();
        for (const uint64_t key : worker.voted) worker.hits.push_back(key_id(key));
        if (split == 0) worker.hits.insert(worker.hits.end(), always.begin(), always.end());
        drop_repeats(worker);
        return score_by_sketch(q, worker.hits, list, worker);
    }
    if (index_.shape_.rescore) return rescore(q, list, worker);
    for (const uint64_t key : worker.voted) list.push(key);
    list.cut();
}

// Several buckets may hold one class: the first mention stays.
void Search::drop_repeats(SearchWorker& worker) {
    worker.seen.resize((index_.classes_ + 63) / 64, 0);
    size_t kept = 0;
    for (const uint32_t id : worker.hits) {
        uint64_t& word = worker.seen[id / 64];
        const uint64_t bit = uint64_t{1} << (id % 64);
        if (word & bit) continue;
        word |= bit;
        worker.hits[kept++] = id;
    }
    worker.hits.resize(kept);
    for (const uint32_t id : worker.hits) worker.seen[id / 64] = 0;
}

}  // namespace manyclass
