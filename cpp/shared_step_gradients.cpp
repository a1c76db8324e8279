// The gradients of a shared step: of the inputs, and of the rows, which may be applied at once.
#include <algorithm>
#include <cstring>

#include "prefetch.h"
#include "shared_step.h"
#include "thread_pool.h"

namespace manyclass {
namespace {

constexpr size_t kRowsAtOnce = 24;    // classes whose row gradients are made together
constexpr size_t kExampleBlock = 96;  // examples, and panels of features, whose input gradients are made together
constexpr size_t kFeaturePanels = 4;

// [panels][examples][kPanel]: features are the columns, each example times its factor.
AlignedFloats feature_panels(const float* input, const float* factors, size_t examples, size_t features,
                             size_t threads) {
    const size_t panels = (features + kPanel - 1) / kPanel;
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

}  // namespace

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
    add_alone_input_gradients(gradient, out, threads);
}

// Calls finish(place, gradient of the row, [features]) for every class, and writes the gradients of the biases.
template <class Finish>
void SharedStep::each_row_gradient(const float* gradient, const float* input, float* sums, size_t threads,
                                   Finish finish) const {
    const Kernels& run = kernels();
    AlignedFloats factors(examples_);
    for (size_t e = 0; e < examples_; ++e) factors[e] = gradient[e] * scale_;
    const AlignedFloats panels = feature_panels(input, factors.data(), examples_, features_, threads);
    const size_t width = padded(features_), tasks = (dense_ + kRowsAtOnce - 1) / kRowsAtOnce;
    AlignedFloats scratch(std::max<size_t>(1, threads) * kRowsAtOnce * width);
    const float* const queries[] = {factors.data()};
    parallel_for(tasks, threads, [&](size_t task, size_t worker) {
        const size_t first = task * kRowsAtOnce, count = std::min(kRowsAtOnce, dense_ - first);
        const float* lines[kRowsAtOnce] = {};
        float* const own = scratch.data() + worker * kRowsAtOnce * width;
        for (size_t i = 0; i < count; ++i) {
            lines[i] = logits_of(first + i);
            sums[given(first + i)] = 0;
            run.dots(lines[i], RowType::f32, queries, 1, examples_, sums + given(first + i));
        }
        run.row_panels(lines, count, panels.data(), width / kPanel, examples_, own, width);
        for (size_t i = 0; i < count; ++i) finish(first + i, own + i * width);
    });
    const size_t slices = (ids_.size() - dense_ + kRowsAtOnce - 1) / kRowsAtOnce;
    parallel_for(slices, threads, [&](size_t slice, size_t worker) {
        float* const own = scratch.data() + worker * kRowsAtOnce * width;
        const size_t first = dense_ + slice * kRowsAtOnce, end = std::min(ids_.size(), first + kRowsAtOnce);
        for (size_t place = first; place < end; ++place) {
            sums[given(place)] = alone_row_gradient(place, factors.data(), input, own);
            finish(place, own);
        }
    });
}

void SharedStep::row_gradients(const float* gradient, const float* input, float* out, float* sums,
                               size_t threads) const {
    each_row_gradient(gradient, input, sums, threads, [&](size_t place, const float* row) {
        std::memcpy(out + given(place) * features_, row, features_ * sizeof(float));
    });
}

void SharedStep::update_rows(const float* gradient, const float* input, const RowRule& rule, const RowsToUpdate& rows,
                             float* sums, size_t threads) const {
    const Kernels& run = kernels();
    each_row_gradient(gradient, input, sums, threads, [&](size_t place, const float* row) {
        rows.update(rule, static_cast<size_t>(id(place)), row, run);
    });
}

}  // namespace manyclass
