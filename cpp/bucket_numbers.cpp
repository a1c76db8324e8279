#include "bucket_numbers.h"

#include <algorithm>
#include <cstring>

namespace manyclass {
namespace {

constexpr float kKeyLevels = 2047.0f;  // 12 bits beside the 4 of the position

template <class Key>
struct KeyScratch {
    std::vector<Key> keys, copies;
};

}  // namespace

WinnerHasher::WinnerHasher(const WinnerHasherShape& shape, const uint32_t* permutations, const uint32_t* offsets)
    : shape_(shape),
      groups_((shape.bands + 15) / 16),
      copy_stride_(shape.features + 15),
      offsets_(offsets, offsets + groups_ * shape.planes * shape.window) {
    for (size_t copy = 0; copy < shape.copies; ++copy)
        for (size_t i = 0; i < copy_stride_; ++i)
            gather_.push_back(permutations[copy * shape.features + i % shape.features]);
}

bool WinnerHasher::run(const float* x, uint32_t* padded_buckets, const WinnerDetail* detail) const {
    const Kernels& k = kernels();
    const WindowPlan plan{offsets_.data(),  groups_,       shape_.planes, shape_.window,
                          shape_.code_bits, shape_.copies, copy_stride_};
    const auto hash_keys = [&](auto& scratch, auto make_keys, auto winners) {
        scratch.keys.resize(shape_.features);
        scratch.copies.resize(gather_.size());
        make_keys(scratch.keys.data());
        const auto [low, high] = std::minmax_element(scratch.keys.begin(), scratch.keys.end());
        if (*low == *high) return false;
        for (size_t i = 0; i < gather_.size(); ++i) scratch.copies[i] = scratch.keys[gather_[i]];
        winners(plan, scratch.copies.data(), padded_buckets, detail);
        return true;
    };
    if (shape_.exact_keys) {
        thread_local KeyScratch<int32_t> scratch;
        return hash_keys(scratch, [&](int32_t* keys) { k.exact_keys(x, shape_.features, keys); }, k.exact_winners);
    }
    const float largest = k.largest_magnitude(x, shape_.features);
    if (largest < kTiniest) return false;
    thread_local KeyScratch<int16_t> scratch;
    return hash_keys(
        scratch, [&](int16_t* keys) { k.fast_keys(x, shape_.features, kKeyLevels / largest, keys); }, k.fast_winners);
}

bool WinnerHasher::hash(const float* x, uint32_t* buckets) const {
    thread_local std::vector<uint32_t> padded;
    padded.resize(padded_bands());
    if (!run(x, padded.data(), nullptr)) return false;
    std::memcpy(buckets, padded.data(), shape_.bands * sizeof(uint32_t));
    return true;
}

bool WinnerHasher::hash_query(const float* x, QueryWinners& out) const {
    const size_t codes = padded_bands() * shape_.planes;
    out.buckets.resize(padded_bands());
    out.silent.resize(padded_bands());
    out.best.resize(codes);
    out.second.resize(codes);
    out.margin.resize(codes);
    const WinnerDetail detail{out.best.data(), out.second.data(), out.margin.data(), out.silent.data()};
    return run(x, out.buckets.data(), &detail);
}

}  // namespace manyclass
