#include "row_products.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "prefetch.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kChunk = 64;           // pairs of one row that are worked on together
constexpr size_t kSlicesPerThread = 8;  // so that a thread that was held up does not hold up all
constexpr unsigned kDigit = 11;

struct Keyed {
    uint64_t id;
    uint32_t slot;
};

// By id, order of slots kept: a radix sort, as ids are small numbers and there are many.
void sort_by_id(std::vector<Keyed>& pairs, uint64_t largest) {
    std::vector<Keyed> other(pairs.size());
    for (unsigned shift = 0; shift < std::bit_width(largest); shift += kDigit) {
        size_t starts[(1u << kDigit) + 1] = {};
        const uint64_t mask = (1u << kDigit) - 1;
        for (const Keyed& pair : pairs) ++starts[((pair.id >> shift) & mask) + 1];
        for (size_t i = 0; i < mask; ++i) starts[i + 1] += starts[i];
        for (const Keyed& pair : pairs) other[starts[(pair.id >> shift) & mask]++] = pair;
        pairs.swap(other);
    }
}

}  // namespace

ChosenRows::ChosenRows(const int64_t* ids, size_t examples, size_t width)
    : examples_(examples), width_(width), ids_(ids, ids + examples * width) {
    std::vector<Keyed> pairs;
    pairs.reserve(ids_.size());
    uint64_t largest = 0;
    for (size_t slot = 0; slot < ids_.size(); ++slot)
        if (ids_[slot] >= 0) {
            pairs.push_back({static_cast<uint64_t>(ids_[slot]), static_cast<uint32_t>(slot)});
            largest = std::max(largest, pairs.back().id);
        }
    sort_by_id(pairs, largest);
    slots_.resize(pairs.size());
    for (size_t i = 0; i < pairs.size(); ++i) {
        if (!i || pairs[i].id != pairs[i - 1].id) {
            rows_.push_back(static_cast<int64_t>(pairs[i].id));
            starts_.push_back(static_cast<uint32_t>(i));
        }
        slots_[i] = pairs[i].slot;
    }
    starts_.push_back(static_cast<uint32_t>(pairs.size()));
}

// The first row whose pairs begin in or after the slice-th share of all pairs.
size_t ChosenRows::slice_begin(size_t slice, size_t slices) const {
    const auto bound = static_cast<uint32_t>(slots_.size() * slice / slices);
    return static_cast<size_t>(std::lower_bound(starts_.begin(), starts_.end() - 1, bound) - starts_.begin());
}

void ChosenRows::products(const DenseRows& weight, const float* bias, const float* input, float* out,
                          size_t threads) const {
    const Kernels& run = kernels();
    const size_t features = weight.features, row_bytes = weight.row_bytes();
    const size_t slices = threads * kSlicesPerThread;
    for (size_t slot = 0; slot < ids_.size(); ++slot)
        if (ids_[slot] < 0) out[slot] = -std::numeric_limits<float>::infinity();
    parallel_for(slices, threads, [&](size_t slice, size_t) {
        const size_t begin = slice_begin(slice, slices);
        const size_t end = slice + 1 == slices ? rows_.size() : slice_begin(slice + 1, slices);
        const float* inputs[kChunk];
        float sums[kChunk];
        const size_t ahead = std::max<size_t>(1, 2048 / features);
        for (size_t row = begin; row < end; ++row) {
            if (row + ahead < end) prefetch_row(weight.row(static_cast<size_t>(rows_[row + ahead])), row_bytes);
            const auto id = static_cast<size_t>(rows_[row]);
            for (size_t at = starts_[row]; at < starts_[row + 1]; at += kChunk) {
                const size_t n = std::min<size_t>(kChunk, starts_[row + 1] - at);
                for (size_t i = 0; i < n; ++i) inputs[i] = input + slots_[at + i] / width_ * features, sums[i] = 0;
                run.dots(weight.row(id), weight.type, inputs, n, features, sums);
                for (size_t i = 0; i < n; ++i) out[slots_[at + i]] = bias ? sums[i] + bias[id] : sums[i];
            }
        }
    });
}

// Writes the gradient of one row and returns the sum of its pairs' gradients.
float ChosenRows::row_gradient(size_t row, const float* gradient, const DenseRows& input, const Kernels& run,
                               float* out) const {
    const void* inputs[kChunk];
    float weights[kChunk];
    float sum = 0;
    std::memset(out, 0, input.features * sizeof(float));
    for (size_t at = starts_[row]; at < starts_[row + 1]; at += kChunk) {
        const size_t n = std::min<size_t>(kChunk, starts_[row + 1] - at);
        for (size_t i = 0; i < n; ++i) {
            inputs[i] = input.row(slots_[at + i] / width_);
            weights[i] = gradient[slots_[at + i]];
            sum += weights[i];
        }
        run.weighted_sum(inputs, input.type, weights, n, input.features, out);
    }
    return sum;
}

void ChosenRows::row_gradients(const float* gradient, const DenseRows& input, float* out, float* sums,
                               size_t threads) const {
    const Kernels& run = kernels();
    const size_t slices = threads * kSlicesPerThread;
    parallel_for(slices, threads, [&](size_t slice, size_t) {
        const size_t end = slice + 1 == slices ? rows_.size() : slice_begin(slice + 1, slices);
        for (size_t row = slice_begin(slice, slices); row < end; ++row)
            sums[row] = row_gradient(row, gradient, input, run, out + row * input.features);
    });
}

void ChosenRows::update_rows(const float* gradient, const DenseRows& input, const RowRule& rule,
                             const RowsToUpdate& rows, float* sums, size_t threads) const {
    const Kernels& run = kernels();
    const size_t slices = threads * kSlicesPerThread, width = rows.width;
    const size_t ahead = std::max<size_t>(1, 2048 / width);
    parallel_for(slices, threads, [&](size_t slice, size_t) {
        std::vector<float> own(width);
        const size_t end = slice + 1 == slices ? rows_.size() : slice_begin(slice + 1, slices);
        for (size_t row = slice_begin(slice, slices); row < end; ++row) {
            if (row + ahead < end) rows.prefetch(static_cast<size_t>(rows_[row + ahead]));
            sums[row] = row_gradient(row, gradient, input, run, own.data());
            rows.update(rule, static_cast<size_t>(rows_[row]), own.data(), run);
        }
    });
}

void ChosenRows::input_gradients(const float* gradient, const DenseRows& weight, float* out, size_t threads) const {
    const Kernels& run = kernels();
    const size_t features = weight.features;
    parallel_for(examples_, threads, [&](size_t example, size_t) {
        const void* rows[kChunk];
        float weights[kChunk];
        float* to = out + example * features;
        std::memset(to, 0, features * sizeof(float));
        const int64_t* ids = ids_.data() + example * width_;
        const float* own = gradient + example * width_;
        for (size_t at = 0; at < width_; at += kChunk) {
            size_t n = 0;
            for (size_t i = at; i < std::min(width_, at + kChunk); ++i) {
                if (ids[i] < 0) continue;
                rows[n] = weight.row(static_cast<size_t>(ids[i]));
                weights[n++] = own[i];
                prefetch_row(rows[n - 1], weight.row_bytes());
            }
            run.weighted_sum(rows, weight.type, weights, n, features, to);
        }
    });
}

}  // namespace manyclass
