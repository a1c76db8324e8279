#include "shared_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "prefetch.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kClassBlock = 72;    // classes worked on together: whole tiles of every instruction set
constexpr size_t kRowsAtOnce = 24;    // classes whose row gradients are made together
constexpr size_t kExampleBlock = 96;  // examples, and panels of features, whose input gradients are made together
constexpr size_t kFeaturePanels = 4;
constexpr float kNone = -std::numeric_limits<float>::infinity();

size_t padded(size_t n) {
    return (n + kPanel - 1) / kPanel * kPanel;
}

// [panels][features][kPanel]: examples are the columns of a panel, 0 where there is none.
AlignedFloats example_panels(const float* input, size_t examples, size_t features, size_t threads) {
    const size_t panels = padded(examples) / kPanel;
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

// [panels][examples][kPanel]: features are the columns, each example times its factor.
AlignedFloats feature_panels(const float* input, const float* factors, size_t examples, size_t features,
                             size_t threads) {
    const size_t panels = padded(features) / kPanel;
    AlignedFloats out(panels * examples * kPanel);
    parallel_for(panels, threads, [&](size_t panel, size_t) {
        const size_t first = panel * kPanel, count = std::min(kPanel, features - first);
        float* to = out.data() + panel * examples * kPanel;
        for (size_t example = 0; example < examples; ++example, to += kPanel)
            for (size_t lane = 0; lane < kPanel; ++lane)
                to[lane] = lane < count ? factors[example] * input[example * features + first + lane] : 0.0f;
    });
    return out;
}

// A block's rows as float32: where they lie, or widened here.
class BlockRows {
public:
    BlockRows(const DenseRows& weight, const int64_t* ids, size_t count, const Kernels& run) {
        const size_t ahead = std::max<size_t>(1, 2048 / weight.features);
        if (weight.type != RowType::f32) wide_.resize(count * weight.features);
        for (size_t i = 0; i < count; ++i) {
            if (i + ahead < count) prefetch_row(weight.row(static_cast<size_t>(ids[i + ahead])), weight.row_bytes());
            const void* row = weight.row(static_cast<size_t>(ids[i]));
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

// Lines of one float per example.
struct SharedStep::Partial {
    float* shift;    // softmax: the largest logit; then what the block's values are multiplied with
    float* sums;     // softmax: of e^(logit - shift); logistic: of the losses
    float* squares;  // of what `sums` (logistic: the shares) adds up, where a class stands for several
    float* spread;   // sum of spread * product
};

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

size_t SharedStep::blocks() const {
    return (ids_.size() + kClassBlock - 1) / kClassBlock;
}

size_t SharedStep::block_size(size_t block) const {
    return std::min(kClassBlock, ids_.size() - block * kClassBlock);
}

void SharedStep::losses(const SharedLoss& loss, const SharedResult& result, size_t threads) {
    const Kernels& run = kernels();
    const size_t features = loss.weight.features, classes = ids_.size();
    scale_ = loss.scale;
    logits_ = AlignedFloats(classes * lanes_);
    if (loss.gradients_follow) rows_ = AlignedFloats(classes * padded(features));
    const AlignedFloats panels = example_panels(loss.input, examples_, features, threads);
    AlignedFloats lines(blocks() * 4 * lanes_), own(examples_ * width_ + 1);
    const auto partial = [&](size_t block) {
        float* const first = lines.data() + block * 4 * lanes_;
        return Partial{first, first + lanes_, first + 2 * lanes_, first + 3 * lanes_};
    };

    parallel_for(blocks(), threads, [&](size_t block, size_t) {
        Partial part = partial(block);
        const BlockRows rows(loss.weight, ids_.data() + block * kClassBlock, block_size(block), run);
        if (loss.gradients_follow) keep_rows(rows.data(), features, block);
        block_logits(loss, rows.data(), panels.data(), block, part, own.data());
        if (loss.logistic)
            logistic_block(loss, block, part, own.data(), result.pull);
        else
            softmax_block(loss, block, part, own.data());
    });

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
            for (size_t block = 0; block < blocks(); ++block) sum += partial(block).spread[example];
            of_targets[example] += sum * loss.scale;
        }
    }

    if (loss.logistic) {
        for (size_t example = 0; example < examples_; ++example) {
            double sum = extra[example], squares = 0;
            for (size_t block = 0; block < blocks(); ++block) {
                sum += partial(block).sums[example];
                squares += partial(block).squares[example];
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
        for (size_t block = 0; block < blocks(); ++block) {
            const float* shift = partial(block).shift;
            for (size_t e = 0; e < lanes_; ++e) largest[e] = largest[e] >= shift[e] ? largest[e] : shift[e];
        }
        for (size_t block = 0; block < blocks(); ++block) {
            const Partial part = partial(block);
            run.exponentials(part.shift, largest.data(), lanes_, ignored.data(), nullptr);
            for (size_t e = 0; e < lanes_; ++e) {
                const double factor = part.shift[e];
                sums[e] += factor * part.sums[e];
                squares[e] += factor * factor * part.squares[e];
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
        for (size_t block = 0; block < blocks(); ++block)
            for (size_t e = 0; e < lanes_; ++e) {
                float& factor = partial(block).shift[e];
                factor = e < examples_ ? static_cast<float>(factor / sums[e]) : 0.0f;
            }
        parallel_for(blocks(), threads, [&](size_t block, size_t) {
            const float* factors = partial(block).shift;
            for (size_t place = block * kClassBlock; place < block * kClassBlock + block_size(block); ++place) {
                const float spread = loss.spread ? loss.spread[place] : 0.0f;
                float* values = logits_of(place);
                result.pull[place] = run.softmax_shares(values, factors, mass_lanes.data(), spread, lanes_) +
                                     static_cast<float>(starts_[place + 1] - starts_[place]);
                for (size_t i = starts_[place]; i < starts_[place + 1]; ++i)
                    values[pairs_[i].example] += spread - loss.shares[pairs_[i].slot];
            }
        });
    }
    features_ = loss.gradients_follow ? features : 0;
    if (!loss.gradients_follow) logits_ = AlignedFloats();
}

void SharedStep::keep_rows(const float* const* rows, size_t features, size_t block) {
    const size_t width = padded(features), count = block_size(block);
    float* to = rows_.data() + block * kClassBlock * width;
    for (size_t i = 0; i < count; ++i, to += width) {
        std::memcpy(to, rows[i], features * sizeof(float));
        std::fill(to + features, to + width, 0.0f);
    }
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
        const float bias = loss.bias ? loss.bias[ids_[place]] : 0.0f;
        float* line = logits_of(place);
        for (size_t i = starts_[place]; i < starts_[place + 1]; ++i) {
            float& logit = line[pairs_[i].example];
            own[pairs_[i].slot] = (logit + bias) * loss.scale;
            logit = kNone;
        }
        run.finish_logits(line, bias, loss.scale, loss.logistic ? 0 : loss.log_weights[place], lanes_, partial.shift);
    }
}

void SharedStep::softmax_block(const SharedLoss& loss, size_t block, Partial& partial, const float* own) {
    const Kernels& run = kernels();
    const size_t first = block * kClassBlock, end = first + block_size(block);
    for (size_t i = starts_[first]; i < starts_[end]; ++i) {
        float& shift = partial.shift[pairs_[i].example];
        shift = shift >= own[pairs_[i].slot] ? shift : own[pairs_[i].slot];
    }
    for (size_t e = 0; e < lanes_; ++e)
        if (partial.shift[e] == kNone) partial.shift[e] = -std::numeric_limits<float>::max();  // no class of the block
    for (size_t place = first; place < end; ++place) {
        float* line = logits_of(place);
        run.exponentials(line, partial.shift, lanes_, partial.sums,
                         loss.log_weights[place] > 0 ? partial.squares : nullptr);
        for (size_t i = starts_[place]; i < starts_[place + 1]; ++i) {
            const auto [example, slot] = pairs_[i];
            line[example] = std::exp(own[slot] - partial.shift[example]);
            partial.sums[example] += line[example];
        }
    }
}

void SharedStep::logistic_block(const SharedLoss& loss, size_t block, Partial& partial, const float* own, float* pull) {
    const Kernels& run = kernels();
    const size_t first = block * kClassBlock, end = first + block_size(block);
    for (size_t place = first; place < end; ++place) {
        const float weight = std::exp(loss.log_weights[place]), log_weight = loss.log_weights[place];
        float* line = logits_of(place);
        std::fill(line + examples_, line + lanes_, kNone);
        pull[place] =
            run.logistic_shares(line, weight, lanes_, partial.sums, log_weight > 0 ? partial.squares : nullptr);
        if (loss.spread)
            for (size_t e = 0; e < examples_; ++e) line[e] -= loss.spread[place];
        for (size_t i = starts_[place]; i < starts_[place + 1]; ++i) {
            const auto [example, slot] = pairs_[i];
            const auto share = static_cast<float>(sigmoid(own[slot]));
            pull[place] += share + 1;
            line[example] = share - loss.shares[slot];
        }
    }
}

void SharedStep::input_gradients(const float* gradient, float* out, size_t threads) const {
    const Kernels& run = kernels();
    const size_t width = padded(features_), panels = width / kPanel;
    const size_t across = (panels + kFeaturePanels - 1) / kFeaturePanels;
    const size_t down = (examples_ + kExampleBlock - 1) / kExampleBlock;
    parallel_for(down * across, threads, [&](size_t task, size_t) {
        const size_t panel = task % across * kFeaturePanels, some = std::min(kFeaturePanels, panels - panel);
        const size_t begin = task / across * kExampleBlock, count = std::min(kExampleBlock, examples_ - begin);
        alignas(64) float sums[kExampleBlock][kFeaturePanels * kPanel] = {};
        alignas(64) float panels_of_block[kFeaturePanels * kClassBlock * kPanel];
        for (size_t block = 0; block < blocks(); ++block) {
            const size_t first = block * kClassBlock, depth = block_size(block);
            for (size_t i = 0; i < depth; ++i) {
                const float* row = rows_.data() + (first + i) * width + panel * kPanel;
                if (block + 1 < blocks()) prefetch_row(row + kClassBlock * width, some * kPanel * sizeof(float));
                for (size_t p = 0; p < some; ++p)
                    std::memcpy(panels_of_block + (p * depth + i) * kPanel, row + p * kPanel, kPanel * sizeof(float));
            }
            run.column_panels(logits_of(first) + begin, lanes_, count, panels_of_block, some, depth, sums[0],
                              kFeaturePanels * kPanel);
        }
        const size_t at = panel * kPanel, n = std::min(some * kPanel, features_ - at);
        for (size_t i = 0; i < count; ++i) {
            const float factor = gradient[begin + i] * scale_;
            for (size_t j = 0; j < n; ++j) out[(begin + i) * features_ + at + j] = factor * sums[i][j];
        }
    });
}

// Calls finish(place, gradient of the row, [features]) for every class.
template <class Finish>
void SharedStep::each_row_gradient(const float* gradient, const float* input, float* sums, size_t threads,
                                   Finish finish) const {
    const Kernels& run = kernels();
    AlignedFloats factors(examples_);
    for (size_t e = 0; e < examples_; ++e) factors[e] = gradient[e] * scale_;
    const AlignedFloats panels = feature_panels(input, factors.data(), examples_, features_, threads);
    const size_t width = padded(features_), tasks = (ids_.size() + kRowsAtOnce - 1) / kRowsAtOnce;
    AlignedFloats scratch(std::max<size_t>(1, threads) * kRowsAtOnce * width);
    const float* const queries[] = {factors.data()};
    parallel_for(tasks, threads, [&](size_t task, size_t worker) {
        const size_t first = task * kRowsAtOnce, count = std::min(kRowsAtOnce, ids_.size() - first);
        const float* lines[kRowsAtOnce] = {};
        float* const own = scratch.data() + worker * kRowsAtOnce * width;
        for (size_t i = 0; i < count; ++i) {
            lines[i] = logits_of(first + i);
            sums[first + i] = 0;
            run.dots(lines[i], RowType::f32, queries, 1, examples_, sums + first + i);
        }
        run.row_panels(lines, count, panels.data(), width / kPanel, examples_, own, width);
        for (size_t i = 0; i < count; ++i) finish(first + i, own + i * width);
    });
}

void SharedStep::row_gradients(const float* gradient, const float* input, float* out, float* sums,
                               size_t threads) const {
    each_row_gradient(gradient, input, sums, threads, [&](size_t place, const float* row) {
        std::memcpy(out + place * features_, row, features_ * sizeof(float));
    });
}

void SharedStep::update_rows(const float* gradient, const float* input, const RowRule& rule, const RowsToUpdate& rows,
                             float* sums, size_t threads) const {
    const Kernels& run = kernels();
    each_row_gradient(gradient, input, sums, threads, [&](size_t place, const float* row) {
        rows.update(rule, static_cast<size_t>(ids_[place]), row, run);
    });
}

}  // namespace manyclass
