#include "sketch_blocks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "q15.h"
#include "wide_score.h"

namespace manyclass {
namespace {

constexpr SketchWeights kNothing{0, kSunk};

}  // namespace

SketchBlocks::SketchBlocks(size_t bits, size_t cells)
    : bits_(bits),
      block_bytes_(bits / 8 * kBlock + 2 * kBlock * sizeof(int16_t)),
      cells_(cells),
      radii_(cells),
      tops_(cells, kSunk) {}

// Building

void SketchBlocks::start(size_t classes) {
    classes_ = classes;
    const size_t blocks = (classes + kBlock - 1) / kBlock;
    data_ = BigArray<uint8_t>(blocks * block_bytes_);
    ids_.assign(blocks * kBlock, kNoClass);
    positions_.resize(classes);
    std::iota(positions_.begin(), positions_.end(), 0u);
    factors_.assign(classes, 0.0f);
    if (!cells_.empty()) cell_of_.assign(classes, 0), distances_.assign(classes, 0.0f);
}

// Into new blocks, which take the place of the old ones when nothing can fail any more.
void SketchBlocks::arrange(const float* biases, const std::vector<uint8_t>& hidden, const SketchScales* scales) {
    SketchBlocks fresh(bits_, cells_.size());
    fresh.classes_ = classes_;
    fresh.scales_ = scales ? *scales : scales_for(biases, hidden);
    fresh.places_.resize(classes_);
    std::vector<SketchWeights> weights(classes_);
    for (size_t id = 0; id < classes_; ++id) {
        const bool far = outside(fresh.scales_, factors_[id], biases[id]);
        weights[id] = to_weights(fresh.scales_, factors_[id], biases[id]);
        fresh.places_[id] = hidden[id] ? Place::hidden : far ? Place::outlier : Place::scanned;
    }
    // By cell or by falling factor, and last those that the scan does not see; then by id.
    const size_t last = cells_.empty() ? 32768 : cells_.size();
    const auto part = [&](size_t id) -> size_t {
        if (fresh.places_[id] != Place::scanned) return last;
        return cells_.empty() ? static_cast<size_t>(32767 - weights[id].factor) : cell_of_[id];
    };
    std::vector<uint32_t> starts(last + 2);
    for (size_t id = 0; id < classes_; ++id) ++starts[part(id) + 1];
    fresh.outliers_.reserve(starts.back());
    uint32_t lanes = 0;
    for (size_t p = 0; p <= last; ++p) {
        const uint32_t size = starts[p + 1];
        starts[p] = lanes;
        if (!cells_.empty()) lanes = (lanes + size + kBlock - 1) / kBlock * kBlock;  // blocks of its own
        if (cells_.empty()) lanes += size;
        for (size_t lane = starts[p]; p < last && !cells_.empty() && lane < starts[p] + size; lane += kBlock)
            fresh.cells_[p].blocks.push_back(static_cast<uint32_t>(lane / kBlock));
        for (uint32_t lane = starts[p] + size; p == last && !cells_.empty() && lane < lanes; ++lane)
            fresh.spare_lanes_.push_back(lane);
    }
    const size_t blocks = (lanes + kBlock - 1) / kBlock;
    fresh.data_.resize(blocks * block_bytes_);
    fresh.ids_.assign(blocks * kBlock, kNoClass);
    fresh.positions_.resize(classes_);
    if (cells_.empty()) fresh.bounds_.assign(fresh.spans(), kNothing);
    for (size_t id = 0; id < classes_; ++id) {
        const uint32_t lane = fresh.positions_[id] = starts[part(id)]++;
        const uint8_t* from = data_.data() + positions_[id] / kBlock * block_bytes_ + positions_[id] % kBlock;
        uint8_t* to = fresh.data_.data() + lane / kBlock * block_bytes_ + lane % kBlock;
        for (size_t byte = 0; byte < bits_ / 8; ++byte) to[byte * kBlock] = from[byte * kBlock];
        fresh.write_weights(lane, weights[id]);
    }
    fresh.factors_.swap(factors_);
    fresh.cell_of_.swap(cell_of_), fresh.distances_.swap(distances_);
    for (size_t id = 0; id < classes_; ++id) {
        if (fresh.places_[id] == Place::scanned) {
            fresh.ids_[fresh.positions_[id]] = static_cast<uint32_t>(id);
            if (!cells_.empty()) ++fresh.cells_[fresh.cell_of_[id]].size;
        }
        fresh.count_in(id);
    }
    *this = std::move(fresh);
}

SketchScales SketchBlocks::scales_for(const float* biases, const std::vector<uint8_t>& hidden) const {
    std::vector<float> some_factors, some_biases;
    for (size_t id = 0; id < classes_; ++id)
        if (!hidden[id]) some_factors.push_back(factors_[id]), some_biases.push_back(biases[id]);
    return choose_scales(some_factors, some_biases, bits_);
}

// Updates

void SketchBlocks::resize(size_t classes) {
    if (classes < classes_) drop_to(classes);
    const size_t before = std::min(classes_, classes);
    positions_.resize(classes, kNoClass);
    factors_.resize(classes, 0.0f);
    places_.resize(classes, Place::hidden);
    if (cells_.empty()) {
        const size_t blocks = (classes + kBlock - 1) / kBlock;
        data_.resize(blocks * block_bytes_, true);
        ids_.resize(blocks * kBlock, kNoClass);
        bounds_.resize(spans(), kNothing);
        for (size_t id = before; id < classes; ++id) positions_[id] = static_cast<uint32_t>(id);
    } else {
        cell_of_.resize(classes, 0);
        distances_.resize(classes, 0.0f);
    }
    classes_ = classes;
}

// Takes the classes from `classes` on out of their lanes. Without cells lanes are as many as classes, so that others
// move down into the lanes that become free.
void SketchBlocks::drop_to(size_t classes) noexcept {
    for (size_t id = classes; id < classes_; ++id) {
        if (positions_[id] == kNoClass) continue;
        count_out(id);
        const bool seen = std::exchange(places_[id], Place::hidden) == Place::scanned;
        if (cells_.empty())
            ids_[positions_[id]] = kNoClass;
        else if (seen)
            leave_cell(positions_[id], cell_of_[id]);
        else
            spare_lanes_.push_back(positions_[id]);
    }
    if (!cells_.empty()) return;
    size_t gone = classes;
    for (size_t id = 0; id < classes; ++id) {
        if (positions_[id] < classes) continue;
        while (positions_[gone] >= classes) ++gone;
        count_out(id);
        copy_lane(positions_[id], positions_[gone]);
        std::swap(ids_[positions_[id]], ids_[positions_[gone]]);
        std::swap(positions_[id], positions_[gone]);
        count_in(id);
    }
}

void SketchBlocks::prepare(size_t cell) {
    if (outliers_.size() == outliers_.capacity()) outliers_.reserve(2 * outliers_.size() + 8);
    if (cells_.empty()) return;
    std::vector<uint32_t>& blocks = cells_[cell].blocks;
    if (blocks.size() == blocks.capacity()) blocks.reserve(2 * blocks.size() + 1);
    // A class that leaves may give back a block or a lane; one that comes may start a block.
    const size_t all = this->blocks() + 1;
    if (free_blocks_.capacity() < all) free_blocks_.reserve(all + all / 2);
    if (spare_lanes_.capacity() < classes_ + kBlock) spare_lanes_.reserve(classes_ + classes_ / 2 + kBlock);
    if (!free_blocks_.empty()) return;
    data_.resize(all * block_bytes_, true);
    ids_.resize(all * kBlock, kNoClass);
    free_blocks_.push_back(static_cast<uint32_t>(all - 1));
}

void SketchBlocks::set(size_t id, const SketchRow& row, float bias, bool hidden, size_t cell, float distance) noexcept {
    const bool far = outside(scales_, row.factor, bias);
    const Place place = hidden ? Place::hidden : far ? Place::outlier : Place::scanned;
    count_out(id);
    give_lane(id, place, cell);
    set_code(id, row.code.data());
    write_weights(positions_[id], to_weights(scales_, row.factor, bias));
    factors_[id] = row.factor;
    if (!cells_.empty()) distances_[id] = distance;
    count_in(id);
}

void SketchBlocks::hide(size_t id) noexcept {
    count_out(id);
    give_lane(id, Place::hidden, cells_.empty() ? 0 : cell_of_[id]);
    count_in(id);
}

size_t SketchBlocks::bytes() const {
    const size_t numbers = ids_.capacity() + positions_.capacity() + outliers_.capacity() + free_blocks_.capacity() +
                           spare_lanes_.capacity() + factors_.capacity() + radii_.capacity() + distances_.capacity() +
                           tops_.capacity() / 2;
    size_t lists = numbers * 4 + places_.capacity() + cell_of_.capacity() * sizeof(uint16_t);
    for (const Cell& cell : cells_) lists += sizeof cell + cell.blocks.capacity() * sizeof(uint32_t);
    return data_.bytes() + lists;
}

// Scores

int SketchBlocks::bound(size_t span, const ScannedQuery& query) const {
    if (!cells_.empty()) return 32767;
    const SketchWeights& most = bounds_[span];
    // Each rounded product may be half a unit above the true one.
    return q15_product(query.reach, most.factor) + q15_product(most.bias, query.beta) + 2;
}

int SketchBlocks::wide_score_of(size_t id, const ScannedQuery& query, float bias) const {
    const size_t at = positions_[id];
    const uint8_t* lane = data_.data() + at / kBlock * block_bytes_ + at % kBlock;
    int sum = -kQueryLevels * static_cast<int>(bits_);
    for (size_t byte = 0; byte < bits_ / 8; ++byte) {
        const uint8_t *table = query.tables.data() + byte * 32, code = lane[byte * kBlock];
        sum += table[code & 15] + table[16 + (code >> 4)];
    }
    return wide_score((sum * (factors_[id] * query.unit) + bias) * query.per_unit);
}

}  // namespace manyclass
