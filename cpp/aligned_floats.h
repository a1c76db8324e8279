// Floats that begin a cache line, not initialised. Large arrays that are given back are kept for the next to come: the
// system zeroes fresh pages, and a training step of a few milliseconds would spend one of them waiting for it.
#pragma once
#include <cstddef>
#include <memory>

namespace manyclass {

class AlignedFloats {
public:
    AlignedFloats() = default;
    explicit AlignedFloats(size_t size);
    float* data() { return data_.get(); }
    const float* data() const { return data_.get(); }
    float& operator[](size_t i) { return data_.get()[i]; }
    float operator[](size_t i) const { return data_.get()[i]; }

private:
    struct GiveBack {
        size_t bytes;
        void operator()(float* memory) const;
    };
    std::unique_ptr<float, GiveBack> data_;
};

}  // namespace manyclass
