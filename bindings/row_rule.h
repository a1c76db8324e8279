// A row rule as Python passes it: manyclass._reference_rows.RowRule, a named tuple of twelve numbers.
#pragma once
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <tuple>

#include "../cpp/row_update.h"

namespace manyclass {

using RowRuleTuple =
    std::tuple<int, double, double, double, double, double, double, double, double, double, double, bool>;

// Doubles are rounded to float32 here, once, as NumPy's float32() does in the twin.
inline RowRule row_rule(const RowRuleTuple& tuple) {
    return std::apply(
        [](int kind, auto scale, auto step, auto weight_decay, auto keep, auto first_decay, auto first_share,
           auto second_decay, auto second_share, auto correction, auto eps, bool nesterov) {
            if (kind < RowRule::sgd || kind > RowRule::adam) throw std::invalid_argument("kind of rule is unknown");
            const auto f = [](double value) { return static_cast<float>(value); };
            return RowRule{static_cast<RowRule::Kind>(kind),
                           f(scale),
                           f(step),
                           f(weight_decay),
                           f(keep),
                           f(first_decay),
                           f(first_share),
                           f(second_decay),
                           f(second_share),
                           f(correction),
                           f(eps),
                           nesterov};
        },
        tuple);
}

}  // namespace manyclass
