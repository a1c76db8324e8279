// Python's view of cpp/row_products.h.
#include "../cpp/row_products.h"

#include <nanobind/stl/optional.h>

#include <algorithm>

#include "arrays.h"
#include "row_rule.h"

using namespace manyclass;

namespace {

DenseRows view(const In<float, 2>& rows) {
    return {rows.data(), rows.shape(0), rows.shape(1)};
}

DenseRows view(const RowsArray& rows) {
    return {rows.data(), rows.shape(0), rows.shape(1), row_type(rows)};
}

void check_rows(const ChosenRows& chosen, size_t rows) {
    require(chosen.rows().empty() || static_cast<size_t>(chosen.rows().back()) < rows, "id out of range");
}

template <class Array>
void check_pairs(const ChosenRows& chosen, const Array& array) {
    require(array.shape(0) == chosen.examples() && array.shape(1) == chosen.width(), "one number per pair");
}

void products(const ChosenRows& self, RowsArray weight, std::optional<In<float, 1>> bias, In<float, 2> input,
              Out<float, 2> out, size_t threads) {
    check_rows(self, weight.shape(0));
    check_pairs(self, out);
    // More biases than rows are those of a head that grows while it is asked.
    require(!bias || bias->size() >= weight.shape(0), "bias does not fit the weight");
    require(input.shape(0) == self.examples() && input.shape(1) == weight.shape(1), "input");
    const DenseRows rows = view(weight);
    const float* bias_data = bias ? bias->data() : nullptr;
    nb::gil_scoped_release unlocked;
    self.products(rows, bias_data, input.data(), out.data(), std::max<size_t>(1, threads));
}

void row_gradients(const ChosenRows& self, In<float, 2> gradient, In<float, 2> input, Out<float, 2> out,
                   Out<float, 1> sums, size_t threads) {
    check_pairs(self, gradient);
    require(input.shape(0) == self.examples(), "input");
    require(out.shape(0) == self.rows().size() && out.shape(1) == input.shape(1), "out");
    require(sums.size() == self.rows().size(), "sums");
    nb::gil_scoped_release unlocked;
    self.row_gradients(gradient.data(), view(input), out.data(), sums.data(), std::max<size_t>(1, threads));
}

void bound_update_rows(const ChosenRows& self, In<float, 2> gradient, In<float, 2> input, const RowRuleTuple& tuple,
                       StoredArray weight, RowState first, RowState second, Out<float, 1> sums, size_t threads) {
    check_pairs(self, gradient);
    check_rows(self, weight.shape(0));
    require(input.shape(0) == self.examples() && input.shape(1) == weight.shape(1), "input");
    require(sums.size() == self.rows().size(), "sums");
    const RowRule rule = row_rule(tuple);
    const RowsToUpdate rows = rows_to_update(rule, weight, first, second);
    nb::gil_scoped_release unlocked;
    self.update_rows(gradient.data(), view(input), rule, rows, sums.data(), std::max<size_t>(1, threads));
}

void input_gradients(const ChosenRows& self, In<float, 2> gradient, RowsArray weight, Out<float, 2> out,
                     size_t threads) {
    check_rows(self, weight.shape(0));
    check_pairs(self, gradient);
    require(out.shape(0) == self.examples() && out.shape(1) == weight.shape(1), "out");
    const DenseRows rows = view(weight);
    nb::gil_scoped_release unlocked;
    self.input_gradients(gradient.data(), rows, out.data(), std::max<size_t>(1, threads));
}

}  // namespace

void bind_row_products(nb::module_& m) {
    nb::class_<ChosenRows>(m, "ChosenRows")
        .def("__init__",
             [](ChosenRows* self, In<int64_t, 2> ids) {
                 require(ids.size() < size_t{1} << 32, "too many pairs");
                 nb::gil_scoped_release unlocked;
                 new (self) ChosenRows(ids.data(), ids.shape(0), ids.shape(1));
             })
        .def_prop_ro(
            "rows",
            [](const ChosenRows& self) { return copied(std::vector<int64_t>(self.rows().begin(), self.rows().end())); },
            nb::rv_policy::move)
        .def("products", &products, nb::arg("weight"), nb::arg("bias").none(), nb::arg("input"), nb::arg("out"),
             nb::arg("threads"))
        .def("row_gradients", &row_gradients)
        .def("update_rows", &bound_update_rows, nb::arg("gradient"), nb::arg("input"), nb::arg("rule"),
             nb::arg("weight"), nb::arg("first").none(), nb::arg("second").none(), nb::arg("sums"), nb::arg("threads"))
        .def("input_gradients", &input_gradients);
}
