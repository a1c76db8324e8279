// The sketch of each class as one record, for those that tables or scan found; sketch.h says what it is.
//
// Factor and bias are floats and scores are doubles: they may be of any size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "big_array.h"
#include "kernels.h"
#include "sketch.h"
#include "wide_score.h"

namespace manyclass {

class SketchRecords {
public:
    explicit SketchRecords(size_t bits) : code_bytes_(bits / 8), record_bytes_(bits / 8 + 2 * sizeof(float)) {}
    void resize(size_t classes) { data_.resize(classes * record_bytes_, true); }
    size_t bytes() const { return data_.bytes(); }
    const uint8_t* record(size_t id) const { return data_.data() + id * record_bytes_; }  // begins with the code
    void set(size_t id, const uint8_t* code, float factor, float bias) {
        uint8_t* to = data_.data() + id * record_bytes_;
        std::memcpy(to, code, code_bytes_);
        std::memcpy(to + code_bytes_, &factor, sizeof factor);
        std::memcpy(to + code_bytes_ + sizeof factor, &bias, sizeof bias);
    }
    void get(size_t id, uint8_t* code, float& factor) const {
        std::memcpy(code, record(id), code_bytes_);
        std::memcpy(&factor, record(id) + code_bytes_, sizeof factor);
    }
    float score(size_t id, const SketchQuery& query) const {
        const uint8_t* from = record(id);
        float factor, bias;
        std::memcpy(&factor, from + code_bytes_, sizeof factor);
        std::memcpy(&bias, from + code_bytes_ + sizeof factor, sizeof bias);
        const double sum = kernels().sketch_score(from, query.planes.data(), code_bytes_, query.level_sum);
        return nearest_float(sum * (factor * query.unit) + bias);
    }

private:
    size_t code_bytes_, record_bytes_;
    BigArray<uint8_t> data_;
};

}  // namespace manyclass
