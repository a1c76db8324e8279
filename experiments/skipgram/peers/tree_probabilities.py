"""Log probabilities of all words under somebody else's tree of words, level by level.

A word's path is a list of nodes from the root on and the answer at each; its log probability is the sum of those of
its answers. Words that begin alike share that part of the sum: each node is computed once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor


class Level(NamedTuple):
    """Nodes or words with their parents; places: nodes first, then words. sides: +1 where the parent says yes."""

    children: Tensor
    parents: Tensor
    sides: Tensor


def levels_of(points: Sequence[npt.ArrayLike], sides: Sequence[npt.ArrayLike], nodes: int) -> list[Level]:
    """Return the tree's levels, the root's children first. points, sides: of each word, from the root on."""
    lengths = np.array([len(np.asarray(path)) for path in points])
    inside = np.arange(lengths.max()) < lengths[:, None]
    path, answers = np.zeros(inside.shape, np.int64), np.zeros(inside.shape, np.float32)
    path[inside], answers[inside] = np.concatenate(points), np.concatenate(sides)
    levels = []
    for at in range(inside.shape[1]):
        words = np.flatnonzero(lengths > at)
        further = path[words, min(at + 1, inside.shape[1] - 1)]
        children = np.where(lengths[words] > at + 1, further, nodes + words)
        distinct, first = np.unique(children, return_index=True)
        chosen = words[first]
        levels.append(Level(*map(torch.from_numpy, (distinct, path[chosen, at], answers[chosen, at]))))
    return levels


def tree_log_probs(levels: list[Level], logits: Tensor, words: int) -> Tensor:
    """Return (n, words) from the nodes' logits (n, nodes)."""
    by_node = logits.T.contiguous()
    sums = torch.zeros(len(by_node) + words, len(logits))
    for level in levels:
        answers = F.logsigmoid(level.sides[:, None] * by_node[level.parents])
        sums[level.children] = sums[level.parents] + answers
    return sums[len(by_node) :].T
