"""Hierarchical softmax over a Huffman tree (Morin and Bengio 2005; Mikolov et al. 2013): the paper's second baseline.

A class's probability is the product of the yes-or-no answers on its path, so that a training step costs as many rows
as the path is long, and a probability needs no normaliser.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass._backend import core
from manyclass._topk import TopK
from manyclass._validation import check_count
from manyclass.errors import InputError, InputTypeError
from manyclass.torch.head import Reduction
from manyclass.torch.row_arrays import array, computed_in
from manyclass.torch.row_head import MakeOptimizer, RowHead, RowUpdateMode
from manyclass.torch.row_products import pair_logits


class HierarchicalSoftmax(RowHead):
    """A head whose rows belong to the num_classes - 1 inner nodes of a tree, the root's first.

    in_features, num_classes: sizes of the layer.
    counts: how often each class occurs, whole numbers (num_classes,), zeros allowed: frequent classes get short paths.
        Without them the tree is balanced.
    bias, ignore_index, reduction, device, dtype: as for nn.Linear and CrossEntropyLoss.
    class_weight: tensor (num_classes,) = None. As `weight` in CrossEntropyLoss; label smoothing would need every node.
    row_update, row_optimizer: who moves the rows, see RowHead.

    `topk` is exact: a best-first search, quick where the network is sure of
    its answers; with all classes about equal it has to look at every node. It and `log_prob` of all classes compute in
    float32, also with rows of float64. The state dict holds the counts, as they
    say which tree the rows belong to.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        counts: Tensor | None = None,
        *,
        bias: bool = True,
        row_update: RowUpdateMode = "gradient",
        row_optimizer: MakeOptimizer | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        class_weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        num_rows = max(1, check_count("num_classes", num_classes) - 1)  # one class: a row that nothing reads
        super().__init__(
            in_features, num_classes, num_rows=num_rows, bias=bias, row_update=row_update, row_optimizer=row_optimizer,
            ignore_index=ignore_index, reduction=reduction, class_weight=class_weight, device=device, dtype=dtype,
        )  # fmt: skip
        self._counts = (
            torch.ones(self.num_classes, dtype=torch.int64, device="cpu") if counts is None else self._checked(counts)
        )
        self._tree: Any = None

    @property
    def counts(self) -> Tensor:
        """How often each class occurs, int64 (num_classes,)."""
        return self._counts

    @property
    def tree(self) -> Any:
        """The tree, built when it is first needed."""
        if self._tree is None:
            self._tree = core().ClassTree(array(self._counts))
        return self._tree

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        steps = self._steps(input.to(computed_in(self.weight.dtype)), positives)
        return -(steps.sum(2) * self._targets(positives).shares.to(steps.dtype)).sum(1)

    def _steps(self, input: Tensor, classes: Tensor) -> Tensor:
        """Return log probabilities of the answers on the paths to classes (examples, n): (examples, n, depth)."""
        shape = (*classes.shape, self.tree.depth)
        nodes, sides = np.empty((classes.numel(), shape[2]), np.int64), np.empty((classes.numel(), shape[2]), np.int8)
        self.tree.paths(array(classes.reshape(-1)), nodes, sides, torch.get_num_threads())
        places = torch.from_numpy(nodes).view(len(classes), classes.shape[1] * shape[2])
        answers = torch.from_numpy(sides).view(len(classes), classes.shape[1] * shape[2]).to(input.dtype)
        absent = places < 0
        logits = pair_logits(input, places, self.weight, self.bias, self._update).masked_fill(absent, 0)
        return F.logsigmoid(answers * logits).masked_fill(absent, 0).view(shape)

    def _topk(self, input: Tensor, k: int) -> TopK[Tensor]:
        classes, log_probs = np.empty((len(input), k), np.int64), np.empty((len(input), k), np.float32)
        self.tree.topk(*self._floats(), array(input.float()), classes, log_probs, torch.get_num_threads())
        found = torch.from_numpy(log_probs).to(computed_in(self.weight.dtype))
        return TopK(classes=torch.from_numpy(classes), log_probs=found)

    def _log_prob(self, input: Tensor, classes: Tensor | None) -> Tensor:
        if classes is not None:
            return self._steps(input.to(computed_in(self.weight.dtype)), classes).sum(2)
        log_probs = np.empty((len(input), self.num_classes), np.float32)
        self.tree.log_probs(*self._floats(), array(input.float()), log_probs, torch.get_num_threads())
        return torch.from_numpy(log_probs).to(computed_in(self.weight.dtype))

    def _floats(self) -> tuple[Any, Any]:
        """Return weight and bias as the tree reads them: float32, without a copy where they are."""
        return array(self.weight.float()), None if self.bias is None else array(self.bias.float())

    def _checked(self, counts: Tensor) -> Tensor:
        if not isinstance(counts, Tensor) or counts.dtype.is_floating_point or counts.dtype == torch.bool:
            kind = counts.dtype if isinstance(counts, Tensor) else type(counts).__name__
            raise InputTypeError(f"counts is {kind}; give a tensor of whole numbers, for instance counts.long()")
        if counts.shape != (self.num_classes,):
            raise InputError(f"counts has shape {tuple(counts.shape)}; expected ({self.num_classes},): one per class")
        counts = counts.detach().cpu().long().clone()
        if (counts < 0).any():
            at = int((counts < 0).nonzero()[0])
            raise InputError(f"counts[{at}]={int(counts[at])}; counts are at least 0: replace it")
        if counts.double().sum() >= 2.0**63:
            raise InputError("counts add up to more than 2**63 - 1; divide them all by the same number")
        return counts

    def get_extra_state(self) -> Tensor:
        """Return the counts, for the state dict."""
        return self._counts

    def set_extra_state(self, state: Tensor) -> None:
        """Take over the tree that belongs to these counts."""
        self._counts, self._tree = self._checked(state), None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tree": None}  # built again in a copy or in another process
