// The exact stage of a search: logits of the candidates that earlier stages found.
#pragma once
#include <cstddef>

#include "index.h"
#include "search_scratch.h"

namespace manyclass {

struct ExactWork {
    const RowsView& rows;
    const float* bias;
    size_t classes;
    const float* queries;  // [count][features]
    size_t count;          // at most kQueryBlock
    size_t threads;
};

// Fills scratch.logits[q] for scratch.ids[q], which ascend. A logit has the same bits whatever else is asked for.
void exact_logits(const ExactWork& work, SearchScratch& scratch);

}  // namespace manyclass
