// A row rule as Python passes it: manyclass._row_rule.RowRule, a named tuple of thirteen numbers.
#pragma once
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <tuple>

#include "../cpp/row_update.h"
#include "row_arrays.h"

namespace manyclass {

using RowRuleTuple =
    std::tuple<int, double, double, double, double, double, double, double, double, double, double, bool, uint64_t>;

// Doubles are rounded to float32 here, once, as NumPy's float32() does in the twin.
inline RowRule row_rule(const RowRuleTuple& tuple) {
    return std::apply(
        [](int kind, auto scale, auto step, auto weight_decay, auto keep, auto first_decay, auto first_share,
           auto second_decay, auto second_share, auto correction, auto eps, bool nesterov, uint64_t noise) {
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
                           nesterov,
                           noise};
        },
        tuple);
}

using RowState = std::optional<StoredArray>;

inline StoredRows stored(const StoredArray& array) {
    return {array.data(), row_type(array)};
}

inline RowsToUpdate rows_to_update(const RowRule& rule, const StoredArray& weight, const RowState& first,
                                   const RowState& second) {
    const auto state = [&](const RowState& given, bool used) -> StoredRows {
        if (!used) return {};
        require(given && given->shape(0) == weight.shape(0) && given->shape(1) == weight.shape(1),
                "the rule needs a state of the weight's shape");
        return stored(*given);
    };
    return {stored(weight), state(first, rule.uses_first()), state(second, rule.uses_second()), weight.shape(1)};
}

}  // namespace manyclass
