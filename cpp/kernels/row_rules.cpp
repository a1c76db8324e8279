// The arithmetic of the row optimizers (formulas in row_update.h): plain loops that the compiler vectorises. Every
// operation is IEEE and none is contracted, so all builds give the same bits.
#include "../row_update.h"
#include "vectors.h"

namespace manyclass::MANYCLASS_ISA {
namespace {

template <bool momentum, bool nesterov>
void sgd_row(const RowRule& rule, float* __restrict weight, float* __restrict first, const float* __restrict gradient,
             size_t n) {
    const float scale = rule.scale, step = rule.step, weight_decay = rule.weight_decay;
    const float decay = rule.first_decay, share = rule.first_share;
    const bool decays = weight_decay != 0;  // not left to 0 * weight, which is NaN for an infinite weight
    for (size_t i = 0; i < n; ++i) {
        float g = scale * gradient[i];
        if (decays) g = g + weight_decay * weight[i];
        if (momentum) {
            const float m = decay * first[i] + share * g;
            first[i] = m;
            g = nesterov ? g + decay * m : m;
        }
        weight[i] = weight[i] - step * g;
    }
}

void adagrad_row(const RowRule& rule, float* __restrict weight, float* __restrict first,
                 const float* __restrict gradient, size_t n) {
    const float scale = rule.scale, step = rule.step, weight_decay = rule.weight_decay, eps = rule.eps;
    const bool decays = weight_decay != 0;
    for (size_t i = 0; i < n; ++i) {
        float g = scale * gradient[i];
        if (decays) g = g + weight_decay * weight[i];
        const float s = first[i] + g * g;
        first[i] = s;
        weight[i] = weight[i] - (step * g) / (__builtin_sqrtf(s) + eps);
    }
}

void adam_row(const RowRule& rule, float* __restrict weight, float* __restrict first, float* __restrict second,
              const float* __restrict gradient, size_t n) {
    const float scale = rule.scale, step = rule.step, keep = rule.keep, eps = rule.eps, correction = rule.correction;
    const float first_decay = rule.first_decay, first_share = rule.first_share;
    const float second_decay = rule.second_decay, second_share = rule.second_share;
    for (size_t i = 0; i < n; ++i) {
        const float g = scale * gradient[i];
        const float m = first_decay * first[i] + first_share * g;
        const float v = second_decay * second[i] + (second_share * g) * g;
        first[i] = m;
        second[i] = v;
        weight[i] = keep * weight[i] - (step * m) / (__builtin_sqrtf(v) / correction + eps);
    }
}

}  // namespace

void apply_rule(const RowRule& rule, float* weight, float* first, float* second, const float* gradient, size_t n) {
    switch (rule.kind) {
        case RowRule::sgd:
            if (rule.first_decay == 0) return sgd_row<false, false>(rule, weight, first, gradient, n);
            if (rule.nesterov) return sgd_row<true, true>(rule, weight, first, gradient, n);
            return sgd_row<true, false>(rule, weight, first, gradient, n);
        case RowRule::adagrad:
            return adagrad_row(rule, weight, first, gradient, n);
        case RowRule::adam:
            return adam_row(rule, weight, first, second, gradient, n);
    }
}

}  // namespace manyclass::MANYCLASS_ISA
