// Candidates from a flat pass over the sketch of every class. Floors and bounds only save work: they change no result.
#include <algorithm>
#include <cmath>

#include "search.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kSampleRuns = 32, kRunBlocks = 1, kSampleRoom = kSampleRuns * kRunBlocks * kBlock;

// Scores must be above this to have the rank at the edge of a list, or a better one.
int16_t floor_at(uint64_t rank) {
    return static_cast<int16_t>(std::clamp(rank_score(rank) - 1, -32768, 32767));
}

}  // namespace

// Queries share passes over the codes in tiles; when tiles are few, threads share the classes instead.
void Search::by_flat_scan() {
    const size_t tile = std::clamp<size_t>(count_ / plan_.threads, 1, kScanTile);
    const size_t tiles = (count_ + tile - 1) / tile, splits = tiles < plan_.threads ? plan_.threads : 1;
    if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
    parallel_for(tiles * splits, plan_.threads, [&](size_t task, size_t worker) {
        const size_t first = task / splits * tile;
        scan(first, std::min(tile, count_ - first), task % splits, splits, workers_[worker]);
    });
    gather_lists(splits, scan_kept(), false);
}

void Search::scan(size_t first, size_t count, size_t split, size_t splits, SearchWorker& worker) {
    const SketchBlocks& store = index_.scan_->store;
    ScanQuery scans[kScanTile];
    BestList* lists[kScanTile];
    const size_t outliers = split == 0 ? store.outliers().size() : 0;
    size_t most = 0;
    for (size_t q = 0; q < count; ++q) {
        ScannedQuery& scanned = worker.scanned[q];
        const size_t limit = wanted(first + q, scan_kept());
        most = std::max(most, limit);
        index_.scan_->sketcher.encode_query(query(first + q), store.scales(), scanned);
        lists[q] = &lists_[(first + q) * splits + split];
        lists[q]->start(limit, std::max<size_t>(2 * kBlock, kSampleRoom) + outliers);
        scans[q] = {scanned.tables.data(), scanned.alpha, scanned.beta, -32768, lists[q]->data(), 0,
                    lists[q]->capacity()};
    }
    guess_floors(scans, lists, count, most, worker);
    const auto pass = [&] {
        for (size_t q = 0; outliers && q < count; ++q) add_outliers(scans[q], worker.scanned[q]);
        scan_spans(scans, lists, count, split, splits, worker);
    };
    pass();
    bool enough = true;
    for (size_t q = 0; q < count; ++q)
        enough &= lists[q]->count >= wanted(first + q, scan_kept()) || scans[q].floor == -32768;
    if (enough) return;
    for (size_t q = 0; q < count; ++q) scans[q].count = 0, scans[q].floor = -32768;
    pass();
}

// Every splits-th span, so that each share has its part of the classes with large factors.
void Search::scan_spans(ScanQuery* scans, BestList** lists, size_t count, size_t split, size_t splits,
                        SearchWorker& worker) {
    const SketchBlocks& store = index_.scan_->store;
    const ScanPlan plan = store.plan(index_.scan_->sketcher.gain());
    for (size_t span = split; span < store.spans(); span += splits) {
        bool promising = false;
        for (size_t q = 0; q < count; ++q) promising |= store.bound(span, worker.scanned[q]) > scans[q].floor;
        if (!promising) continue;
        size_t at = span * SketchBlocks::kSpanBlocks;
        const size_t end = std::min(store.blocks(), at + SketchBlocks::kSpanBlocks);
        while ((at = kernels_.scan_sketch(plan, scans, count, at, end)) < end)
            for (size_t q = 0; q < count; ++q)
                if (scans[q].count + kBlock > scans[q].capacity) cut(*lists[q], scans[q], worker.scanned[q]);
    }
    for (size_t q = 0; q < count; ++q) cut(*lists[q], scans[q], worker.scanned[q]);
}

// Sets floors that probably let somewhat more than `limit` classes through, from a sample spread over all: lists
// then need hardly any cutting, and spans can be passed over from the start. Not where a sample would not pay.
void Search::guess_floors(ScanQuery* scans, BestList** lists, size_t count, size_t limit, SearchWorker& worker) {
    const SketchBlocks& store = index_.scan_->store;
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
        lower_sunk(scans[q], worker.scanned[q]);
        worker.voted.start(rank, scans[q].count);
        for (size_t i = 0; i < scans[q].count; ++i) worker.voted.push(scans[q].kept[i]);
        scans[q].floor = floor_at(worker.voted.cut(false));
        scans[q].count = 0;
        lists[q]->count = 0;
    }
}

// Classes that are outside the scan's scales, each scored by itself.
void Search::add_outliers(ScanQuery& scan, const ScannedQuery& query) {
    const SketchBlocks& store = index_.scan_->store;
    for (const uint32_t id : store.outliers())
        scan.kept[scan.count++] = best_first_key(store.wide_score_of(id, query, index_.leads()[id]), id);
}

// The scan takes a bias below its scale for the lowest that it knows: what it kept for that is scored again.
void Search::lower_sunk(ScanQuery& scan, const ScannedQuery& query) {
    const SketchBlocks& store = index_.scan_->store;
    if (!store.any_sunk()) return;
    for (size_t i = 0; i < scan.count; ++i) {
        const uint32_t id = key_id(scan.kept[i]);
        if (!store.sunk(id)) continue;
        const int lower = std::min(key_score(scan.kept[i]), store.wide_score_of(id, query, index_.leads()[id]));
        scan.kept[i] = best_first_key(lower, id);
    }
}

void Search::cut(BestList& list, ScanQuery& scan, const ScannedQuery& query) {
    lower_sunk(scan, query);
    list.count = scan.count;
    scan.floor = std::max(floor_at(list.cut(false)), scan.floor);
    scan.count = list.count;
}

}  // namespace manyclass
