// Python's view of cpp/class_tree.h.
#include "../cpp/class_tree.h"

#include <nanobind/stl/optional.h>

#include <algorithm>

#include "arrays.h"

using namespace manyclass;

namespace {

using Bias = std::optional<In<float, 1>>;

void make(ClassTree* self, In<int64_t, 1> counts) {
    require(counts.size() >= 1 && counts.size() < size_t{1} << 31, "number of classes");
    int64_t total = 0;
    for (size_t i = 0; i < counts.size(); ++i)
        require(counts.data()[i] >= 0 && !__builtin_add_overflow(total, counts.data()[i], &total), "counts");
    nb::gil_scoped_release unlocked;
    new (self) ClassTree({counts.data(), counts.size()});
}

void links(const ClassTree& self, Out<int64_t, 1> parents, Out<int8_t, 1> sides) {
    const size_t all = self.nodes() + self.classes();
    require(parents.size() == all && sides.size() == all, "one number per node and class");
    self.links(parents.data(), sides.data());
}

void paths(const ClassTree& self, In<int64_t, 1> targets, Out<int64_t, 2> nodes, Out<int8_t, 2> sides, size_t threads) {
    const size_t count = targets.size();
    for (size_t i = 0; i < count; ++i)
        require(targets.data()[i] < static_cast<int64_t>(self.classes()), "target out of range");
    require(nodes.shape(0) == count && nodes.shape(1) == self.depth() && sides.shape(0) == count &&
                sides.shape(1) == self.depth(),
            "outputs do not fit");
    nb::gil_scoped_release unlocked;
    self.paths({targets.data(), count}, nodes.data(), sides.data(), std::max<size_t>(1, threads));
}

TreeWeights checked(const ClassTree& tree, const In<float, 2>& weight, const Bias& bias, const In<float, 2>& input) {
    require(weight.shape(0) >= tree.nodes() && weight.shape(1) == input.shape(1), "weight");
    require(!bias || bias->size() == weight.shape(0), "bias does not fit the weight");
    return {weight.data(), bias ? bias->data() : nullptr, weight.shape(1)};
}

void log_probs(const ClassTree& self, In<float, 2> weight, Bias bias, In<float, 2> input, Out<float, 2> out,
               size_t threads) {
    const TreeWeights weights = checked(self, weight, bias, input);
    require(out.shape(0) == input.shape(0) && out.shape(1) == self.classes(), "out");
    nb::gil_scoped_release unlocked;
    self.log_probs(weights, input.data(), input.shape(0), out.data(), std::max<size_t>(1, threads));
}

void topk(const ClassTree& self, In<float, 2> weight, Bias bias, In<float, 2> input, Out<int64_t, 2> classes,
          Out<float, 2> log_probs, size_t threads) {
    const TreeWeights weights = checked(self, weight, bias, input);
    const size_t count = input.shape(0), k = classes.shape(1);
    require(classes.shape(0) == count && log_probs.shape(0) == count && log_probs.shape(1) == k, "outputs do not fit");
    nb::gil_scoped_release unlocked;
    self.topk(weights, input.data(), count, k, classes.data(), log_probs.data(), std::max<size_t>(1, threads));
}

}  // namespace

void bind_class_tree(nb::module_& m) {
    nb::class_<ClassTree>(m, "ClassTree")
        .def("__init__", &make)
        .def_prop_ro("classes", &ClassTree::classes)
        .def_prop_ro("nodes", &ClassTree::nodes)
        .def_prop_ro("depth", &ClassTree::depth)
        .def("links", &links)
        .def("paths", &paths)
        .def("log_probs", &log_probs, nb::arg("weight"), nb::arg("bias").none(), nb::arg("input"), nb::arg("out"),
             nb::arg("threads"))
        .def("topk", &topk, nb::arg("weight"), nb::arg("bias").none(), nb::arg("input"), nb::arg("classes"),
             nb::arg("log_probs"), nb::arg("threads"));
}
