// The `limit` best of a stream of keys (smallest first; see best_first_key). Filled with more than it keeps and cut
// back now and then, by counting scores: that costs less than a heap or a partial sort. A list fed in order of ids stays
// in order of ids; what it keeps does not depend on when it is cut.
#pragma once
#include <algorithm>
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
    uint64_t* data() { return keys_.data(); }
    const uint64_t* begin() const { return keys_.data(); }
    const uint64_t* end() const { return keys_.data() + count; }
    size_t capacity() const { return keys_.size(); }

    void grow(size_t size) {
        if (keys_.size() < size) keys_.resize(size);
    }
    void push(uint64_t key) {
        if (count == keys_.size()) cut();
        keys_[count++] = key;
    }

    // Leaves the best `limit`; ties go to the lowest id. Returns the score at the edge: keys of a list that is fed in
    // order of ids must exceed it from now on, keys of any other list must reach it.
    int cut(bool in_order = true) {
        if (count < limit_ || !limit_) return -32769;
        // The rank of a score is 17 bits: first find the 256-score band that the limit falls in, then the score.
        uint32_t coarse[512] = {}, fine[256] = {};
        for (const uint64_t key : *this) ++coarse[key >> 40];
        size_t better = 0, band = 0;
        while (better + coarse[band] < limit_) better += coarse[band++];
        for (const uint64_t key : *this)
            if (key >> 40 == band) ++fine[(key >> 32) & 255];
        size_t at = 0;
        while (better + fine[at] < limit_) better += fine[at++];
        const uint64_t edge = band << 8 | at;
        size_t ties = limit_ - better, kept = 0;
        if (!in_order && ties < fine[at]) move_lowest_ties_first(edge, ties);
        for (size_t i = 0; i < count; ++i) {
            const uint64_t rank = keys_[i] >> 32;
            if (rank > edge || (rank == edge && !ties)) continue;
            ties -= rank == edge;
            keys_[kept++] = keys_[i];
        }
        count = kept;
        return 65535 - static_cast<int>(edge);
    }

    size_t count = 0;

    void drop_repeats() {
        const auto first = keys_.begin(), last = first + static_cast<std::ptrdiff_t>(count);
        std::sort(first, last);
        count = static_cast<size_t>(std::unique(first, last) - first);
    }

private:
    void move_lowest_ties_first(uint64_t edge, size_t ties) {
        const auto first = keys_.begin(), last = first + static_cast<std::ptrdiff_t>(count);
        const auto rest = std::partition(first, last, [edge](uint64_t key) { return key >> 32 == edge; });
        std::nth_element(first, first + static_cast<std::ptrdiff_t>(ties), rest);
    }

    std::vector<uint64_t> keys_;
    size_t limit_ = 0;
};

}  // namespace manyclass
