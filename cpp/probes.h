// Multi-probing (Lv et al., VLDB 2007, for winner codes): where the winner is only just ahead, the runner-up's bucket
// is the next most likely place. Buckets of all bands are read in order of how little had to be changed.
#pragma once
#include <cstdint>
#include <vector>

#include "band_tables.h"
#include "bucket_numbers.h"

namespace manyclass {

class ProbeList {
public:
    // Lists buckets, cheapest change first, at most probes * bands of them and `budget` ids; one that does not fit is
    // passed over, so a giant bucket never crowds out the others.
    void plan(const WinnerHasher& hasher, const QueryWinners& winners, const BandTables& tables, bool skip_silent,
              size_t probes, size_t budget);
    // Ids in every splits-th listed bucket.
    void read(const BandTables& tables, size_t split, size_t splits, std::vector<uint32_t>& hits) const;

private:
    struct Probe {
        uint32_t band, bucket;
    };
    void sort(size_t limit);
    void choose(const BandTables& tables, size_t budget);
    std::vector<Probe> probes_, sorted_, chosen_;
    std::vector<uint16_t> costs_;
    std::vector<uint32_t> starts_;
};

}  // namespace manyclass
