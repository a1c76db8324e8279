// The module `_native`: Python's view of the core. Policy and messages that users see live in Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../cpp/kernels.h"
#include "../cpp/limits.h"
#include "arrays.h"

using namespace manyclass;

void bind_index(nb::module_& m);
void bind_row_products(nb::module_& m);
void bind_row_update(nb::module_& m);
void bind_shared_step(nb::module_& m);
void bind_step_classes(nb::module_& m);
void bind_class_tree(nb::module_& m);
void bind_skip_gram(nb::module_& m);

namespace {

// By the names that config.py gives them.
nb::dict limits() {
    nb::dict all;
    all["MAX_BANDS"] = kMaxBands;
    all["MIN_WINDOW"] = kMinWindow;
    all["MAX_WINDOW"] = kMaxWindow;
    all["MAX_BUCKET_BITS"] = kMaxBucketBits;
    all["MAX_PROBED_CODES"] = kMaxProbedCodes;
    all["SKETCH_STEP"] = kSketchStep;
    all["MAX_SKETCH_BITS"] = kMaxSketchBits;
    all["MAX_CELLS"] = kMaxCells;
    all["MAX_CELL_FEATURES"] = kMaxCellFeatures;
    all["MAX_THREADS"] = kMaxThreads;
    return all;
}

std::vector<std::string> names(const char* const* list) {
    std::vector<std::string> all;
    for (; *list; ++list) all.emplace_back(*list);
    return all;
}

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // a graph that is still alive when Python exits is no fault
    m.def("simd", [] { return std::string(kernels().name); });
    m.def("available_simd", [] { return names(available_kernels()); });
    m.def("compiled_simd", [] { return names(compiled_kernels()); });
    m.def("use_simd", [](const std::string& name) { return use_kernels(name.c_str()); });
    m.def("limits", &limits);
    bind_index(m);
    bind_row_products(m);
    bind_row_update(m);
    bind_shared_step(m);
    bind_step_classes(m);
    bind_class_tree(m);
    bind_skip_gram(m);
}
