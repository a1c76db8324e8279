// Python's view of cpp/row_update.h.
#include "../cpp/row_update.h"

#include "row_rule.h"

using namespace manyclass;

namespace {

void bound_update_rows(const RowRuleTuple& tuple, StoredArray weight, RowState first, RowState second,
                       In<int64_t, 1> ids, In<float, 2> gradient, size_t threads) {
    const RowRule rule = row_rule(tuple);
    require(gradient.shape(0) == ids.size() && gradient.shape(1) == weight.shape(1),
            "gradient must be (ids, row width)");
    const RowsToUpdate rows = rows_to_update(rule, weight, first, second);
    const size_t count = ids.size(), row_count = weight.shape(0);
    const int64_t* const id = ids.data();
    const float* const gradient_data = gradient.data();
    nb::gil_scoped_release unlocked;
    for (size_t i = 0; i < count; ++i) {
        require(id[i] >= 0 && static_cast<size_t>(id[i]) < row_count, "an id is out of range");
        require(i == 0 || id[i - 1] < id[i], "ids must be strictly ascending");
    }
    update_rows(rule, rows, id, count, gradient_data, threads ? threads : 1);
}

}  // namespace

void bind_row_update(nb::module_& m) {
    m.def("update_rows", &bound_update_rows, nb::arg("rule"), nb::arg("weight"), nb::arg("first").none(),
          nb::arg("second").none(), nb::arg("ids"), nb::arg("gradient"), nb::arg("threads"));
}
