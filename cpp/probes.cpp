#include "probes.h"

#include <algorithm>

#include "limits.h"

namespace manyclass {
namespace {

constexpr size_t kCosts = 2048;  // probes are ordered by cost in steps of 8 key units
constexpr unsigned kCostShift = 3;

struct Flip {
    uint32_t margin, change;  // xor that swaps the winner for the runner-up in the bucket number
};

}  // namespace

void ProbeList::plan(const WinnerHasher& hasher, const QueryWinners& winners, const BandTables& tables,
                     bool skip_silent, size_t probes, size_t budget) {
    const WinnerHasherShape& shape = hasher.shape();
    const size_t bands = shape.bands, padded = hasher.padded_bands(), flips = std::min(shape.planes, kMaxProbedCodes);
    const size_t subsets = size_t{1} << flips;
    probes_.resize(bands * subsets);
    costs_.resize(bands * subsets);
    starts_.assign(kCosts + 1, 0);
    Flip order[kMaxBucketBits];  // those with the least margin first; a code has at least one bit
    for (uint32_t band = 0; band < bands; ++band) {
        for (size_t plane = 0; plane < shape.planes; ++plane) {
            const size_t at = plane * padded + band;
            const uint32_t change = static_cast<uint32_t>(winners.best[at] ^ winners.second[at]);
            Flip flip{winners.margin[at], change << (plane * shape.code_bits)};
            size_t slot = plane;
            for (; slot && order[slot - 1].margin > flip.margin; --slot) order[slot] = order[slot - 1];
            order[slot] = flip;
        }
        Probe* probe = probes_.data() + band * subsets;
        uint16_t* cost = costs_.data() + band * subsets;
        const bool silent = skip_silent && winners.silent[band];
        uint32_t sums[1u << kMaxProbedCodes];
        probe[0] = {band, winners.buckets[band]};
        sums[0] = 0;
        for (size_t flip = 0; flip < flips; ++flip)
            for (size_t low = 0, bit = size_t{1} << flip; low < bit; ++low) {
                probe[bit | low] = {band, probe[low].bucket ^ order[flip].change};
                sums[bit | low] = sums[low] + order[flip].margin;
            }
        for (size_t subset = 0; subset < subsets; ++subset) {
            cost[subset] =
                static_cast<uint16_t>(silent ? kCosts : std::min<uint32_t>(sums[subset] >> kCostShift, kCosts - 1));
            if (!silent) ++starts_[cost[subset] + 1u];
        }
    }
    sort(probes * bands);
    choose(tables, budget);
}

// Counting sort by cost, which keeps the order of equals; the `limit` cheapest.
void ProbeList::sort(size_t limit) {
    size_t wanted = 0, last = 0;
    for (; last < kCosts; ++last) {
        starts_[last + 1] += starts_[last];
        wanted = starts_[last + 1];
        if (wanted >= limit) break;
    }
    sorted_.resize(wanted);
    for (size_t i = 0; i < probes_.size(); ++i)
        if (costs_[i] <= last && costs_[i] < kCosts) sorted_[starts_[costs_[i]]++] = probes_[i];
    sorted_.resize(std::min(wanted, limit));
}

// A bucket that is larger than what is left of the budget is passed over.
void ProbeList::choose(const BandTables& tables, size_t budget) {
    chosen_.clear();
    constexpr size_t ahead = 32;
    for (size_t i = 0; i < sorted_.size() && budget; ++i) {
        if (i + ahead < sorted_.size())
            __builtin_prefetch(tables.table(sorted_[i + ahead].band).header(sorted_[i + ahead].bucket));
        const Bucket* bucket = tables.table(sorted_[i].band).header(sorted_[i].bucket);
        if (!bucket->size || bucket->size > budget) continue;
        budget -= bucket->size;
        chosen_.push_back(sorted_[i]);
        __builtin_prefetch(tables.table(sorted_[i].band).ids() + bucket->start);
    }
}

void ProbeList::read(const BandTables& tables, size_t split, size_t splits, std::vector<uint32_t>& hits) const {
    hits.clear();
    for (size_t i = split; i < chosen_.size(); i += splits) {
        const auto ids = tables.table(chosen_[i].band)[chosen_[i].bucket];
        hits.insert(hits.end(), ids.begin(), ids.end());
    }
}

}  // namespace manyclass
