// Python's view of cpp/shared_step.h.
#include "../cpp/shared_step.h"

#include <nanobind/stl/optional.h>

#include <algorithm>

#include "row_rule.h"

using namespace manyclass;

namespace {

void make(SharedStep* self, In<int64_t, 1> ids, In<int64_t, 2> positives) {
    require(ids.size() < size_t{1} << 32 && positives.size() < size_t{1} << 32, "too many classes or positives");
    const int64_t *const id = ids.data(), *const end = id + ids.size();
    nb::gil_scoped_release unlocked;
    for (const int64_t* at = id; at < end; ++at)
        require(*at >= 0 && (at == id || at[-1] < *at), "ids must be ascending and not negative");
    new (self) SharedStep(id, ids.size(), positives.data(), positives.shape(0), positives.shape(1));
}

void losses(SharedStep& self, RowsArray weight, std::optional<In<float, 1>> bias, In<float, 2> input, float scale,
            In<float, 1> log_weights, std::optional<In<float, 1>> spread, In<float, 2> shares, bool logistic,
            bool gradients_follow, Out<float, 1> losses, Out<float, 1> pull, Out<float, 1> tail_variance,
            size_t threads) {
    require(self.ids_below(weight.shape(0)), "id out of range");
    require(!bias || bias->size() == weight.shape(0), "bias does not fit the weight");
    require(input.shape(0) == self.examples() && input.shape(1) == weight.shape(1) && weight.shape(1) > 0, "input");
    require(log_weights.size() == self.classes() && pull.size() == self.classes(), "one number per class");
    require(!spread || spread->size() == self.classes(), "one number per class");
    require(shares.shape(0) == self.examples() && shares.shape(1) == self.width(), "one share per positive");
    require(losses.size() == self.examples() && tail_variance.size() == self.examples(), "one number per example");
    const SharedLoss loss{{weight.data(), weight.shape(0), weight.shape(1), row_type(weight)},
                          bias ? bias->data() : nullptr,
                          input.data(),
                          scale,
                          log_weights.data(),
                          spread ? spread->data() : nullptr,
                          shares.data(),
                          logistic,
                          gradients_follow};
    const SharedResult result{losses.data(), pull.data(), tail_variance.data()};
    nb::gil_scoped_release unlocked;
    self.losses(loss, result, std::max<size_t>(1, threads));
}

template <class Array>
void check_examples(const SharedStep& self, const In<float, 1>& gradient, const Array& of_examples) {
    require(self.features() > 0, "losses() has kept nothing for gradients");
    require(gradient.size() == self.examples(), "one gradient per example");
    require(of_examples.shape(0) == self.examples() && of_examples.shape(1) == self.features(), "one row per example");
}

void input_gradients(const SharedStep& self, In<float, 1> gradient, Out<float, 2> out, size_t threads) {
    check_examples(self, gradient, out);
    nb::gil_scoped_release unlocked;
    self.input_gradients(gradient.data(), out.data(), std::max<size_t>(1, threads));
}

void row_gradients(const SharedStep& self, In<float, 1> gradient, In<float, 2> input, Out<float, 2> out,
                   Out<float, 1> sums, size_t threads) {
    check_examples(self, gradient, input);
    require(out.shape(0) == self.classes() && out.shape(1) == self.features(), "out");
    require(sums.size() == self.classes(), "sums");
    nb::gil_scoped_release unlocked;
    self.row_gradients(gradient.data(), input.data(), out.data(), sums.data(), std::max<size_t>(1, threads));
}

void bound_update_rows(const SharedStep& self, In<float, 1> gradient, In<float, 2> input, const RowRuleTuple& tuple,
                       StoredArray weight, RowState first, RowState second, Out<float, 1> sums, size_t threads) {
    check_examples(self, gradient, input);
    require(self.ids_below(weight.shape(0)) && weight.shape(1) == self.features(), "id out of range");
    require(sums.size() == self.classes(), "sums");
    const RowRule rule = row_rule(tuple);
    const RowsToUpdate rows = rows_to_update(rule, weight, first, second);
    nb::gil_scoped_release unlocked;
    self.update_rows(gradient.data(), input.data(), rule, rows, sums.data(), std::max<size_t>(1, threads));
}

}  // namespace

void bind_shared_step(nb::module_& m) {
    nb::class_<SharedStep>(m, "SharedStep")
        .def("__init__", &make)
        .def("losses", &losses, nb::arg("weight"), nb::arg("bias").none(), nb::arg("input"), nb::arg("scale"),
             nb::arg("log_weights"), nb::arg("spread").none(), nb::arg("shares"), nb::arg("logistic"),
             nb::arg("gradients_follow"), nb::arg("losses"), nb::arg("pull"), nb::arg("tail_variance"),
             nb::arg("threads"))
        .def("input_gradients", &input_gradients)
        .def("row_gradients", &row_gradients)
        .def("update_rows", &bound_update_rows, nb::arg("gradient"), nb::arg("input"), nb::arg("rule"),
             nb::arg("weight"), nb::arg("first").none(), nb::arg("second").none(), nb::arg("sums"), nb::arg("threads"));
}
