// One sign bit per rotated feature and two small numbers per class: an unbiased guess at the logit in a few bytes.
//
// A row w is stored as the signs of the first bits of R(w - centre), R a fast random rotation, with the factor that
// makes the guess exact for the row itself (RaBitQ, SIGMOD 2024) and the bias. A query is rounded to integers in
// [-7, 7]. Scores are 16-bit integers in units that suit the query: only their order matters.
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

// A query as the scan and the single-class score want it.
struct SketchQuery {
    std::vector<uint8_t> tables;  // [bits/4][16]
    std::vector<uint8_t> planes;  // [4][bits/8 rounded up to 8]
    int level_sum = 0;
    int reach = 0;  // the largest raw score any code can get, shifted and weighted by alpha
    int16_t alpha = 0, beta = 0;
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
    // factor_scale and bias_scale are the store's. flat: fill `tables`, for the flat pass; otherwise `planes` and
    // `level_sum`, for single classes.
    void encode_query(const float* x, double factor_scale, double bias_scale, bool flat, SketchQuery& out) const;
    int gain() const { return gain_; }

private:
    const float* rotate(const float* x, const float* minus) const;  // bits_ floats, valid until the next call
    void fill_tables(const int8_t* levels, SketchQuery& out) const;
    void fill_planes(const int8_t* levels, SketchQuery& out) const;
    size_t features_, bits_, width_, chunks_;
    int gain_ = 0;
    std::vector<float> signs_, centre_;
};

}  // namespace manyclass
