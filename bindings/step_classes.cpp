// Python's view of cpp/step_classes.h.
#include "../cpp/step_classes.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <array>

#include "arrays.h"

using namespace manyclass;

namespace {

std::span<const int64_t> view(const In<int64_t, 1>& ids) {
    return {ids.data(), ids.size()};
}

void require_below(std::span<const int64_t> ids, size_t classes, int64_t least) {
    const auto is_class = [&](int64_t id) { return id >= least && (id < 0 || static_cast<size_t>(id) < classes); };
    require(std::all_of(ids.begin(), ids.end(), is_class), "ids are those of classes that have a count");
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
    m.def("sampled_classes",
          [](In<int64_t, 1> targets, In<int64_t, 1> draws, In<int32_t, 1> counts, std::array<double, 6> chances) {
              for (const auto& ids : {view(targets), view(draws)}) require_below(ids, counts.size(), INT64_MIN);
              const auto [known, alike, new_share, classes_left, others, uniform] = chances;
              const WeightedClasses found = sampled_classes(view(targets), view(draws), {counts.data(), counts.size()},
                                                            {known, alike, new_share, classes_left, others, uniform});
              return std::pair(copied(found.ids), copied(found.log_weights));
          });
    m.def("count_targets", [](In<int64_t, 1> targets, Out<int32_t, 1> counts, Out<int32_t, 1> ring, size_t place) {
        require_below(view(targets), counts.size(), 0);
        require(targets.size() <= ring.size() && place < ring.size(), "no more targets than the ring holds");
        for (size_t i = 0, at = place; i < targets.size(); ++i, at = at + 1 < ring.size() ? at + 1 : 0)
            require(ring.data()[at] < 0 || static_cast<size_t>(ring.data()[at]) < counts.size(),
                    "the ring holds classes that have a count");
        const Repetitions found =
            count_targets(view(targets), {counts.data(), counts.size()}, {ring.data(), ring.size()}, place);
        return std::tuple(found.met, found.unmet, found.pairs);
    });
}
