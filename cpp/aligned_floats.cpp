#include "aligned_floats.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>

namespace manyclass {
namespace {

constexpr size_t kSmallest = size_t{64} << 10;  // below, the allocator does as well
constexpr size_t kMostBytes = size_t{128} << 20;
constexpr size_t kMostArrays = 8;

struct Array {
    void* memory;
    size_t bytes;
};

// Arrays that nobody uses, the one given back last at the end.
struct Kept {
    std::mutex mutex;
    Array arrays[kMostArrays];
    size_t count = 0, bytes = 0;

    void remove(size_t at) {
        bytes -= arrays[at].bytes;
        std::copy(arrays + at + 1, arrays + count, arrays + at);
        --count;
    }
};

// Never destroyed: arrays may be given back while the program ends.
Kept& kept() {
    static Kept& all = *new Kept;
    return all;
}

// Sizes come in steps of an eighth, so that one that differs a little from step to step finds what the last one left.
size_t rounded(size_t bytes) {
    size_t step = 64;
    while (bytes / 16 >= step) step *= 2;
    return (bytes / step + 1) * step;
}

}  // namespace

AlignedFloats::AlignedFloats(size_t size) {
    const size_t bytes = rounded(size * sizeof(float));
    void* memory = nullptr;
    if (bytes >= kSmallest) {
        Kept& all = kept();
        std::lock_guard<std::mutex> one(all.mutex);
        for (size_t at = all.count; at-- > 0 && !memory;)
            if (all.arrays[at].bytes == bytes) {
                memory = all.arrays[at].memory;
                all.remove(at);
            }
    }
    if (!memory) memory = std::aligned_alloc(64, bytes);
    if (!memory) throw std::bad_alloc();
    data_ = std::unique_ptr<float, GiveBack>(static_cast<float*>(memory), GiveBack{bytes});
}

void AlignedFloats::GiveBack::operator()(float* memory) const {
    if (bytes < kSmallest || bytes > kMostBytes) return std::free(memory);
    Kept& all = kept();
    std::lock_guard<std::mutex> one(all.mutex);
    while (all.count == kMostArrays || all.bytes + bytes > kMostBytes) {
        std::free(all.arrays[0].memory);
        all.remove(0);
    }
    all.arrays[all.count++] = {memory, bytes};
    all.bytes += bytes;
}

}  // namespace manyclass
