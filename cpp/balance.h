// A change of coordinates after which rows and queries vary alike (src/manyclass/_balance.py says how it is found).
//
// x.w = mean.w + (x - mean).w: the first term is the class's mean logit, exact up to rounding; the second is the
// product of the query's coordinates with the row's. Vectors and matrices are whole numbers where they are multiplied,
// so that sums are exact and coordinates the same everywhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "level_matrix.h"

namespace manyclass {

class Balance {
public:
    // Without directions, coordinates are the features, moved and scaled.
    struct Parts {
        size_t features, directions;
        const float *mean, *centre;  // [features] of the queries, of the rows
        const double* scales;        // [features]
        const int8_t* query_levels;  // [directions][features]
        const double* query_units;   // [directions]
        const int16_t* row_levels;   // [directions + 1][features]; the last makes the mean logit
        const double* row_units;     // [directions + 1]
    };
    explicit Balance(const Parts& parts);
    size_t width() const { return directions_ ? directions_ : features_; }
    size_t bytes() const { return query_levels_.bytes() + row_high_.bytes() + row_low_.bytes(); }
    // Coordinates begin..end of up to kScanTile queries (dense); out [count][width].
    void map_queries(const float* queries, size_t count, size_t begin, size_t end, float* out) const;
    // Writes the row's coordinates; returns its mean logit without the bias.
    double map_row(const float* row, float* out) const;

private:
    double levels(const std::vector<double>& x, int most, int16_t* out) const;  // returns the unit they are in
    size_t features_, directions_;
    std::vector<float> mean_, centre_;
    std::vector<double> scales_, query_units_, row_units_;
    LevelMatrix query_levels_;        // [directions][features]
    LevelMatrix row_high_, row_low_;  // [directions + 1][features]: 128 high + low
};

}  // namespace manyclass
