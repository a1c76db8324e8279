// One sign bit per rotated feature and two small numbers per class: an unbiased guess at the logit in a few bytes.
//
// A row w is stored as the signs of the first bits of R(w - centre), R a fast random rotation, with the factor that
// makes the guess exact for the row itself (RaBitQ, SIGMOD 2024) and the bias. A query is rounded to integers in
// [-7, 7]. Scores are 16-bit integers in units that suit the query: only their order matters.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "big_array.h"
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
    size_t features_, bits_, width_, chunks_;
    int gain_ = 0;
    std::vector<float> signs_, centre_;
};

// Codes of all classes, either in blocks of 32 for the flat pass or one record per class for random access.
//
// Blocks are filled in order of falling factor, and every span of 16 blocks knows the largest factor and bias in it:
// once good candidates are known, a span that cannot hold a better one is passed over. That changes no result.
// With cells, each cell has blocks of its own instead, and no spans: a class moves when its cell changes.
class SketchStore {
public:
    static constexpr size_t kSpanBlocks = 16;

    SketchStore(size_t bits, bool flat);
    void resize(size_t classes);
    size_t classes() const { return classes_; }
    void set_code(size_t id, const uint8_t* code);
    void get_code(size_t id, uint8_t* code) const;
    // Factor and bias are kept as fractions of two powers of two that grow when they must.
    void set_weights(size_t id, float factor, float bias);
    void set_raw(size_t id, int16_t factor, int16_t bias);
    void get_raw(size_t id, int16_t& factor, int16_t& bias) const;
    // Makes room for these magnitudes, halving what is stored as often as needed.
    void reserve_scales(float factor, float bias);
    void set_scales(double factor, double bias) { factor_scale_ = factor, bias_scale_ = bias; }
    double factor_scale() const { return factor_scale_; }
    double bias_scale() const { return bias_scale_; }
    // Re-files a flat store by falling factor and takes the spans' bounds anew.
    void sort_by_factor();
    // Re-files a flat store by cell, one number per class; from then on a new class must be filed before it is set.
    void sort_by_cell(size_t cells, const uint16_t* cell_of);
    // Moves a class, with all that is stored for it, to a cell: the last class of its old cell takes its place there.
    void file(size_t id, size_t cell);
    size_t cell_of(size_t id) const { return cell_of_[id]; }
    // Blocks of a cell, all full but the last, and how many classes they hold.
    const std::vector<uint32_t>& cell_blocks(size_t cell) const { return cells_[cell].blocks; }
    size_t cell_size(size_t cell) const { return cells_[cell].size; }

    size_t blocks() const { return cells_.empty() ? (classes_ + kBlock - 1) / kBlock : ids_.size() / kBlock; }
    size_t spans() const { return (blocks() + kSpanBlocks - 1) / kSpanBlocks; }
    // The best score that the query could get from any class of the span.
    int bound(size_t span, const SketchQuery& query) const;
    ScanPlan plan(int gain) const { return {data_.data(), bits_, block_bytes_, gain, ids_.data()}; }
    const uint8_t* record(size_t id) const { return data_.data() + id * record_bytes_; }
    int score(size_t id, const SketchQuery& query, int gain) const;
    size_t bytes() const;

private:
    struct Bound {
        int16_t factor, bias;
    };
    struct Cell {
        std::vector<uint32_t> blocks;
        size_t size = 0;
    };
    static constexpr uint32_t kNoCell = 0xffffffffu;
    uint8_t* weight(size_t id, bool bias);
    const uint8_t* weight(size_t id, bool bias) const { return const_cast<SketchStore*>(this)->weight(id, bias); }
    uint32_t take_lane(Cell& cell);
    void move(size_t id, uint32_t position);
    size_t bits_, block_bytes_, record_bytes_, classes_ = 0;
    bool flat_;
    double factor_scale_ = 0, bias_scale_ = 0;
    BigArray<uint8_t> data_;
    std::vector<uint32_t> ids_, positions_;  // flat only: class at a position and back
    std::vector<Bound> bounds_;
    std::vector<Cell> cells_;  // empty where there are none
    std::vector<uint32_t> cell_of_, free_blocks_;
};

}  // namespace manyclass
