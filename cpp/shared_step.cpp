#include "shared_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "prefetch.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kFewExamples = 8;  // a class that is the positive of fewer than one in so many is computed alone
constexpr float kNone = -std::numeric_limits<float>::infinity();

// [panels][features][kPanel]: examples are the columns of a panel, 0 where there is none.
AlignedFloats example_panels(const float* input, size_t examples, size_t features, size_t threads) {
    const size_t panels = (examples + kPanel - 1) / kPanel;
    AlignedFloats out(panels * features * kPanel);
    parallel_for(panels, threads, [&](size_t panel, size_t) {
        const size_t first = panel * kPanel, count = std::min(kPanel, examples - first);
        float* to = out.data() + panel * features * kPanel;
        for (size_t feature = 0; feature < features; ++feature, to += kPanel)
            for (size_t lane = 0; lane < kPanel; ++lane)
                to[lane] = lane < count ? input[(first + lane) * features + feature] : 0.0f;
    });
    return out;
}

// A block's rows as float32: where they lie, or widened here.
class BlockRows {
public:
    template <class Id>
    BlockRows(const DenseRows& weight, Id id, size_t count, const Kernels& run) {
        const size_t ahead = std::max<size_t>(1, 2048 / weight.features);
        if (weight.type != RowType::f32) wide_.resize(count * weight.features);
        for (size_t i = 0; i < count; ++i) {
            if (i + ahead < count) prefetch_row(weight.row(static_cast<size_t>(id(i + ahead))), weight.row_bytes());
            const void* row = weight.row(static_cast<size_t>(id(i)));
            rows_[i] = static_cast<const float*>(row);
            if (weight.type == RowType::f32) continue;
            run.load_row(row, weight.type, weight.features, wide_.data() + i * weight.features);
            rows_[i] = wide_.data() + i * weight.features;
        }
    }
    const float* const* data() const { return rows_; }

private:
    std::vector<float> wide_;
    const float* rows_[kClassBlock];
};

double softplus(double z) {
    return std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z)));
}

double sigmoid(double z) {
    const double u = std::exp(-std::fabs(z));
    return (z < 0 ? u : 1) / (1 + u);
}

}  // namespace

SharedStep::SharedStep(const int64_t* ids, size_t classes, const int64_t* positives, size_t examples, size_t width)
    : ids_(ids, ids + classes), examples_(examples), width_(width), lanes_(padded(examples)), starts_(classes + 1) {
    std::vector<uint32_t> places(examples * width);
    for (size_t slot = 0; slot < places.size(); ++slot) {
        if (positives[slot] < 0) continue;
        const auto at = std::lower_bound(ids_.begin(), ids_.end(), positives[slot]);
        if (at == ids_.end() || *at != positives[slot]) throw std::invalid_argument("a positive is not among the ids");
        places[slot] = static_cast<uint32_t>(at - ids_.begin());
        ++starts_[places[slot] + 1];
    }
    for (size_t place = 0; place < classes; ++place) starts_[place + 1] += starts_[place];
    pairs_.resize(starts_.back());
    std::vector<uint32_t> next(starts_.begin(), starts_.end() - 1);
    for (size_t slot = 0; slot < places.size(); ++slot)
        if (positives[slot] >= 0)
            pairs_[next[places[slot]]++] = {static_cast<uint32_t>(slot / width), static_cast<uint32_t>(slot)};
}

void SharedStep::set_order(const SharedLoss& loss) {
    const auto alone = [&](uint32_t at) {
        return !loss.spread && loss.log_weights[at] == kNone &&
               kFewExamples * (starts_[at + 1] - starts_[at]) < examples_;
    };
    order_.resize(ids_.size());
    std::iota(order_.begin(), order_.end(), 0u);
    const auto middle = std::stable_partition(order_.begin(), order_.end(), [&](uint32_t at) { return !alone(at); });
    dense_ = static_cast<size_t>(middle - order_.begin());
    alone_places_.assign(examples_ * width_, kNotAlone);
    for (size_t place = dense_; place < order_.size(); ++place)
        for (const Pair& pair : pairs_of(place)) alone_places_[pair.slot] = static_cast<uint32_t>(place);
}

void SharedStep::losses(const SharedLoss& loss, const SharedResult& result, size_t threads) {
    const Kernels& run = kernels();
    const size_t features = loss.weight.features, classes = ids_.size();
    scale_ = loss.scale;
    set_order(loss);
    logits_ = AlignedFloats(dense_ * lanes_);
    if (loss.gradients_follow) rows_ = AlignedFloats(classes * padded(features));
    const AlignedFloats panels = example_panels(loss.input, examples_, features, threads);
    AlignedFloats lines((blocks() + 1) * 4 * lanes_), own(examples_ * width_ + 1);
    const size_t parts = blocks() + 1;  // the last one is of the classes that are alone
    const auto partial = [&](size_t block) {
        float* const first = lines.data() + block * 4 * lanes_;
        return Partial{first, first + lanes_, first + 2 * lanes_, first + 3 * lanes_};
    };

    parallel_for(blocks(), threads, [&](size_t block, size_t) {
        Partial part = partial(block);
        const size_t first = block * kClassBlock;
        const BlockRows rows(loss.weight, [&](size_t i) { return id(first + i); }, block_size(block), run);
        for (size_t i = 0; loss.gradients_follow && i < block_size(block); ++i)
            keep_row(rows.data()[i], features, first + i);
        block_logits(loss, rows.data(), panels.data(), block, part, own.data());
        if (loss.logistic)
            logistic_block(loss, block, part, own.data(), result.pull);
        else
            softmax_block(loss, block, part, own.data());
    });
    alone_logits(loss, own.data(), threads);
    Partial of_alone = partial(blocks());
    std::memset(of_alone.shift, 0, 4 * lanes_ * sizeof(float));
    if (loss.logistic)
        alone_logistic_shares(loss, own.data(), result.pull);
    else
        alone_softmax(of_alone, own.data(), threads);

    // What an example's own positives add: targets and their logits.
    std::vector<double> mass(examples_), of_targets(examples_), extra(examples_);
    double spread_mass = 0;
    if (loss.spread)
        for (size_t place = 0; place < classes; ++place) spread_mass += loss.spread[place];
    std::fill(mass.begin(), mass.end(), spread_mass);
    for (size_t place = 0; place < classes; ++place)
        for (size_t i = starts_[place]; i < starts_[place + 1]; ++i) {
            const auto [example, slot] = pairs_[i];
            const double spread = loss.spread ? loss.spread[place] : 0.0;
            mass[example] += loss.shares[slot] - spread;
            of_targets[example] += (loss.shares[slot] - spread) * own[slot];
            extra[example] += loss.logistic ? softplus(own[slot]) : 0.0;
        }
    if (loss.spread) {
        double of_bias = 0;
        for (size_t place = 0; loss.bias && place < classes; ++place)
            of_bias += double{loss.spread[place]} * loss.bias[ids_[place]];
        for (size_t example = 0; example < examples_; ++example) {
            double sum = of_bias;
            for (size_t part = 0; part < parts; ++part) sum += partial(part).spread[example];
            of_targets[example] += sum * loss.scale;
        }
    }

    if (loss.logistic) {
        for (size_t example = 0; example < examples_; ++example) {
            double sum = extra[example], squares = 0;
            for (size_t part = 0; part < parts; ++part) {
                sum += partial(part).sums[example];
                squares += partial(part).squares[example];
            }
            result.losses[example] = static_cast<float>(sum - of_targets[example]);
            result.tail_variance[example] = static_cast<float>(squares);
        }
    } else {
        // Every block has its own shift: bring them to the largest, and the values to shares of the whole.
        AlignedFloats largest(lanes_), ignored(lanes_), mass_lanes(lanes_);
        std::vector<double> sums(lanes_), squares(lanes_);
        std::fill_n(largest.data(), lanes_, kNone);
        std::fill_n(ignored.data(), lanes_, 0.0f);
        for (size_t part = 0; part < parts; ++part) {
            const float* shift = partial(part).shift;
            for (size_t e = 0; e < lanes_; ++e) largest[e] = largest[e] >= shift[e] ? largest[e] : shift[e];
        }
        for (size_t part = 0; part < parts; ++part) {
            const Partial of_part = partial(part);
            run.exponentials(of_part.shift, largest.data(), lanes_, ignored.data(), nullptr);
            for (size_t e = 0; e < lanes_; ++e) {
                const double factor = of_part.shift[e];
                sums[e] += factor * of_part.sums[e];
                squares[e] += factor * factor * of_part.squares[e];
            }
        }
        for (size_t e = 0; e < lanes_; ++e) {
            const bool there = e < examples_;
            mass_lanes[e] = there ? static_cast<float>(mass[e]) : 0.0f;
            if (!there) continue;
            const double log_sum = largest[e] + std::log(sums[e]);
            result.losses[e] = static_cast<float>(mass[e] * log_sum - of_targets[e]);
            result.tail_variance[e] = static_cast<float>(squares[e] / (sums[e] * sums[e]));
        }
        for (size_t part = 0; part < parts; ++part)
            for (size_t e = 0; e < lanes_; ++e) {
                float& factor = partial(part).shift[e];
                factor = e < examples_ ? static_cast<float>(factor / sums[e]) : 0.0f;
            }
        parallel_for(blocks(), threads, [&](size_t block, size_t) {
            softmax_shares(loss, block, partial(block).shift, mass_lanes.data(), result.pull);
        });
        alone_softmax_shares(loss, of_alone.shift, mass_lanes.data(), result.pull);
    }
    features_ = loss.gradients_follow ? features : 0;
    if (!loss.gradients_follow) logits_ = AlignedFloats();
}

void SharedStep::keep_row(const float* row, size_t features, size_t place) {
    float* const to = rows_.data() + place * padded(features);
    std::memcpy(to, row, features * sizeof(float));
    std::fill(to + features, to + padded(features), 0.0f);
}

// Writes the block's logits, plus log weights for softmax, -inf in place of the examples' own positives, whose logits
// go to `own`.
void SharedStep::block_logits(const SharedLoss& loss, const float* const* rows, const float* panels, size_t block,
                              Partial& partial, float* own) {
    const Kernels& run = kernels();
    const size_t first = block * kClassBlock, count = block_size(block);
    const void* lines[kClassBlock];
    for (size_t i = 0; i < count; ++i) lines[i] = logits_of(first + i);
    run.row_panels(rows, count, panels, lanes_ / kPanel, loss.weight.features, logits_of(first), lanes_);
    std::fill_n(partial.shift, lanes_, kNone);
    std::memset(partial.sums, 0, 3 * lanes_ * sizeof(float));
    if (loss.spread) run.weighted_sum(lines, RowType::f32, loss.spread + first, count, lanes_, partial.spread);
    for (size_t place = first; place < first + count; ++place) {
        const float bias = loss.bias ? loss.bias[id(place)] : 0.0f;
        const float log_weight = loss.logistic ? 0 : loss.log_weights[given(place)];
        float* line = logits_of(place);
        for (const auto [example, slot] : pairs_of(place)) {
            own[slot] = (line[example] + bias) * loss.scale;
            line[example] = kNone;
        }
        run.finish_logits(line, bias, loss.scale, log_weight, lanes_, partial.shift);
    }
}

void SharedStep::softmax_block(const SharedLoss& loss, size_t block, Partial& partial, const float* own) {
    const Kernels& run = kernels();
    const size_t first = block * kClassBlock, end = first + block_size(block);
    for (size_t place = first; place < end; ++place)
        for (const auto [example, slot] : pairs_of(place)) {
            float& shift = partial.shift[example];
            shift = shift >= own[slot] ? shift : own[slot];
        }
    for (size_t e = 0; e < lanes_; ++e)
        if (partial.shift[e] == kNone) partial.shift[e] = -std::numeric_limits<float>::max();  // no class of the block
    for (size_t place = first; place < end; ++place) {
        float* line = logits_of(place);
        run.exponentials(line, partial.shift, lanes_, partial.sums,
                         loss.log_weights[given(place)] > 0 ? partial.squares : nullptr);
        for (const auto [example, slot] : pairs_of(place)) {
            line[example] = std::exp(own[slot] - partial.shift[example]);
            partial.sums[example] += line[example];
        }
    }
}

void SharedStep::softmax_shares(const SharedLoss& loss, size_t block, const float* factors, const float* mass,
                                float* pull) {
    const Kernels& run = kernels();
    for (size_t place = block * kClassBlock; place < block * kClassBlock + block_size(block); ++place) {
        const float spread = loss.spread ? loss.spread[given(place)] : 0.0f;
        float* values = logits_of(place);
        pull[given(place)] =
            run.softmax_shares(values, factors, mass, spread, lanes_) + static_cast<float>(pairs_of(place).size());
        for (const auto [example, slot] : pairs_of(place)) values[example] += spread - loss.shares[slot];
    }
}

void SharedStep::logistic_block(const SharedLoss& loss, size_t block, Partial& partial, const float* own, float* pull) {
    const Kernels& run = kernels();
    const size_t first = block * kClassBlock, end = first + block_size(block);
    for (size_t place = first; place < end; ++place) {
        const float log_weight = loss.log_weights[given(place)], weight = std::exp(log_weight);
        float& pulled = pull[given(place)];
        float* line = logits_of(place);
        std::fill(line + examples_, line + lanes_, kNone);
        pulled = run.logistic_shares(line, weight, lanes_, partial.sums, log_weight > 0 ? partial.squares : nullptr);
        if (loss.spread)
            for (size_t e = 0; e < examples_; ++e) line[e] -= loss.spread[given(place)];
        for (const auto [example, slot] : pairs_of(place)) {
            const auto share = static_cast<float>(sigmoid(own[slot]));
            pulled += share + 1;
            line[example] = share - loss.shares[slot];
        }
    }
}

}  // namespace manyclass
