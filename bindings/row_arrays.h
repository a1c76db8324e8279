// Rows that are kept as float32, or as bfloat16: NumPy lacks it, so that its bits come as uint16.
#pragma once
#include "../cpp/kernels.h"
#include "arrays.h"

namespace manyclass {

using RowsArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using StoredArray = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class Array>
RowType row_type(const Array& rows) {
    const bool wide = rows.dtype() == nb::dtype<float>();
    require(wide || rows.dtype() == nb::dtype<uint16_t>(), "rows must be float32, or bfloat16 as uint16");
    return wide ? RowType::f32 : RowType::bf16;
}

}  // namespace manyclass
