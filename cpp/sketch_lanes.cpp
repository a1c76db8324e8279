// Where the sketch of each class lies in the scan's blocks, and what is counted of all classes on the way.
#include <algorithm>
#include <cstring>

#include "sketch_blocks.h"

namespace manyclass {

void SketchBlocks::give_lane(size_t id, Place place, size_t cell) noexcept {
    const Place before = places_[id];
    const bool seen = place == Place::scanned;
    places_[id] = place;
    if (cells_.empty()) {
        ids_[positions_[id]] = seen ? static_cast<uint32_t>(id) : kNoClass;
        return;
    }
    const size_t old_cell = cell_of_[id];
    const uint32_t old_lane = positions_[id];
    const bool was_seen = before == Place::scanned;
    cell_of_[id] = static_cast<uint16_t>(cell);
    if (old_lane != kNoClass && was_seen == seen && (!seen || old_cell == cell)) return;
    const uint32_t lane = seen ? take_lane(cells_[cell]) : take_spare_lane();
    positions_[id] = lane;
    if (seen) ids_[lane] = static_cast<uint32_t>(id);
    if (old_lane == kNoClass) return;
    copy_lane(old_lane, lane);
    if (was_seen)
        leave_cell(old_lane, old_cell);
    else
        spare_lanes_.push_back(old_lane);
}

uint32_t SketchBlocks::take_block() noexcept {
    const uint32_t block = free_blocks_.back();
    free_blocks_.pop_back();
    return block;
}

uint32_t SketchBlocks::take_lane(Cell& cell) noexcept {
    if (cell.size % kBlock == 0) cell.blocks.push_back(take_block());
    return static_cast<uint32_t>(cell.blocks.back() * kBlock + cell.size++ % kBlock);
}

uint32_t SketchBlocks::take_spare_lane() noexcept {
    if (spare_lanes_.empty()) {
        const size_t first = take_block() * kBlock;
        for (size_t lane = first; lane < first + kBlock; ++lane) spare_lanes_.push_back(static_cast<uint32_t>(lane));
    }
    const uint32_t lane = spare_lanes_.back();
    spare_lanes_.pop_back();
    return lane;
}

// The last class of the cell takes the place of the one that left, so that all blocks but the last are full.
void SketchBlocks::leave_cell(uint32_t hole, size_t number) noexcept {
    Cell& cell = cells_[number];
    const size_t last = cell.blocks.back() * kBlock + --cell.size % kBlock;
    if (last != hole) {
        const uint32_t moved = ids_[last];
        copy_lane(last, hole);
        ids_[hole] = moved;
        positions_[moved] = hole;
    }
    ids_[last] = kNoClass;
    if (cell.size % kBlock == 0) {
        free_blocks_.push_back(cell.blocks.back());
        cell.blocks.pop_back();
    }
}

void SketchBlocks::copy_lane(size_t from, size_t to) noexcept {
    const uint8_t* old = data_.data() + from / kBlock * block_bytes_ + from % kBlock;
    uint8_t* copy = data_.data() + to / kBlock * block_bytes_ + to % kBlock;
    for (size_t byte = 0; byte < bits_ / 8; ++byte) copy[byte * kBlock] = old[byte * kBlock];
    write_weights(to, weights_in(from));
}

void SketchBlocks::set_code(size_t id, const uint8_t* code) {
    const size_t at = positions_[id];
    uint8_t* lane = data_.data() + at / kBlock * block_bytes_ + at % kBlock;
    for (size_t byte = 0; byte < bits_ / 8; ++byte) lane[byte * kBlock] = code[byte];
}

void SketchBlocks::get_code(size_t id, uint8_t* code) const {
    const size_t at = positions_[id];
    const uint8_t* lane = data_.data() + at / kBlock * block_bytes_ + at % kBlock;
    for (size_t byte = 0; byte < bits_ / 8; ++byte) code[byte] = lane[byte * kBlock];
}

// Within a block even lanes come before odd ones, as the scan's 16-bit sums do.
uint8_t* SketchBlocks::weights_at(size_t lane) {
    const size_t in_block = lane % kBlock, at = 16 * (in_block & 1) + in_block / 2;
    return data_.data() + lane / kBlock * block_bytes_ + bits_ / 8 * kBlock + at * sizeof(int16_t);
}

void SketchBlocks::write_weights(size_t lane, const SketchWeights& weights) noexcept {
    uint8_t* to = weights_at(lane);
    std::memcpy(to, &weights.factor, sizeof weights.factor);
    std::memcpy(to + kBlock * sizeof(int16_t), &weights.bias, sizeof weights.bias);
}

SketchWeights SketchBlocks::weights_in(size_t lane) const {
    const uint8_t* from = const_cast<SketchBlocks*>(this)->weights_at(lane);
    SketchWeights weights;
    std::memcpy(&weights.factor, from, sizeof weights.factor);
    std::memcpy(&weights.bias, from + kBlock * sizeof(int16_t), sizeof weights.bias);
    return weights;
}

// What is known of all classes together

void SketchBlocks::count_in(size_t id) noexcept {
    const Place place = places_[id];
    if (place == Place::hidden) return;
    const SketchWeights own = weights(id);
    census_.add(own, place == Place::outlier);
    if (place == Place::outlier) {
        outliers_.push_back(static_cast<uint32_t>(id));
    } else if (!cells_.empty()) {
        radii_[cell_of_[id]] = std::max(radii_[cell_of_[id]], distances_[id]);
        tops_[cell_of_[id]] = std::max(tops_[cell_of_[id]], own.bias);
    } else {
        SketchWeights& most = bounds_[positions_[id] / (kBlock * kSpanBlocks)];
        most = {std::max(most.factor, own.factor), std::max(most.bias, own.bias)};
    }
}

void SketchBlocks::count_out(size_t id) noexcept {
    const Place place = places_[id];
    if (place == Place::hidden) return;
    const SketchWeights own = weights(id);
    census_.take_away(own, place == Place::outlier);
    if (place == Place::outlier) {
        *std::find(outliers_.begin(), outliers_.end(), static_cast<uint32_t>(id)) = outliers_.back();
        outliers_.pop_back();
    } else if (!cells_.empty() && (distances_[id] >= radii_[cell_of_[id]] || own.bias >= tops_[cell_of_[id]])) {
        measure_cell_without(id);
    }
}

void SketchBlocks::measure_cell_without(size_t id) noexcept {
    const Cell& cell = cells_[cell_of_[id]];
    float farthest = 0;
    int16_t top = kSunk;
    for (size_t i = 0; i < cell.size; ++i) {
        const uint32_t other = ids_[cell.blocks[i / kBlock] * kBlock + i % kBlock];
        if (other == id) continue;
        farthest = std::max(farthest, distances_[other]);
        top = std::max(top, weights(other).bias);
    }
    radii_[cell_of_[id]] = farthest;
    tops_[cell_of_[id]] = top;
}

}  // namespace manyclass
