// Where the sketches of all classes are kept; sketch.h says what they are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "big_array.h"
#include "kernels.h"
#include "sketch.h"

namespace manyclass {

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
