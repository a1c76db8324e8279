// Winner-take-all codes of one vector, spelled as one bucket number per band (paper, section 3.2).
#pragma once
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace manyclass {

struct WinnerHasherShape {
    size_t features, bands, planes, window, code_bits, copies;
    bool exact_keys;
};

// The winners of a query and what multi-probing needs beside them.
struct QueryWinners {
    std::vector<uint32_t> buckets;
    std::vector<uint8_t> best, second, silent;
    std::vector<uint16_t> margin;
};

class WinnerHasher {
public:
    // permutations [copies][features]; offsets [groups][planes][window], each below features.
    WinnerHasher(const WinnerHasherShape& shape, const uint32_t* permutations, const uint32_t* offsets);

    size_t bands() const { return shape_.bands; }
    size_t padded_bands() const { return groups_ * 16; }
    const WinnerHasherShape& shape() const { return shape_; }

    // Bucket numbers of all bands; false, with nothing written, for a constant vector: it ties everywhere.
    bool hash(const float* x, uint32_t* buckets) const;
    bool hash_query(const float* x, QueryWinners& out) const;

private:
    bool run(const float* x, uint32_t* padded_buckets, const WinnerDetail* detail) const;
    WinnerHasherShape shape_;
    size_t groups_, copy_stride_;
    std::vector<uint32_t> gather_;  // permutations, already extended by the wrapped elements
    std::vector<uint32_t> offsets_;
};

}  // namespace manyclass
