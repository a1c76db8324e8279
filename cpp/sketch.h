// One sign bit per rotated feature and two small numbers per class: an unbiased guess at the logit in a few bytes.
//
// A row w is stored as the signs of the first bits of R(w - centre), R a fast random rotation, with the factor that
// makes the guess exact for the row itself (RaBitQ, SIGMOD 2024) and the bias. A query is rounded to integers in
// [-7, 7]. The guess is sum * factor * unit + bias, where sum is that of the query's integers with the row's signs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace manyclass {

struct SketchRow {
    std::vector<uint8_t> code;
    float factor = 0;
};

// Powers of two that the scan's 16-bit factors and biases are fractions of.
struct SketchScales {
    double factor = 0, bias = 0;
};

// A query as the scan wants it. Its scores are 16-bit integers in units that suit the query: only their order matters.
struct ScannedQuery {
    std::vector<uint8_t> tables;  // [bits/4][16], and what fill_scan_tables puts behind them
    int reach = 0;                // the largest raw score any code can get, shifted and weighted by alpha
    int16_t alpha = 0, beta = 0;
    double unit = 0;      // of the query's integers
    double per_unit = 0;  // what a logit of 1 is in scores
};

// A query as single classes are scored with it.
struct SketchQuery {
    std::vector<uint8_t> planes;  // [4][bits/8 rounded up to 8]
    int level_sum = 0;
    double unit = 0;
};

class Sketcher {
public:
    // signs [chunks][2][width]: +1 or -1; width is a power of two, at least features. The centre is zero until it is
    // set.
    Sketcher(size_t features, size_t bits, size_t width, const float* signs);
    size_t bits() const { return bits_; }
    size_t code_bytes() const { return bits_ / 8; }
    void set_centre(const float* centre) { centre_.assign(centre, centre + features_); }
    const std::vector<float>& centre() const { return centre_; }
    void encode_row(const float* row, SketchRow& out) const;
    void encode_query(const float* x, const SketchScales& scales, ScannedQuery& out) const;
    void encode_query(const float* x, SketchQuery& out) const;
    int gain() const { return gain_; }

private:
    const float* rotate(const float* x, const float* minus) const;  // bits_ floats, valid until the next call
    double levels_of(const float* x, int8_t* levels) const;         // returns the unit they are in
    size_t features_, bits_, width_, chunks_;
    int gain_ = 0;
    std::vector<float> signs_, centre_;
};

}  // namespace manyclass
