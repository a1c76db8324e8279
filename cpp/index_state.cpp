// Raw state out of an index and into one, for files and checkpoints.
#include <algorithm>

#include "index.h"

namespace manyclass {

std::vector<float> Index::bias() const {
    IndexLock::Reading reading(lock_);
    return bias_;
}

std::vector<float> Index::norms() const {
    IndexLock::Reading reading(lock_);
    return norms_;
}

std::vector<uint8_t> Index::removed() const {
    IndexLock::Reading reading(lock_);
    return removed_;
}

void Index::export_codes(uint32_t* codes, size_t count) const {
    IndexLock::Reading reading(lock_);
    for (size_t id = 0; id < std::min(count, classes_); ++id)
        for (size_t band = 0; band < codes_->bands(); ++band) *codes++ = codes_->get(id, band);
}

void Index::import_codes(const uint32_t* codes, size_t threads) {
    for (size_t id = 0; id < classes_; ++id) codes_->set_all(id, codes + id * codes_->bands());
    codes_->build(*tables_, threads);
}

void Index::export_sketch(const SketchPart& part, uint8_t* codes, int16_t* factors, int16_t* biases,
                          size_t count) const {
    IndexLock::Reading reading(lock_);
    for (size_t id = 0; id < std::min(count, classes_); ++id) {
        part.store.get_code(id, codes + id * part.sketcher.code_bytes());
        part.store.get_raw(id, factors[id], biases[id]);
    }
}

std::vector<double> Index::cell_radii() const {
    IndexLock::Reading reading(lock_);
    return cells_->radii();
}

void Index::export_cells(uint16_t* cell_of, size_t count) const {
    IndexLock::Reading reading(lock_);
    for (size_t id = 0; id < std::min(count, classes_); ++id)
        cell_of[id] = static_cast<uint16_t>(scan_->store.cell_of(id));
}

void Index::import_sketch(SketchPart& part, const uint8_t* codes, const int16_t* factors, const int16_t* biases,
                          double factor_scale, double bias_scale) {
    part.store.set_scales(factor_scale, bias_scale);
    for (size_t id = 0; id < classes_; ++id) {
        part.store.set_code(id, codes + id * part.sketcher.code_bytes());
        part.store.set_raw(id, factors[id], biases[id]);
    }
    part.store.sort_by_factor();
}

void Index::set_state(size_t count, const float* bias, const float* norms, const uint8_t* removed) {
    classes_ = count;
    bias_.assign(bias, bias + count);
    norms_.assign(norms, norms + count);
    removed_.clear();
    if (removed) removed_.assign(removed, removed + count);
    if (codes_) codes_->resize(count);
    if (scan_) scan_->store.resize(count);
    if (sketch_) sketch_->store.resize(count);
}

}  // namespace manyclass
