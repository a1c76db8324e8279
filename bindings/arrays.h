// How NumPy arrays come in and go out.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <vector>

namespace nb = nanobind;

template <class T, size_t dims>
using In = nb::ndarray<const T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;
template <class T, size_t dims>
using Out = nb::ndarray<T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;

inline void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> copied(const std::vector<T>& values) {
    auto* copy = new std::vector<T>(values);
    return {copy->data(), {copy->size()}, nb::capsule(copy, [](void* p) noexcept {
                delete static_cast<std::vector<T>*>(p);
            })};
}
