// Floats that begin a cache line, not initialised.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace manyclass {

class AlignedFloats {
public:
    AlignedFloats() = default;
    explicit AlignedFloats(size_t size) : data_(allocate(size)) {}
    float* data() { return data_.get(); }
    const float* data() const { return data_.get(); }
    float& operator[](size_t i) { return data_.get()[i]; }
    float operator[](size_t i) const { return data_.get()[i]; }

private:
    static float* allocate(size_t size) {
        void* memory = std::aligned_alloc(64, size * sizeof(float) / 64 * 64 + 64);
        if (!memory) throw std::bad_alloc();
        return static_cast<float*>(memory);
    }
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    std::unique_ptr<float, Free> data_;
};

}  // namespace manyclass
