"""The exact best classes of very many queries: a large product whose result is looked through block by block."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.peers.peer import Floats, Ids

if TYPE_CHECKING:
    import torch

BLOCK = 64  # classes of which the largest logit is found first
CLASSES_AT_ONCE, QUERIES_AT_ONCE = 256 * BLOCK, 512  # logits that fit the cache


@dataclass(frozen=True)
class ExactBest:
    """The best classes (queries, k) of each query, best first."""

    classes: Ids

    def first(self, count: int) -> "ExactBest":
        """Return those of the first queries."""
        return ExactBest(self.classes[:count])


def exact_best(rows: Floats, bias: Floats | None, queries: Floats, k: int) -> ExactBest:
    """Return the exact top k. Cost: queries × classes × features, hardly more than the product itself."""
    import torch

    weight, offsets = torch.from_numpy(rows), None if bias is None else torch.from_numpy(bias)
    with torch.inference_mode():
        parts = [
            _best(weight, offsets, torch.from_numpy(queries[start : start + QUERIES_AT_ONCE]), k)
            for start in range(0, len(queries), QUERIES_AT_ONCE)
        ]
    return ExactBest(np.concatenate([part.numpy() for part in parts]))


def _best(weight: "torch.Tensor", offsets: "torch.Tensor | None", x: "torch.Tensor", k: int) -> "torch.Tensor":
    """Return the top k of a few queries, merged from chunks of the classes."""
    import torch

    logits, ids = x.new_empty(len(x), 0), torch.empty(len(x), 0, dtype=torch.int64)
    for start in range(0, len(weight), CLASSES_AT_ONCE):
        chunk = x @ weight[start : start + CLASSES_AT_ONCE].T
        if offsets is not None:
            chunk += offsets[start : start + CLASSES_AT_ONCE]
        found = _best_of_chunk(chunk, min(k, chunk.shape[1]))
        logits = torch.cat([logits, chunk.gather(1, found)], dim=1)
        ids = torch.cat([ids, found + start], dim=1)
        order = logits.topk(min(k, logits.shape[1]), dim=1).indices
        logits, ids = logits.gather(1, order), ids.gather(1, order)
    return ids


def _best_of_chunk(chunk: "torch.Tensor", k: int) -> "torch.Tensor":
    """Return the top k of logits (queries, classes): all of them are in the k blocks with the largest logits."""
    import torch

    queries, classes = chunk.shape
    if classes % BLOCK or classes // BLOCK <= k:
        return chunk.topk(k, dim=1).indices
    blocks = chunk.view(queries, -1, BLOCK)
    largest = blocks.amax(dim=2).topk(k, dim=1).indices
    members = (largest[:, :, None] * BLOCK + torch.arange(BLOCK)).view(queries, -1)
    return members.gather(1, chunk.gather(1, members).topk(k, dim=1).indices)
