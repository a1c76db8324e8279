"""From a trained sharded head to an index in parts: every rank writes one over its own rows, for `ShardedIndex`."""

import os

import numpy as np
import numpy.typing as npt
import torch

from manyclass.errors import ConfigError
from manyclass.index import ClassIndex
from manyclass.sharded_index import shard_path
from manyclass.torch.linear_conversion import folded
from manyclass.torch.row_arrays import array, marked_rows
from manyclass.torch.sharded_softmax import ShardedSoftmax


@torch.no_grad()
def save_index_shards(
    folder: str | os.PathLike[str], head: ShardedSoftmax, *, queries: npt.ArrayLike | None = None
) -> list[str]:
    """Write an index over this rank's rows, and return the files of all ranks, which `ShardedIndex` takes.

    folder: the same for all ranks, or one on each machine. head: every rank calls this with its own.
    queries: floats (count, in_features) = None. A sample of inputs, for `ClassIndex.build`.
    """
    ranks = head.ranks
    paths = [shard_path(folder, rank, ranks.count) for rank in range(ranks.count)]

    def save() -> None:
        if head.normalize:
            raise ConfigError("normalize=True: an index has no cosine logits; serve the head itself, by topk")
        weight, bias = folded(head.weight.detach(), head.bias, head.input_mean, head.temperature)
        os.makedirs(folder, exist_ok=True)
        biases = None if bias is None else np.asarray(array(bias.float()))
        config = None if queries is not None else head.index.config
        index = ClassIndex.build(marked_rows(weight), bias=biases, queries=queries, config=config)
        index.save(paths[ranks.rank])

    ranks.together("save", save)
    return paths
