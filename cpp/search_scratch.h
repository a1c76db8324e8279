// Everything a search writes into; kept by the index between searches, because fresh memory costs page faults.
#pragma once
#include <cstdint>
#include <vector>

#include "best_list.h"
#include "bucket_numbers.h"
#include "probes.h"
#include "sketch.h"

namespace manyclass {

constexpr size_t kQueryBlock = 64;  // queries per turn under the lock

// What one thread works with.
struct SearchWorker {
    QueryWinners winners;
    ProbeList probes;
    SketchQuery sketch;
    std::vector<ScannedQuery> scanned;
    std::vector<ScanQuery> scans;
    std::vector<uint64_t> asking;  // for each cell, one bit per query that scans it
    std::vector<uint16_t> counters;
    std::vector<uint32_t> hits;
    std::vector<uint64_t> ranked;
    std::vector<uint64_t> seen;  // one bit per class, cleared after use
    BestList voted;
};

struct SearchScratch {
    std::vector<SearchWorker> workers;
    std::vector<float> coordinates;               // [query][width]: balanced
    std::vector<BestList> lists;                  // what each (query, share of the classes) found
    std::vector<std::vector<uint32_t>> ids;       // candidates of each query
    std::vector<std::vector<uint32_t>> excluded;  // what each query must not find, ascending
    std::vector<std::vector<float>> logits;
    std::vector<int32_t> cell_scores;               // [query][cell]
    std::vector<double> top_biases;                 // of each cell
    std::vector<std::vector<uint32_t>> cell_lists;  // cells that each query scans, some of the best first
    std::vector<uint32_t> starts, next, pairs;      // candidates sorted by class
    std::vector<float> sums;
};

}  // namespace manyclass
