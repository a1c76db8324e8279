// The classes of a shared step that count for nobody but the few examples whose positive they are: pair by pair.
#include <algorithm>
#include <cmath>
#include <limits>

#include "prefetch.h"
#include "shared_step.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kClassesAtOnce = 32;   // that a thread takes
constexpr size_t kExamplesAtOnce = 64;  // the same of examples
constexpr size_t kPairsAtOnce = 64;     // whose products with a row are made together

float sigmoid(float z) {
    const float u = std::exp(-std::fabs(z));
    return (z < 0 ? u : 1) / (1 + u);
}

// Calls work(begin, end) for parts of the numbers from `begin` to `end`.
template <class Work>
void in_parts(size_t begin, size_t end, size_t part, size_t threads, Work work) {
    parallel_for((end - begin + part - 1) / part, threads, [&](size_t number, size_t) {
        const size_t first = begin + number * part;
        work(first, std::min(end, first + part));
    });
}

}  // namespace

void SharedStep::alone_logits(const SharedLoss& loss, float* own, size_t threads) {
    const Kernels& run = kernels();
    const DenseRows& weight = loss.weight;
    alone_ = AlignedFloats(dense_ < ids_.size() ? examples_ * width_ : 0);
    in_parts(dense_, ids_.size(), kClassesAtOnce, threads, [&](size_t first, size_t end) {
        const size_t ahead = std::max<size_t>(1, 2048 / weight.features);
        std::vector<float> row(weight.features);
        const float* inputs[kPairsAtOnce];
        for (size_t place = first; place < end; ++place) {
            if (place + ahead < end)
                prefetch_row(weight.row(static_cast<size_t>(id(place + ahead))), weight.row_bytes());
            run.load_row(weight.row(static_cast<size_t>(id(place))), weight.type, weight.features, row.data());
            if (loss.gradients_follow) keep_row(row.data(), weight.features, place);
            const float bias = loss.bias ? loss.bias[id(place)] : 0.0f;
            for (auto pairs = pairs_of(place); !pairs.empty();
                 pairs = pairs.subspan(std::min(kPairsAtOnce, pairs.size()))) {
                const size_t n = std::min(kPairsAtOnce, pairs.size());
                float products[kPairsAtOnce] = {};
                for (size_t i = 0; i < n; ++i) inputs[i] = loss.input + pairs[i].example * weight.features;
                run.dots(row.data(), RowType::f32, inputs, n, weight.features, products);
                for (size_t i = 0; i < n; ++i) own[pairs[i].slot] = (products[i] + bias) * loss.scale;
            }
        }
    });
}

// Values e^(logit - shift), the shift being the largest logit of the example's pairs, and their sum.
void SharedStep::alone_softmax(Partial& partial, const float* own, size_t threads) {
    in_parts(0, lanes_, kExamplesAtOnce, threads, [&](size_t first, size_t end) {
        for (size_t e = first; e < end; ++e) {
            float shift = -std::numeric_limits<float>::max(), sum = 0;
            const size_t begin = e * width_, stop = e < examples_ && dense_ < ids_.size() ? begin + width_ : begin;
            for (size_t slot = begin; slot < stop; ++slot)
                if (alone_places_[slot] != kNotAlone) shift = shift >= own[slot] ? shift : own[slot];
            for (size_t slot = begin; slot < stop; ++slot)
                if (alone_places_[slot] != kNotAlone) sum += alone_[slot] = std::exp(own[slot] - shift);
            partial.shift[e] = shift;
            partial.sums[e] = sum;
        }
    });
}

void SharedStep::alone_softmax_shares(const SharedLoss& loss, const float* factors, const float* mass, float* pull) {
    for (size_t place = dense_; place < ids_.size(); ++place) {
        float pulled = 0;
        for (const auto [example, slot] : pairs_of(place)) {
            const float share = alone_[slot] * factors[example];
            pulled += share + 1;
            alone_[slot] = mass[example] * share - loss.shares[slot];
        }
        pull[given(place)] = pulled;
    }
}

void SharedStep::alone_logistic_shares(const SharedLoss& loss, const float* own, float* pull) {
    for (size_t place = dense_; place < ids_.size(); ++place) {
        float pulled = 0;
        for (const auto [example, slot] : pairs_of(place)) {
            const float share = sigmoid(own[slot]);
            pulled += share + 1;
            alone_[slot] = share - loss.shares[slot];
        }
        pull[given(place)] = pulled;
    }
}

void SharedStep::add_alone_input_gradients(const float* gradient, float* out, size_t threads) const {
    if (dense_ == ids_.size()) return;
    const Kernels& run = kernels();
    in_parts(0, examples_, kExamplesAtOnce, threads, [&](size_t first, size_t end) {
        std::vector<const void*> rows(width_);
        std::vector<float> weights(width_);
        for (size_t e = first; e < end; ++e) {
            size_t count = 0;
            for (size_t slot = e * width_; slot < (e + 1) * width_; ++slot) {
                if (alone_places_[slot] == kNotAlone) continue;
                rows[count] = rows_.data() + alone_places_[slot] * padded(features_);
                weights[count++] = alone_[slot] * gradient[e] * scale_;
            }
            run.weighted_sum(rows.data(), RowType::f32, weights.data(), count, features_, out + e * features_);
        }
    });
}

// Writes the gradient of a row, and returns that of its bias. factors: what the losses' gradients are, times the scale.
float SharedStep::alone_row_gradient(size_t place, const float* factors, const float* input, float* out) const {
    const Kernels& run = kernels();
    const void* inputs[kPairsAtOnce];
    float weights[kPairsAtOnce], sum = 0;
    std::fill_n(out, features_, 0.0f);
    for (auto pairs = pairs_of(place); !pairs.empty(); pairs = pairs.subspan(std::min(kPairsAtOnce, pairs.size()))) {
        const size_t n = std::min(kPairsAtOnce, pairs.size());
        for (size_t i = 0; i < n; ++i) {
            inputs[i] = input + pairs[i].example * features_;
            weights[i] = alone_[pairs[i].slot] * factors[pairs[i].example];
            sum += weights[i];
        }
        run.weighted_sum(inputs, RowType::f32, weights, n, features_, out);
    }
    return sum;
}

}  // namespace manyclass
