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

std::vector<float> Index::mean_logits() const {
    IndexLock::Reading reading(lock_);
    return mean_logits_;
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

void Index::export_scan(uint8_t* codes, float* factors, size_t count) const {
    IndexLock::Reading reading(lock_);
    for (size_t id = 0; id < std::min(count, classes_); ++id) {
        scan_->store.get_code(id, codes + id * scan_->sketcher.code_bytes());
        factors[id] = scan_->store.factor(id);
    }
}

void Index::export_sketch(uint8_t* codes, float* factors, size_t count) const {
    IndexLock::Reading reading(lock_);
    for (size_t id = 0; id < std::min(count, classes_); ++id)
        sketch_->store.get(id, codes + id * sketch_->sketcher.code_bytes(), factors[id]);
}

void Index::export_cells(uint16_t* cell_of, float* distances, size_t count) const {
    IndexLock::Reading reading(lock_);
    for (size_t id = 0; id < std::min(count, classes_); ++id) {
        cell_of[id] = static_cast<uint16_t>(scan_->store.cell_of(id));
        distances[id] = scan_->store.distance(id);
    }
}

void Index::export_weights(int16_t* factors, int16_t* biases, size_t count) const {
    IndexLock::Reading reading(lock_);
    for (size_t id = 0; id < std::min(count, classes_); ++id) {
        const SketchWeights weights = scan_->store.weights(id);
        factors[id] = weights.factor, biases[id] = weights.bias;
    }
}

SketchScales Index::scan_scales() const {
    IndexLock::Reading reading(lock_);
    return scan_->store.scales();
}

std::vector<uint32_t> Index::outliers() const {
    IndexLock::Reading reading(lock_);
    std::vector<uint32_t> ids = scan_->store.outliers();
    std::sort(ids.begin(), ids.end());
    return ids;
}

AlwaysCandidates Index::always() const {
    IndexLock::Reading reading(lock_);
    return always_;
}

std::vector<float> Index::cell_radii() const {
    IndexLock::Reading reading(lock_);
    return scan_->store.radii();
}

Index::Bytes Index::bytes() const {
    IndexLock::Reading reading(lock_);
    Bytes bytes;
    if (tables_) bytes.tables = tables_->bytes();
    if (codes_) bytes.codes = codes_->bytes();
    if (scan_) bytes.scan = scan_->store.bytes();
    if (cells_) bytes.cells = cells_->bytes();
    if (sketch_) bytes.sketch = sketch_->store.bytes();
    bytes.norms_and_biases = (bias_.size() + norms_.size() + mean_logits_.size()) * sizeof(float);
    if (balance_) bytes.balance = balance_->bytes();
    return bytes;
}

void Index::import_scan(const uint8_t* codes, const float* factors, const SketchScales& scales, const float* centre,
                        const uint16_t* cell_of, const float* distances) {
    scan_->sketcher.set_centre(centre);
    scan_->store.start(classes_);
    for (size_t id = 0; id < classes_; ++id) {
        scan_->store.set_code(id, codes + id * scan_->sketcher.code_bytes());
        scan_->store.set_factor(id, factors[id]);
        if (cells_) scan_->store.set_cell(id, cell_of[id], distances[id]);
    }
    scan_->store.arrange(leads().data(), hidden_classes(), &scales);
}

void Index::import_sketch(const uint8_t* codes, const float* factors, const float* centre) {
    sketch_->sketcher.set_centre(centre);
    for (size_t id = 0; id < classes_; ++id)
        sketch_->store.set(id, codes + id * sketch_->sketcher.code_bytes(), factors[id], leads()[id]);
}

void Index::set_state(size_t count, const float* bias, const float* norms, const uint8_t* removed,
                      const float* mean_logits) {
    classes_ = count;
    bias_.assign(bias, bias + count);
    norms_.assign(norms, norms + count);
    if (balance_) mean_logits_.assign(mean_logits, mean_logits + count);
    removed_.clear();
    if (removed) removed_.assign(removed, removed + count);
    if (codes_) codes_->resize(count);
    if (scan_) scan_->store.start(count);
    if (sketch_) sketch_->store.resize(count);
}

}  // namespace manyclass
