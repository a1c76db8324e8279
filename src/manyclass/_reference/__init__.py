"""The specification: what the native core computes, in NumPy, slow and readable. `MANYCLASS_BACKEND=reference` runs it.

Integer results (codes, votes, sketches, scores, cells, candidate ids, trees) and row updates are the same bits as the
core's. The floating point on the way to them is spelled out in the core's order. It has the names of `_native`.

- balance: coordinates in which rows and queries vary alike
- winner_codes: windows, winners, and the bucket number of a band
- votes, probes: what the tables give for a query
- sketch, cells: the scan, and the part of it that a query looks at
- exact_logits: logits and log probabilities of the candidates
- index: all of these as one index, with the native class's methods
- row_products, row_update: the products of training, and the steps of the row optimizers
- step_classes, shared_step: a training step in which all examples compute the same classes
- class_tree: Huffman's tree behind hierarchical softmax
- skip_gram: words of a text with the words around them
- vector_math: sums in the core's order
"""

from manyclass._reference.class_tree import ClassTree
from manyclass._reference.index import Index, SearchStatus
from manyclass._reference.row_products import ChosenRows
from manyclass._reference.row_update import update_rows
from manyclass._reference.shared_step import SharedStep
from manyclass._reference.skip_gram import skip_gram_examples
from manyclass._reference.step_classes import count_targets, counted_ids, merged_classes, sampled_classes

__all__ = [
    "ChosenRows",
    "ClassTree",
    "Index",
    "SearchStatus",
    "SharedStep",
    "count_targets",
    "counted_ids",
    "merged_classes",
    "sampled_classes",
    "skip_gram_examples",
    "update_rows",
]
