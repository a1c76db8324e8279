// Python's view of cpp/skip_gram.h.
#include "../cpp/skip_gram.h"

#include "arrays.h"

using namespace manyclass;

void bind_skip_gram(nb::module_& m) {
    m.def("skip_gram_examples", [](In<uint32_t, 1> words, In<uint32_t, 1> keep, In<int64_t, 1> begins, size_t length,
                                   size_t window, uint64_t key, Out<int64_t, 1> centres, Out<int64_t, 2> neighbours) {
        require(window >= 1 && window <= 1000, "window is from 1 to 1000");
        require(length <= words.size(), "length is at most that of the text");
        for (size_t i = 0; i < begins.size(); ++i)
            require(begins.data()[i] >= 0 && static_cast<size_t>(begins.data()[i]) <= words.size(),
                    "begins lie in the text");
        require(centres.size() >= begins.size() * length && neighbours.shape(0) >= begins.size() * length &&
                    neighbours.shape(1) == 2 * window,
                "room for every word of every segment");
        nb::gil_scoped_release unlocked;
        const SkipGramText text{{words.data(), words.size()}, {keep.data(), keep.size()}, key, window};
        return skip_gram_examples(text, {begins.data(), begins.size()}, length, centres.data(), neighbours.data());
    });
}
