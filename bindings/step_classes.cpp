// Python's view of cpp/step_classes.h.
#include "../cpp/step_classes.h"

#include <nanobind/stl/pair.h>

#include "arrays.h"

using namespace manyclass;

namespace {

std::span<const int64_t> view(const In<int64_t, 1>& ids) {
    return {ids.data(), ids.size()};
}

}  // namespace

void bind_step_classes(nb::module_& m) {
    m.def("counted_ids", [](In<int64_t, 1> draws, In<int64_t, 1> members) {
        const CountedIds found = counted_ids(view(draws), view(members));
        return std::pair(copied(found.ids), copied(found.times));
    });
    m.def("merged_classes",
          [](In<int64_t, 1> given, double log_weight, In<int64_t, 1> drawn, In<double, 1> drawn_log_weights) {
              require(drawn.size() == drawn_log_weights.size(), "one log weight per drawn class");
              const std::span<const double> weights{drawn_log_weights.data(), drawn_log_weights.size()};
              const WeightedClasses found = merged_classes(view(given), log_weight, view(drawn), weights);
              return std::pair(copied(found.ids), copied(found.log_weights));
          });
}
