#include "sketch_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "q15.h"

namespace manyclass {
namespace {

// The scale, or the next power of two above the magnitude if that is larger.
double grown_scale(double scale, double magnitude) {
    if (magnitude <= scale) return scale;
    int exponent;
    std::frexp(magnitude, &exponent);
    return std::ldexp(1.0, exponent);
}

}  // namespace

SketchStore::SketchStore(size_t bits, bool flat)
    : bits_(bits),
      block_bytes_(bits / 8 * kBlock + 2 * kBlock * sizeof(int16_t)),
      record_bytes_(bits / 8 + 2 * sizeof(int16_t)),
      flat_(flat) {}

void SketchStore::resize(size_t classes) {
    const size_t before = classes_;
    classes_ = classes;
    if (!cells_.empty()) {
        positions_.resize(classes, kNoClass);
        cell_of_.resize(classes, kNoCell);
        return;
    }
    data_.resize(flat_ ? blocks() * block_bytes_ : classes * record_bytes_, true);
    if (!flat_) return;
    ids_.resize(blocks() * kBlock, kNoClass);
    positions_.resize(classes);
    for (size_t id = before; id < classes; ++id) ids_[id] = positions_[id] = static_cast<uint32_t>(id);
    bounds_.resize(spans(), Bound{0, -32768});
}

void SketchStore::set_code(size_t id, const uint8_t* code) {
    if (!flat_) {
        std::memcpy(data_.data() + id * record_bytes_, code, bits_ / 8);
        return;
    }
    const size_t at = positions_[id];
    uint8_t* lane = data_.data() + at / kBlock * block_bytes_ + at % kBlock;
    for (size_t byte = 0; byte < bits_ / 8; ++byte) lane[byte * kBlock] = code[byte];
}

void SketchStore::get_code(size_t id, uint8_t* code) const {
    if (!flat_) {
        std::memcpy(code, record(id), bits_ / 8);
        return;
    }
    const size_t at = positions_[id];
    const uint8_t* lane = data_.data() + at / kBlock * block_bytes_ + at % kBlock;
    for (size_t byte = 0; byte < bits_ / 8; ++byte) code[byte] = lane[byte * kBlock];
}

void SketchStore::sort_by_factor() {
    if (!flat_) return;
    std::vector<int16_t> factors(classes_), biases(classes_);
    std::vector<uint8_t> codes(classes_ * (bits_ / 8));
    for (size_t id = 0; id < classes_; ++id) {
        get_raw(id, factors[id], biases[id]);
        get_code(id, codes.data() + id * (bits_ / 8));
    }
    for (size_t id = 0; id < classes_; ++id) ids_[id] = static_cast<uint32_t>(id);
    std::stable_sort(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(classes_),
                     [&](uint32_t a, uint32_t b) { return factors[a] > factors[b]; });
    for (size_t at = 0; at < classes_; ++at) positions_[ids_[at]] = static_cast<uint32_t>(at);
    std::fill(bounds_.begin(), bounds_.end(), Bound{0, -32768});
    for (size_t at = 0; at < classes_; ++at) {
        const size_t id = ids_[at];
        set_code(id, codes.data() + id * (bits_ / 8));
        set_raw(id, factors[id], biases[id]);
    }
}

void SketchStore::sort_by_cell(size_t cells, const uint16_t* cell_of) {
    SketchStore filed(bits_, true);
    filed.cells_.resize(cells);
    filed.resize(classes_);
    filed.set_scales(factor_scale_, bias_scale_);
    // Cell by cell, so that the blocks of each are neighbours.
    std::vector<uint32_t> order(classes_);
    for (size_t id = 0; id < classes_; ++id) order[id] = static_cast<uint32_t>(id);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return cell_of[a] < cell_of[b]; });
    std::vector<size_t> sizes(cells);
    for (size_t id = 0; id < classes_; ++id) ++sizes[cell_of[id]];
    size_t blocks = 0;
    for (const size_t size : sizes) blocks += (size + kBlock - 1) / kBlock;
    filed.data_.resize(blocks * block_bytes_);  // all at once: growing would leave a third of it empty
    std::vector<uint8_t> code(bits_ / 8);
    for (const uint32_t id : order) {
        int16_t factor, bias;
        get_raw(id, factor, bias);
        get_code(id, code.data());
        filed.file(id, cell_of[id]);
        filed.set_code(id, code.data());
        filed.set_raw(id, factor, bias);
    }
    *this = std::move(filed);
}

uint32_t SketchStore::take_lane(Cell& cell) {
    if (cell.size % kBlock == 0) {
        if (free_blocks_.empty()) {
            free_blocks_.push_back(static_cast<uint32_t>(ids_.size() / kBlock));
            ids_.resize(ids_.size() + kBlock, kNoClass);
            data_.resize(ids_.size() / kBlock * block_bytes_, true);
        }
        cell.blocks.push_back(free_blocks_.back());
        free_blocks_.pop_back();
    }
    return static_cast<uint32_t>(cell.blocks.back() * kBlock + cell.size++ % kBlock);
}

void SketchStore::move(size_t id, uint32_t position) {
    int16_t factor, bias;
    std::vector<uint8_t> code(bits_ / 8);
    get_raw(id, factor, bias);
    get_code(id, code.data());
    ids_[positions_[id]] = kNoClass;
    positions_[id] = position;
    ids_[position] = static_cast<uint32_t>(id);
    set_code(id, code.data());
    set_raw(id, factor, bias);
}

void SketchStore::file(size_t id, size_t cell) {
    const uint32_t before = cell_of_[id], hole = positions_[id];
    if (before == cell) return;
    const uint32_t lane = take_lane(cells_[cell]);
    cell_of_[id] = static_cast<uint32_t>(cell);
    if (before == kNoCell) {
        positions_[id] = lane;
        ids_[lane] = static_cast<uint32_t>(id);
        return;
    }
    move(id, lane);
    Cell& old = cells_[before];
    const size_t last = old.blocks.back() * kBlock + --old.size % kBlock;
    if (last != hole) move(ids_[last], hole);
    if (old.size % kBlock == 0) {
        free_blocks_.push_back(old.blocks.back());
        old.blocks.pop_back();
    }
}

size_t SketchStore::bytes() const {
    size_t lists = (ids_.capacity() + positions_.capacity() + cell_of_.capacity()) * sizeof(uint32_t);
    for (const Cell& cell : cells_) lists += sizeof cell + cell.blocks.capacity() * sizeof(uint32_t);
    return data_.bytes() + lists;
}

int SketchStore::bound(size_t span, const SketchQuery& query) const {
    if (!cells_.empty()) return 32767;
    const Bound& most = bounds_[span];
    // Each rounded product may be half a unit above the true one.
    return q15_product(query.reach, most.factor) + q15_product(most.bias, query.beta) + 2;
}

// Within a block even lanes come before odd ones, as the scan's 16-bit sums do.
uint8_t* SketchStore::weight(size_t id, bool bias) {
    if (!flat_) return data_.data() + id * record_bytes_ + bits_ / 8 + (bias ? 2 : 0);
    const size_t position = positions_[id], lane = position % kBlock;
    const size_t at = 16 * (lane & 1) + lane / 2 + (bias ? kBlock : 0);
    return data_.data() + position / kBlock * block_bytes_ + bits_ / 8 * kBlock + at * sizeof(int16_t);
}

void SketchStore::set_raw(size_t id, int16_t factor, int16_t bias) {
    std::memcpy(weight(id, false), &factor, sizeof factor);
    std::memcpy(weight(id, true), &bias, sizeof bias);
    if (!flat_ || !cells_.empty()) return;
    Bound& most = bounds_[positions_[id] / (kBlock * kSpanBlocks)];
    most = {std::max(most.factor, factor), std::max(most.bias, bias)};
}

void SketchStore::get_raw(size_t id, int16_t& factor, int16_t& bias) const {
    std::memcpy(&factor, weight(id, false), sizeof factor);
    std::memcpy(&bias, weight(id, true), sizeof bias);
}

void SketchStore::set_weights(size_t id, float factor, float bias) {
    set_raw(id, factor_scale_ > 0 ? to_q15(factor / factor_scale_) : int16_t{0},
            bias_scale_ > 0 ? to_q15(bias / bias_scale_) : int16_t{0});
}

void SketchStore::reserve_scales(float factor, float bias) {
    const double new_factor = grown_scale(factor_scale_, factor), new_bias = grown_scale(bias_scale_, bias);
    if (new_factor == factor_scale_ && new_bias == bias_scale_) return;
    const double shrink_factor = new_factor > 0 ? factor_scale_ / new_factor : 0;
    const double shrink_bias = new_bias > 0 ? bias_scale_ / new_bias : 0;
    for (size_t id = 0; id < classes_; ++id) {
        int16_t f, b;
        get_raw(id, f, b);
        set_raw(id, static_cast<int16_t>(std::nearbyint(f * shrink_factor)),
                static_cast<int16_t>(std::nearbyint(b * shrink_bias)));
    }
    set_scales(new_factor, new_bias);
}

int SketchStore::score(size_t id, const SketchQuery& query, int gain) const {
    const uint8_t* code = record(id);
    const int raw = kernels().sketch_score(code, query.planes.data(), bits_ / 8, query.level_sum);
    int16_t factor, bias;
    std::memcpy(&factor, code + bits_ / 8, sizeof factor);
    std::memcpy(&bias, code + bits_ / 8 + 2, sizeof bias);
    const int weighted = q15_product(raw * (1 << gain), query.alpha);
    return std::clamp<int>(q15_product(weighted, factor) + q15_product(bias, query.beta), -32768, 32767);
}

}  // namespace manyclass
