// A search, stage by stage: retrieve (flat sketch, or tables then sketch or re-score), exact logits (exact_logits.cpp),
// best k. Longer than our usual file because all ways to retrieve share its state and read as one story.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "exact_logits.h"
#include "index.h"
#include "parallel.h"
#include "search_scratch.h"

namespace manyclass {
namespace {

constexpr size_t kSampleRuns = 32, kRunBlocks = 1, kSampleRoom = kSampleRuns * kRunBlocks * kBlock;
constexpr size_t kCellRanks = 1024;
static_assert(kQueryBlock <= 64);  // queries that ask for a cell are bits of a word
constexpr size_t kLeadCells = 4;   // cells that a query scans first, to know how good a candidate must be
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Orders floats as best_first_key orders integers.
uint64_t best_first(float score, uint32_t id) {
    uint32_t bits;
    score += 0.0f;
    std::memcpy(&bits, &score, sizeof bits);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (static_cast<uint64_t>(~bits) << 32) | id;
}

float log_sigmoid(float x) {
    return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}

}  // namespace

class Search {
public:
    Search(Index& index, const SearchPlan& plan, const SearchOut& out, SearchScratch& scratch)
        : index_(index),
          plan_(plan),
          out_(out),
          kernels_(kernels()),
          scratch_(scratch),
          workers_(scratch.workers),
          lists_(scratch.lists),
          ids_(scratch.ids),
          logits_(scratch.logits),
          cell_scores_(scratch.cell_scores),
          cell_lists_(scratch.cell_lists) {
        if (workers_.size() < plan.threads) workers_.resize(plan.threads);
        for (SearchWorker& worker : workers_) worker.sketch.resize(kQueryBlock), worker.scans.resize(kQueryBlock);
    }

    SearchStatus run(const float* queries, size_t count) {
        for (size_t q = 0; q < count; ++q)
            if (!std::isfinite(kernels_.sum_squares(queries + q * index_.shape_.features, index_.shape_.features)))
                return {SearchStatus::bad_query, q};
        std::atomic<size_t> overflow{count};
        for (size_t begin = 0; begin < count; begin += kQueryBlock) {
            IndexLock::Reading reading(index_.lock_);
            queries_ = queries + begin * index_.shape_.features;
            count_ = std::min(kQueryBlock, count - begin);
            first_ = begin;
            retrieve();
            if (!out_.classes) {
                parallel_for(count_, plan_.threads, [&](size_t q, size_t) { list_candidates(q); });
                continue;
            }
            exact_logits({index_.rows_, index_.bias_.data(), index_.classes_, queries_, count_, plan_.threads},
                         scratch_);
            parallel_for(count_, plan_.threads, [&](size_t q, size_t worker) {
                if (!finish(q, workers_[worker])) overflow.store(begin + q);
            });
        }
        return overflow < count ? SearchStatus{SearchStatus::overflow, overflow} : SearchStatus{};
    }

private:
    const float* query(size_t q) const { return queries_ + q * index_.shape_.features; }
    bool removed(uint32_t id) const { return !index_.removed_.empty() && index_.removed_[id]; }

    void retrieve() {
        if (ids_.size() < kQueryBlock) ids_.resize(kQueryBlock), logits_.resize(kQueryBlock);
        if (index_.tables_) {
            const bool divisible = plan_.probes > 1 && index_.sketch_;
            const size_t splits = divisible && count_ < plan_.threads ? plan_.threads : 1;
            if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
            parallel_for(count_ * splits, plan_.threads, [&](size_t task, size_t worker) {
                by_tables(task / splits, task % splits, splits, lists_[task], workers_[worker]);
            });
            gather_lists(splits, true);
        } else if (index_.scan_) {
            index_.cells_&& plan_.probes < index_.cells_->count() ? by_cells() : by_flat_scan();
            if (index_.sketch_) refine();
        } else {
            return parallel_for(count_, plan_.threads, [&](size_t q, size_t) { everything(q); });
        }
        if (out_.classes)
            parallel_for(count_, plan_.threads, [&](size_t q, size_t worker) { sort_ids(ids_[q], workers_[worker]); });
    }

    void everything(size_t q) {
        ids_[q].clear();
        for (uint32_t id = 0; id < index_.classes_; ++id)
            if (!removed(id)) ids_[q].push_back(id);
    }

    // Queries share passes over the codes in tiles; when tiles are few, threads share the classes instead.
    void by_flat_scan() {
        const size_t limit = index_.sketch_ ? plan_.keep : plan_.candidates;
        const size_t tile = std::clamp<size_t>(count_ / plan_.threads, 1, kScanTile);
        const size_t tiles = (count_ + tile - 1) / tile, splits = tiles < plan_.threads ? plan_.threads : 1;
        if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
        parallel_for(tiles * splits, plan_.threads, [&](size_t task, size_t worker) {
            const size_t first = task / splits * tile;
            scan(first, std::min(tile, count_ - first), task % splits, splits, limit, workers_[worker]);
        });
        gather_lists(splits, false);
    }

    void scan(size_t first, size_t count, size_t split, size_t splits, size_t limit, SearchWorker& worker) {
        const Sketcher& sketcher = index_.scan_->sketcher;
        const SketchStore& store = index_.scan_->store;
        ScanQuery scans[kScanTile];
        BestList* lists[kScanTile];
        for (size_t q = 0; q < count; ++q) {
            SketchQuery& sketch = worker.sketch[q];
            sketcher.encode_query(query(first + q), store.factor_scale(), store.bias_scale(), true, sketch);
            lists[q] = &lists_[(first + q) * splits + split];
            lists[q]->start(limit, std::max<size_t>(2 * kBlock, kSampleRoom));
            scans[q] = {sketch.tables.data(), sketch.alpha, sketch.beta, -32768, lists[q]->data(), 0,
                        lists[q]->capacity()};
        }
        guess_floors(store, scans, lists, count, limit, worker);
        scan_spans(store, scans, lists, count, split, splits, worker);
        bool enough = true;
        for (size_t q = 0; q < count; ++q) enough &= lists[q]->count >= limit || scans[q].floor == -32768;
        if (enough) return;
        for (size_t q = 0; q < count; ++q) scans[q].count = 0, scans[q].floor = -32768;
        scan_spans(store, scans, lists, count, split, splits, worker);
    }

    // Every splits-th span, so that each share has its part of the classes with large factors.
    void scan_spans(const SketchStore& store, ScanQuery* scans, BestList** lists, size_t count, size_t split,
                    size_t splits, SearchWorker& worker) {
        const ScanPlan plan = store.plan(index_.scan_->sketcher.gain());
        for (size_t span = split; span < store.spans(); span += splits) {
            bool promising = false;
            for (size_t q = 0; q < count; ++q) promising |= store.bound(span, worker.sketch[q]) > scans[q].floor;
            if (!promising) continue;
            size_t at = span * SketchStore::kSpanBlocks;
            const size_t end = std::min(store.blocks(), at + SketchStore::kSpanBlocks);
            while ((at = kernels_.scan_sketch(plan, scans, count, at, end)) < end)
                for (size_t q = 0; q < count; ++q)
                    if (scans[q].count + kBlock > scans[q].capacity) cut(*lists[q], scans[q]);
        }
        for (size_t q = 0; q < count; ++q) cut(*lists[q], scans[q]);
    }

    // Sets floors that probably let somewhat more than `limit` classes through, from a sample spread over all: lists
    // then need hardly any cutting, and spans can be passed over from the start. Not where a sample would not pay.
    void guess_floors(const SketchStore& store, ScanQuery* scans, BestList** lists, size_t count, size_t limit,
                      SearchWorker& worker) {
        const size_t blocks = store.blocks(), sampled = kSampleRuns * kRunBlocks;
        if (blocks < 16 * sampled || limit * 4 > index_.classes_) return;
        const double expected = static_cast<double>(limit * sampled) / static_cast<double>(blocks);
        const auto rank = static_cast<size_t>(1.1 * expected + 2 * std::sqrt(expected) + 3);
        const ScanPlan plan = store.plan(index_.scan_->sketcher.gain());
        for (size_t run = 0; run < kSampleRuns; ++run) {
            const size_t at = blocks * run / kSampleRuns;
            kernels_.scan_sketch(plan, scans, count, at, at + kRunBlocks);
        }
        for (size_t q = 0; q < count; ++q) {
            worker.voted.start(rank, scans[q].count);
            for (size_t i = 0; i < scans[q].count; ++i) worker.voted.push(scans[q].kept[i]);
            scans[q].floor = static_cast<int16_t>(std::max(worker.voted.cut(false) - 1, -32768));
            scans[q].count = 0;
            lists[q]->count = 0;
        }
    }

    void cut(BestList& list, ScanQuery& scan) {
        list.count = scan.count;
        if (!index_.removed_.empty())
            list.count = static_cast<size_t>(std::remove_if(list.data(), list.data() + list.count,
                                                            [&](uint64_t key) { return removed(key_id(key)); }) -
                                             list.data());
        scan.floor = static_cast<int16_t>(std::max<int>(list.cut(false) - 1, scan.floor));
        scan.count = list.count;
    }

    // As by_flat_scan, but each query passes over the cells that promise most and no others.
    void by_cells() {
        const size_t limit = index_.sketch_ ? plan_.keep : plan_.candidates;
        choose_cells(limit);
        const size_t splits = count_ < plan_.threads ? plan_.threads : 1;
        const size_t group = splits > 1 ? 1 : (count_ + plan_.threads - 1) / plan_.threads;
        if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
        parallel_for((count_ + group - 1) / group * splits, plan_.threads, [&](size_t task, size_t worker) {
            const size_t first = task / splits * group;
            scan_cells(first, std::min(group, count_ - first), task % splits, splits, limit, workers_[worker]);
        });
        gather_lists(splits, false);
    }

    void choose_cells(size_t limit) {
        const Cells& cells = *index_.cells_;
        const size_t total = cells.count();
        const size_t tile = std::clamp<size_t>(count_ / plan_.threads, 1, kScanTile);
        const size_t tiles = (count_ + tile - 1) / tile, splits = tiles < plan_.threads ? plan_.threads : 1;
        cell_scores_.resize(kQueryBlock * total);
        cell_lists_.resize(kQueryBlock);
        parallel_for(tiles * splits, plan_.threads, [&](size_t task, size_t) {
            const size_t first = task / splits * tile, n = std::min(tile, count_ - first), split = task % splits;
            const float* queries[kScanTile];
            int32_t* out[kScanTile];
            for (size_t q = 0; q < n; ++q) queries[q] = query(first + q), out[q] = scores_of(first + q);
            cells.scores(queries, n, total * split / splits, total * (split + 1) / splits, out);
            if (splits == 1)
                for (size_t q = first; q < first + n; ++q) best_cells(q, limit);
        });
        for (size_t q = 0; splits > 1 && q < count_; ++q) best_cells(q, limit);
    }

    int32_t* scores_of(size_t q) { return cell_scores_.data() + q * index_.cells_->count(); }

    // The best `probes` cells, and twice as many as long as they hold fewer than `limit` classes. Scores are sorted
    // into kCellRanks ranks; within the last one the lowest cells are taken.
    void best_cells(size_t q, size_t limit) {
        const size_t total = index_.cells_->count();
        const SketchStore& store = index_.scan_->store;
        const int32_t* scores = scores_of(q);
        int32_t low = scores[0], high = scores[0];
        for (size_t cell = 1; cell < total; ++cell)
            low = std::min(low, scores[cell]), high = std::max(high, scores[cell]);
        const auto most = static_cast<uint32_t>(high);  // differences of 32-bit numbers fit 32 bits without a sign
        const int shift = std::bit_width((most - static_cast<uint32_t>(low)) / kCellRanks);
        const auto rank = [&](size_t cell) { return (most - static_cast<uint32_t>(scores[cell])) >> shift; };
        uint32_t cells_at[kCellRanks] = {};
        for (size_t cell = 0; cell < total; ++cell) ++cells_at[rank(cell)];
        std::vector<uint32_t>& chosen = cell_lists_[q];
        for (size_t probes = std::min(plan_.probes, total);; probes = std::min(2 * probes, total)) {
            size_t last = 0, before = 0, count = 0;
            for (; before + cells_at[last] < probes; ++last) before += cells_at[last];
            chosen.resize(total);
            for (size_t cell = 0, ties = probes - before; cell < total; ++cell) {
                const size_t at = rank(cell), tie = at == last && ties;
                chosen[count] = static_cast<uint32_t>(cell);
                count += (at < last) | tie;
                ties -= tie;
            }
            chosen.resize(count);
            size_t classes = 0;
            for (size_t i = 0; i < count && classes < limit; ++i) classes += store.cell_size(chosen[i]);
            if (classes >= limit || count == total) break;
        }
        size_t lead = 0, leading = cells_at[0];
        while (leading < kLeadCells && lead + 1 < kCellRanks) leading += cells_at[++lead];
        std::partition(chosen.begin(), chosen.end(), [&](uint32_t cell) { return rank(cell) <= lead; });
    }

    // A query's first few cells by themselves, because they hold most of what it will keep; then cell by cell, for all
    // queries that want it.
    void scan_cells(size_t first, size_t count, size_t split, size_t splits, size_t limit, SearchWorker& worker) {
        const Sketcher& sketcher = index_.scan_->sketcher;
        const SketchStore& store = index_.scan_->store;
        worker.asking.assign(index_.cells_->count(), 0);
        for (size_t q = 0; q < count; ++q) {
            SketchQuery& sketch = worker.sketch[q];
            sketcher.encode_query(query(first + q), store.factor_scale(), store.bias_scale(), true, sketch);
            BestList& list = lists_[(first + q) * splits + split];
            list.start(limit, 2 * kBlock);
            const size_t room = std::min(list.capacity(), 2 * limit + 2 * kBlock);  // cut early: floors rise quickly
            ScanQuery& scan = worker.scans[q];
            scan = {sketch.tables.data(), sketch.alpha, sketch.beta, -32768, list.data(), 0, room};
            const std::vector<uint32_t>& cells = cell_lists_[first + q];
            for (size_t i = split; i < cells.size(); i += splits)
                if (i < kLeadCells)
                    scan_cell(cells[i], &scan, 1, [&](size_t) -> BestList& { return list; });
                else
                    worker.asking[cells[i]] |= uint64_t{1} << q;
            cut(list, scan);
        }
        for (size_t cell = 0; cell < worker.asking.size(); ++cell)
            for (uint64_t asking = worker.asking[cell]; asking;) {
                ScanQuery scans[kScanTile];
                size_t from[kScanTile], n = 0;
                for (; asking && n < kScanTile; asking &= asking - 1, ++n) {
                    from[n] = static_cast<size_t>(std::countr_zero(asking));
                    scans[n] = worker.scans[from[n]];
                }
                scan_cell(cell, scans, n,
                          [&](size_t q) -> BestList& { return lists_[(first + from[q]) * splits + split]; });
                for (size_t q = 0; q < n; ++q) worker.scans[from[q]] = scans[q];
            }
        for (size_t q = 0; q < count; ++q) cut(lists_[(first + q) * splits + split], worker.scans[q]);
    }

    template <class List>
    void scan_cell(size_t cell, ScanQuery* scans, size_t count, List list) {
        const ScanPlan plan = index_.scan_->store.plan(index_.scan_->sketcher.gain());
        const std::vector<uint32_t>& blocks = index_.scan_->store.cell_blocks(cell);
        for (size_t i = 0, next; i < blocks.size(); i = next) {
            for (next = i + 1; next < blocks.size() && blocks[next] == blocks[next - 1] + 1;) ++next;
            size_t at = blocks[i];
            const size_t end = at + (next - i);
            while ((at = kernels_.scan_sketch(plan, scans, count, at, end)) < end)
                for (size_t q = 0; q < count; ++q)
                    if (scans[q].count + kBlock > scans[q].capacity) cut(list(q), scans[q]);
        }
    }

    // Re-ranks what the scan found by the longer sketch.
    void refine() {
        const size_t splits = count_ < plan_.threads ? plan_.threads : 1;
        if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
        parallel_for(count_ * splits, plan_.threads, [&](size_t task, size_t worker) {
            const size_t q = task / splits, n = ids_[q].size(), split = task % splits;
            const uint32_t* ids = ids_[q].data();
            lists_[task].start(plan_.candidates, plan_.candidates);
            score_by_sketch(q, {ids + n * split / splits, ids + n * (split + 1) / splits}, lists_[task],
                            workers_[worker]);
        });
        gather_lists(splits, false);
    }

    // Joins what the threads found for each query and cuts again.
    void gather_lists(size_t splits, bool repeats) {
        parallel_for(count_, plan_.threads, [&](size_t q, size_t) {
            BestList& all = lists_[q * splits];
            if (splits > 1) {
                size_t total = 0;
                for (size_t split = 0; split < splits; ++split) total += lists_[q * splits + split].count;
                all.grow(total);
                for (size_t split = 1; split < splits; ++split)
                    for (const uint64_t key : lists_[q * splits + split]) all.push(key);
                if (repeats) all.drop_repeats();
                all.cut(false);
            }
            if (!out_.classes) std::sort(all.data(), all.data() + all.count);  // a shortlist is in order of rank
            ids_[q].resize(all.count);
            std::transform(all.begin(), all.end(), ids_[q].begin(), key_id);
        });
    }

    // In order of ids rows are read in order of memory, and sums do not depend on who found what.
    void sort_ids(std::vector<uint32_t>& ids, SearchWorker& worker) {
        const size_t words = (index_.classes_ + 63) / 64;
        if (words > 16 * ids.size()) return std::sort(ids.begin(), ids.end());
        worker.seen.resize(words, 0);
        for (const uint32_t id : ids) worker.seen[id / 64] |= uint64_t{1} << (id % 64);
        size_t at = 0;
        for (size_t word = 0; word < words; ++word)
            for (uint64_t& bits = worker.seen[word]; bits; bits &= bits - 1)
                ids[at++] = static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
    }

    void by_tables(size_t q, size_t split, size_t splits, BestList& list, SearchWorker& worker) {
        list.start(plan_.candidates, plan_.candidates);
        worker.hits.clear();
        worker.voted.start(plan_.keep, 4 * kBlock);
        const bool hashed = index_.hasher_->hash_query(query(q), worker.winners);  // a constant query has no codes
        if (hashed && plan_.probes > 1) {
            worker.probes.plan(*index_.hasher_, worker.winners, *index_.tables_, index_.shape_.skip_silent,
                               plan_.probes, plan_.keep);
            worker.probes.read(*index_.tables_, split, splits, worker.hits);
            if (!index_.sketch_) count_hits(worker);
        } else if (hashed) {
            count_votes(worker);
        }
        if (index_.sketch_) {
            for (const uint64_t key : worker.voted) worker.hits.push_back(key_id(key));
            if (split == 0) worker.hits.insert(worker.hits.end(), index_.always_.begin(), index_.always_.end());
            drop_repeats(worker);
            return score_by_sketch(q, worker.hits, list, worker);
        }
        if (index_.shape_.rescore) return rescore(q, list, worker);
        for (const uint64_t key : worker.voted) list.push(key);
        list.cut();
    }

    // Dense counting, block of classes by block: the paper's votes. Leaves the best `keep` in worker.voted.
    void count_votes(SearchWorker& worker) {
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
                if (at < n) floor = std::max(floor, worker.voted.cut());
            }
            floor = std::max(floor, worker.voted.cut());
        }
    }

    template <class Table>
    void count_block(size_t bands, SearchWorker& worker, Table table) {
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

    // Several buckets may hold one class: the first mention stays.
    void drop_repeats(SearchWorker& worker) {
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

    void score_by_sketch(size_t q, std::span<const uint32_t> ids, BestList& list, SearchWorker& worker) {
        const Sketcher& sketcher = index_.sketch_->sketcher;
        const SketchStore& store = index_.sketch_->store;
        SketchQuery& sketch = worker.sketch[0];
        sketcher.encode_query(query(q), store.factor_scale(), store.bias_scale(), false, sketch);
        constexpr size_t ahead = 24;
        const int gain = sketcher.gain();
        int floor = -32769;
        for (size_t i = 0; i < ids.size(); ++i) {
            if (i + ahead < ids.size()) __builtin_prefetch(store.record(ids[i + ahead]));
            const int score = store.score(ids[i], sketch, gain);
            if (score < floor || removed(ids[i])) continue;
            if (list.count == list.capacity()) floor = list.cut(false);
            list.push(best_first_key(score, ids[i]));
        }
        list.cut(false);
    }

    // Votes from a bag of hits: equal ids become neighbours.
    void count_hits(SearchWorker& worker) {
        std::vector<uint32_t>& hits = worker.hits;
        std::sort(hits.begin(), hits.end());
        for (size_t i = 0, j; i < hits.size(); i = j) {
            for (j = i; j < hits.size() && hits[j] == hits[i];) ++j;
            worker.voted.push(best_first_key(static_cast<int>(j - i), hits[i]));
        }
        worker.voted.cut();
    }

    // Norm- and bias-aware order of the voted and the always-candidates: |x| |w| f(votes) + bias.
    void rescore(size_t q, BestList& list, SearchWorker& worker) {
        const float length = std::sqrt(kernels_.sum_squares(query(q), index_.shape_.features));
        const auto& weights = index_.vote_weights_;
        std::vector<uint64_t>& ranked = worker.ranked;
        ranked.assign(worker.voted.begin(), worker.voted.end());
        const auto by_id = [](uint64_t key, uint32_t id) { return key_id(key) < id; };
        for (const uint32_t id : index_.always_) {
            const uint64_t* at = std::lower_bound(worker.voted.begin(), worker.voted.end(), id, by_id);
            if (at == worker.voted.end() || key_id(*at) != id) ranked.push_back(best_first_key(0, id));
        }
        for (uint64_t& key : ranked) {
            const uint32_t id = key_id(key);
            const auto votes = std::min<size_t>(static_cast<size_t>(key_score(key)), weights.size() - 1);
            const float score = length * (index_.norms_[id] * weights[votes]) + index_.bias_[id];
            key = best_first(score, id);
        }
        const size_t keep = std::min(plan_.candidates, ranked.size());
        std::nth_element(ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(keep), ranked.end());
        ranked.resize(keep);
        if (!out_.classes) std::sort(ranked.begin(), ranked.end());
        for (size_t i = 0; i < keep; ++i)
            list.push(best_first_key(-static_cast<int>(std::min<size_t>(i, 32768)), key_id(ranked[i])));
    }

    // False where a logit is not finite.
    bool finish(size_t q, SearchWorker& worker) {
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
            out_.log_probs[at * out_.k + i] = i >= k          ? kNothing
                                              : out_.logistic ? log_sigmoid(logit)
                                                              : logit - normalizer;
        }
        list_candidates(q);
        if (out_.candidate_logits)
            for (size_t i = 0; i < plan_.candidates; ++i)
                out_.candidate_logits[at * plan_.candidates + i] = i < ids.size() ? logits[i] : kNothing;
        return std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); });
    }

    void list_candidates(size_t q) const {
        if (!out_.candidates) return;
        int64_t* to = out_.candidates + (first_ + q) * plan_.candidates;
        for (size_t i = 0; i < plan_.candidates; ++i) to[i] = i < ids_[q].size() ? int64_t{ids_[q][i]} : -1;
    }

    Index& index_;
    const SearchPlan& plan_;
    const SearchOut& out_;
    const Kernels& kernels_;
    SearchScratch& scratch_;
    std::vector<SearchWorker>& workers_;
    std::vector<BestList>& lists_;
    std::vector<std::vector<uint32_t>>& ids_;
    std::vector<std::vector<float>>& logits_;
    std::vector<int32_t>& cell_scores_;
    std::vector<std::vector<uint32_t>>& cell_lists_;
    const float* queries_ = nullptr;
    size_t count_ = 0, first_ = 0;
};

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

void Index::votes(const float* query, uint16_t* counts, size_t count) {
    IndexLock::Reading reading(lock_);
    std::fill(counts, counts + count, uint16_t{0});
    QueryWinners winners;
    if (!hasher_->hash_query(query, winners)) return;
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
