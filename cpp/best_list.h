// The `limit` best of a stream of keys (smallest first; see best_first_key). Filled with more than it keeps and cut
// back now and then, by counting scores: that costs less than a heap or a partial sort. A list fed in order of ids
// stays in order of ids; what it keeps does not depend on when it is cut.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace manyclass {

class BestList {
public:
    void start(size_t limit, size_t room) {
        limit_ = limit;
        if (keys_.size() < 3 * limit + room) keys_.resize(3 * limit + room);
        count = 0;
    }
    static constexpr uint64_t kNoEdge = uint64_t{1} << 32;
    uint64_t* data() { return keys_.data(); }
    const uint64_t* begin() const { return keys_.data(); }
    const uint64_t* end() const { return keys_.data() + count; }
    size_t capacity() const { return keys_.size(); }

    void set_limit(size_t limit) { limit_ = limit; }
    void grow(size_t size) {
        if (keys_.size() < size) keys_.resize(size);
    }
    void push(uint64_t key) {
        if (count == keys_.size()) cut();
        keys_[count++] = key;
    }

    // Leaves the best `limit`; ties go to the lowest id. Returns the rank (a key's upper half) at the edge, or kNoEdge
    // where there are fewer: keys of a list that is fed in order of ids must have a lower one from now on, keys of any
    // other list must not have a higher one.
    uint64_t cut(bool in_order = true) {
        if (count < limit_ || !limit_) return kNoEdge;
        uint64_t low = ~uint64_t{0}, high = 0;
        for (const uint64_t key : *this) low = std::min(low, key), high = std::max(high, key);
        low >>= 32, high >>= 32;
        size_t better = 0;
        // Counting sort on the rank, in bins narrow enough to be few; then once more inside the bin of the edge.
        while (true) {
            const unsigned shift = high - low < kBins ? 0 : std::bit_width((high - low) / kBins);
            const size_t bin = edge_bin(low, high, shift, better);
            low += bin << shift;
            if (!shift) break;
            high = low + (uint64_t{1} << shift) - 1;
        }
        const uint64_t edge = low;
        size_t ties = limit_ - better, kept = 0;
        if (!in_order) move_lowest_ties_first(edge, ties);
        for (size_t i = 0; i < count; ++i) {
            const uint64_t key = keys_[i], rank = key >> 32;
            const bool tie = rank == edge && ties;
            ties -= tie;
            keys_[kept] = key;
            kept += rank < edge || tie;
        }
        count = kept;
        return edge;
    }

    void drop_repeats() {
        const auto first = keys_.begin(), last = first + static_cast<std::ptrdiff_t>(count);
        std::sort(first, last);
        count = static_cast<size_t>(std::unique(first, last) - first);
    }

    size_t count = 0;

private:
    static constexpr size_t kBins = 1024;

    // Which bin of ranks low..high holds the limit-th key; adds the keys in earlier bins to `better`.
    size_t edge_bin(uint64_t low, uint64_t high, unsigned shift, size_t& better) const {
        uint32_t bins[kBins + 1] = {};
        for (const uint64_t key : *this) {
            const uint64_t rank = key >> 32;
            ++bins[rank - low <= high - low ? (rank - low) >> shift : kBins];
        }
        size_t bin = 0;
        while (better + bins[bin] < limit_) better += bins[bin++];
        return bin;
    }

    void move_lowest_ties_first(uint64_t edge, size_t ties) {
        const auto first = keys_.begin(), last = first + static_cast<std::ptrdiff_t>(count);
        const auto rest = std::partition(first, last, [edge](uint64_t key) { return key >> 32 == edge; });
        if (ties >= static_cast<size_t>(rest - first)) return;
        std::nth_element(first, first + static_cast<std::ptrdiff_t>(ties), rest);
    }

    std::vector<uint64_t> keys_;
    size_t limit_ = 0;
};

}  // namespace manyclass
