// Candidates from a flat pass over the sketch of every class. Floors and bounds only save work: they change no result.
#include <algorithm>
#include <cmath>

#include "search.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kSampleRuns = 32, kRunBlocks = 1, kSampleRoom = kSampleRuns * kRunBlocks * kBlock;

}  // namespace

// Queries share passes over the codes in tiles; when tiles are few, threads share the classes instead.
void Search::by_flat_scan() {
    const size_t limit = scan_limit();
    const size_t tile = std::clamp<size_t>(count_ / plan_.threads, 1, kScanTile);
    const size_t tiles = (count_ + tile - 1) / tile, splits = tiles < plan_.threads ? plan_.threads : 1;
    if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
    parallel_for(tiles * splits, plan_.threads, [&](size_t task, size_t worker) {
        const size_t first = task / splits * tile;
        scan(first, std::min(tile, count_ - first), task % splits, splits, limit, workers_[worker]);
    });
    gather_lists(splits, false);
}

void Search::scan(size_t first, size_t count, size_t split, size_t splits, size_t limit, SearchWorker& worker) {
    const Sketcher& sketcher = index_.scan_->sketcher;
    const SketchStore& store = index_.scan_->store;
    ScanQuery scans[kScanTile];
    BestList* lists[kScanTile];
    for (size_t q = 0; q < count; ++q) {
        SketchQuery& sketch = worker.sketch[q];
        sketcher.encode_query(query(first + q), store.factor_scale(), store.bias_scale(), true, sketch);
        lists[q] = &lists_[(first + q) * splits + split];
        lists[q]->start(limit, std::max<size_t>(2 * kBlock, kSampleRoom));
        scans[q] = {sketch.tables.data(), sketch.alpha, sketch.beta, -32768, lists[q]->data(), 0, lists[q]->capacity()};
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
void Search::scan_spans(const SketchStore& store, ScanQuery* scans, BestList** lists, size_t count, size_t split,
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
void Search::guess_floors(const SketchStore& store, ScanQuery* scans, BestList** lists, size_t count, size_t limit,
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

void Search::cut(BestList& list, ScanQuery& scan) {
    list.count = scan.count;
    if (!index_.removed_.empty())
        list.count = static_cast<size_t>(
            std::remove_if(list.data(), list.data() + list.count, [&](uint64_t key) { return removed(key_id(key)); }) -
            list.data());
    scan.floor = static_cast<int16_t>(std::max<int>(list.cut(false) - 1, scan.floor));
    scan.count = list.count;
}

}  // namespace manyclass
