"""The specification of the class tree behind hierarchical softmax: Huffman's tree, paths, probabilities, best classes.

The tree, the paths and the order of equal classes are the same integers as the core's; log probabilities differ from
the core's only by rounding.
"""

from collections import deque

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Sides = npt.NDArray[np.int8]


class ClassTree:
    """Each class is a leaf, each inner node a question with a row of weights; node 0 is the root.

    counts: int64 (classes,), at least 0. Rare classes end up deep. Where weights are equal, classes are joined before
    nodes and lower numbers before higher ones.
    """

    def __init__(self, counts: Ids) -> None:
        self.classes: int = len(counts)
        self.nodes: int = self.classes - 1
        self._parents = np.full(self.nodes + self.classes, -1, np.int64)
        self._sides = np.zeros(self.nodes + self.classes, np.int8)
        leaves = deque((int(counts[leaf]), self.nodes + int(leaf)) for leaf in np.argsort(counts, kind="stable"))
        made: deque[tuple[int, int]] = deque()  # comes into being in order of weight
        for node in reversed(range(self.nodes)):  # the last one made is the root
            total = 0
            for side in (-1, 1):
                leaf_is_next = leaves and (not made or leaves[0][0] <= made[0][0])
                weight, child = (leaves if leaf_is_next else made).popleft()
                self._parents[child], self._sides[child] = node, side
                total += weight
            made.append((total, node))
        self.depth: int = max(len(self._path(leaf)) for leaf in range(self.classes))

    def links(self, parents: Ids, sides: Sides) -> None:
        """Write the parent and the side (-1 or +1) of the nodes, then of the classes; -1 and 0 for the root."""
        parents[:], sides[:] = self._parents, self._sides

    def _path(self, target: int) -> list[tuple[int, int]]:
        """Return the (node, side) steps that lead to a class, root first; none for a negative target."""
        steps = []
        at = self.nodes + target
        while target >= 0 and self._parents[at] >= 0:
            steps.append((int(self._parents[at]), int(self._sides[at])))
            at = steps[-1][0]
        return steps[::-1]

    def paths(self, targets: Ids, nodes: Ids, sides: Sides, threads: int) -> None:
        """Write each target's path, root first, into rows as long as the tree is deep; -1 and 0 after its end."""
        nodes[...], sides[...] = -1, 0
        for i, target in enumerate(targets):
            for j, step in enumerate(self._path(int(target))):
                nodes[i, j], sides[i, j] = step

    def log_probs(self, weight: Floats, bias: Floats | None, input: Floats, out: Floats, threads: int) -> None:
        """Write the log probability of every class: the sum, root first, of log sigmoid(side · logit) on its path."""
        logits = input @ weight.T + (np.float32(0) if bias is None else bias)
        for leaf in range(self.classes):
            total = np.zeros(len(input), np.float32)
            for node, side in self._path(leaf):
                answer = side * logits[:, node]
                total += np.minimum(answer, np.float32(0)) - np.log1p(np.exp(-np.abs(answer)))
            out[:, leaf] = total

    def topk(
        self, weight: Floats, bias: Floats | None, input: Floats, classes: Ids, log_probs: Floats, threads: int
    ) -> None:
        """Write the most probable classes, best first, equal ones by number; -1 and -inf where there are too few."""
        everything = np.empty((len(input), self.classes), np.float32)
        self.log_probs(weight, bias, input, everything, threads)
        best = np.argsort(-everything, axis=1, kind="stable")[:, : classes.shape[1]]
        classes[...], log_probs[...] = -1, -np.inf
        classes[:, : best.shape[1]] = best
        log_probs[:, : best.shape[1]] = np.take_along_axis(everything, best, 1)
