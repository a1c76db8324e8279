// The sketches of all classes in blocks of 32, for the scan; sketch.h says what they are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "big_array.h"
#include "kernels.h"
#include "sketch.h"
#include "sketch_scales.h"

namespace manyclass {

// Each class has a lane of a block. Blocks are filled in order of falling factor, and every span of 16 blocks knows
// the largest factor and bias in it: once good candidates are known, a span that cannot hold a better one is passed
// over. That changes no result. With cells, each cell has blocks of its own instead, and no spans.
//
// Outliers (sketch_scales.h) and classes that must not be found have lanes too, but the scan does not see them.
class SketchBlocks {
public:
    static constexpr size_t kSpanBlocks = 16;

    SketchBlocks(size_t bits, size_t cells);

    // Building: lanes are in order of ids until `arrange`, which gives each class its place.
    void start(size_t classes);
    void set_code(size_t id, const uint8_t* code);
    void set_factor(size_t id, float factor) { factors_[id] = factor; }
    void set_cell(size_t id, size_t cell, float distance) {
        cell_of_[id] = static_cast<uint16_t>(cell), distances_[id] = distance;
    }
    // hidden [classes]: 1 where the class must not be found. New scales are chosen unless they are given. Leaves all as
    // it was where memory runs out.
    void arrange(const float* biases, const std::vector<uint8_t>& hidden, const SketchScales* scales = nullptr);
    // Whether the scales suit the classes; if not, it is time to arrange them anew.
    bool suited() const { return census_.suits(scales_, bits_); }

    // Updates: more classes, hidden until they are set; or fewer, the last ones gone.
    void resize(size_t classes);
    // Takes the memory that set() or hide() of one class may need; those do not fail then.
    void prepare(size_t cell);
    void set(size_t id, const SketchRow& row, float bias, bool hidden, size_t cell, float distance) noexcept;
    void hide(size_t id) noexcept;

    size_t classes() const { return classes_; }
    void get_code(size_t id, uint8_t* code) const;
    float factor(size_t id) const { return factors_[id]; }
    SketchWeights weights(size_t id) const { return weights_in(positions_[id]); }
    const SketchScales& scales() const { return scales_; }
    size_t bytes() const;

    // Cells: where a class belongs, the blocks that hold those the scan sees (all full but the last), how many they
    // are, how far the farthest is from the centre, and the largest bias.
    size_t cell_of(size_t id) const { return cell_of_[id]; }
    float distance(size_t id) const { return distances_[id]; }
    const std::vector<uint32_t>& cell_blocks(size_t cell) const { return cells_[cell].blocks; }
    size_t cell_size(size_t cell) const { return cells_[cell].size; }
    const std::vector<float>& radii() const { return radii_; }
    double top_bias(size_t cell) const { return tops_[cell] * (scales_.bias / 32768); }

    // The scan.
    size_t blocks() const { return ids_.size() / kBlock; }
    size_t spans() const { return (blocks() + kSpanBlocks - 1) / kSpanBlocks; }
    // The best score that the query could get from any class of the span.
    int bound(size_t span, const ScannedQuery& query) const;
    ScanPlan plan(int gain) const { return {data_.data(), bits_, block_bytes_, gain, ids_.data()}; }
    const std::vector<uint32_t>& outliers() const { return outliers_; }
    // Whether some class of the scan has a bias below the scale: its score is then too high, and is to be lowered.
    bool any_sunk() const { return census_.sunk > 0; }
    bool sunk(size_t id) const { return weights(id).bias == kSunk; }
    // The score of a class in the scan's units without the scan's limits.
    int wide_score_of(size_t id, const ScannedQuery& query, float bias) const;

private:
    enum class Place : uint8_t { hidden, scanned, outlier };
    struct Cell {
        std::vector<uint32_t> blocks;
        size_t size = 0;
    };
    SketchScales scales_for(const float* biases, const std::vector<uint8_t>& hidden) const;
    void drop_to(size_t classes) noexcept;
    void give_lane(size_t id, Place place, size_t cell) noexcept;
    uint32_t take_block() noexcept;
    uint32_t take_lane(Cell& cell) noexcept;
    uint32_t take_spare_lane() noexcept;
    void leave_cell(uint32_t hole, size_t cell) noexcept;
    void copy_lane(size_t from, size_t to) noexcept;
    uint8_t* weights_at(size_t lane);
    SketchWeights weights_in(size_t lane) const;
    void write_weights(size_t lane, const SketchWeights& weights) noexcept;
    void count_in(size_t id) noexcept;
    void count_out(size_t id) noexcept;
    void measure_cell_without(size_t id) noexcept;

    size_t bits_, block_bytes_, classes_ = 0;
    SketchScales scales_;
    SketchCensus census_;
    BigArray<uint8_t> data_;
    std::vector<uint32_t> ids_, positions_;  // the class that the scan sees in a lane; the lane of a class
    std::vector<float> factors_;
    std::vector<Place> places_;
    std::vector<uint32_t> outliers_;
    std::vector<SketchWeights> bounds_;  // of each span; not with cells
    // With cells only.
    std::vector<Cell> cells_;
    std::vector<float> radii_, distances_;
    std::vector<int16_t> tops_;  // the largest bias of each cell, as the scan has it
    std::vector<uint16_t> cell_of_;
    std::vector<uint32_t> free_blocks_,
        spare_lanes_;  // blocks of no cell; lanes for classes that the scan does not see
};

}  // namespace manyclass
