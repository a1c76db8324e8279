// Candidates from the cells that promise a query most: which cells, then a pass over their sketches.
#include <algorithm>
#include <bit>

#include "search.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

static_assert(kQueryBlock <= 64);  // queries that ask for a cell are bits of a word
constexpr size_t kLeadCells = 4;   // cells that a query scans first, to know how good a candidate must be

}  // namespace

// As by_flat_scan, but each query passes over the cells that promise most and no others.
void Search::by_cells() {
    choose_cells();
    const size_t splits = count_ < plan_.threads ? plan_.threads : 1;
    const size_t group = splits > 1 ? 1 : (count_ + plan_.threads - 1) / plan_.threads;
    if (lists_.size() < count_ * splits) lists_.resize(count_ * splits);
    parallel_for((count_ + group - 1) / group * splits, plan_.threads, [&](size_t task, size_t worker) {
        const size_t first = task / splits * group;
        scan_cells(first, std::min(group, count_ - first), task % splits, splits, workers_[worker]);
    });
    gather_lists(splits, scan_kept(), false);
}

void Search::choose_cells() {
    const Cells& cells = *index_.cells_;
    const size_t total = cells.count();
    const size_t tile = std::clamp<size_t>(count_ / plan_.threads, 1, kScanTile);
    const size_t tiles = (count_ + tile - 1) / tile, splits = tiles < plan_.threads ? plan_.threads : 1;
    cell_scores_.resize(kQueryBlock * total);
    cell_lists_.resize(kQueryBlock);
    std::vector<double>& top_biases = scratch_.top_biases;
    top_biases.resize(total);
    for (size_t cell = 0; cell < total; ++cell) top_biases[cell] = index_.scan_->store.top_bias(cell);
    parallel_for(tiles * splits, plan_.threads, [&](size_t task, size_t worker) {
        const size_t first = task / splits * tile, n = std::min(tile, count_ - first), split = task % splits;
        const float* queries[kScanTile];
        int32_t* out[kScanTile];
        for (size_t q = 0; q < n; ++q) queries[q] = query(first + q), out[q] = scores_of(first + q);
        cells.scores(queries, n, index_.scan_->store.radii().data(), top_biases.data(), total * split / splits,
                     total * (split + 1) / splits, out);
        if (splits == 1)
            for (size_t q = first; q < first + n; ++q) best_cells(q, workers_[worker]);
    });
    for (size_t q = 0; splits > 1 && q < count_; ++q) best_cells(q, workers_[0]);
}

// The best `plan.cells` cells, and twice as many as long as they hold fewer classes than are looked for; ties go to the
// lowest.
void Search::best_cells(size_t q, SearchWorker& worker) {
    const size_t total = index_.cells_->count(), limit = wanted(q, scan_kept());
    const SketchBlocks& store = index_.scan_->store;
    const int32_t* scores = scores_of(q);
    BestList& best = worker.voted;
    for (size_t count = std::min(plan_.cells, total);; count = std::min(2 * count, total)) {
        best.start(count, total);
        for (size_t cell = 0; cell < total; ++cell)
            best.data()[cell] = best_first_key(scores[cell], static_cast<uint32_t>(cell));
        best.count = total;
        best.cut();
        size_t classes = 0;
        for (size_t i = 0; i < count && classes < limit; ++i) classes += store.cell_size(key_id(best.begin()[i]));
        if (classes >= limit || count == total) break;
    }
    const auto lead = static_cast<ptrdiff_t>(std::min(kLeadCells, best.count));
    std::partial_sort(best.data(), best.data() + lead, best.data() + best.count);
    cell_lists_[q].resize(best.count);
    std::transform(best.begin(), best.end(), cell_lists_[q].begin(), key_id);
    if (!out_.scanned) return;
    int64_t& scanned = out_.scanned[first_ + q] = 0;
    for (const uint32_t cell : cell_lists_[q]) scanned += static_cast<int64_t>(store.cell_size(cell));
}

template <class List>
void Search::scan_cell(size_t cell, ScanQuery* scans, size_t count, List full) {
    const ScanPlan plan = index_.scan_->store.plan(index_.scan_->sketcher.gain());
    const std::vector<uint32_t>& blocks = index_.scan_->store.cell_blocks(cell);
    for (size_t i = 0, next; i < blocks.size(); i = next) {
        for (next = i + 1; next < blocks.size() && blocks[next] == blocks[next - 1] + 1;) ++next;
        size_t at = blocks[i];
        const size_t end = at + (next - i);
        while ((at = kernels_.scan_sketch(plan, scans, count, at, end)) < end)
            for (size_t q = 0; q < count; ++q)
                if (scans[q].count + kBlock > scans[q].capacity) full(q);
    }
}

// A query's first few cells by themselves, because they hold most of what it will keep; then cell by cell, for all
// queries that want it.
void Search::scan_cells(size_t first, size_t count, size_t split, size_t splits, SearchWorker& worker) {
    const Sketcher& sketcher = index_.scan_->sketcher;
    const SketchBlocks& store = index_.scan_->store;
    worker.asking.assign(index_.cells_->count(), 0);
    for (size_t q = 0; q < count; ++q) {
        ScannedQuery& scanned = worker.scanned[q];
        sketcher.encode_query(query(first + q), store.scales(), scanned);
        BestList& list = lists_[(first + q) * splits + split];
        const size_t limit = wanted(first + q, scan_kept()), outliers = split == 0 ? store.outliers().size() : 0;
        list.start(limit, 2 * kBlock + outliers);
        const size_t room = 2 * limit + 2 * kBlock + outliers;  // cut early: floors rise quickly
        ScanQuery& scan = worker.scans[q];
        scan = {scanned.tables.data(), scanned.alpha, scanned.beta, -32768, list.data(), 0, room};
        if (outliers) add_outliers(scan, scanned);
        const std::vector<uint32_t>& cells = cell_lists_[first + q];
        for (size_t i = split; i < cells.size(); i += splits)
            if (i < kLeadCells)
                scan_cell(cells[i], &scan, 1, [&](size_t) { cut(list, scan, scanned); });
            else
                worker.asking[cells[i]] |= uint64_t{1} << q;
        cut(list, scan, scanned);
    }
    for (size_t cell = 0; cell < worker.asking.size(); ++cell)
        for (uint64_t asking = worker.asking[cell]; asking;) {
            ScanQuery scans[kScanTile];
            size_t from[kScanTile], n = 0;
            for (; asking && n < kScanTile; asking &= asking - 1, ++n) {
                from[n] = static_cast<size_t>(std::countr_zero(asking));
                scans[n] = worker.scans[from[n]];
            }
            scan_cell(cell, scans, n, [&](size_t q) {
                cut(lists_[(first + from[q]) * splits + split], scans[q], worker.scanned[from[q]]);
            });
            for (size_t q = 0; q < n; ++q) worker.scans[from[q]] = scans[q];
        }
    for (size_t q = 0; q < count; ++q) cut(lists_[(first + q) * splits + split], worker.scans[q], worker.scanned[q]);
}

}  // namespace manyclass
