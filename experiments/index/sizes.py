"""How large everything is, in a full and in a quick run."""

from dataclasses import dataclass
from functools import partial

from experiments.datasets import wordnet
from experiments.peers import CONTESTANTS, Contestant
from experiments.peers.exact import FastestExact, TorchSoftmax
from experiments.peers.faiss_peers import FaissHNSW, FaissIVFPQ
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.scann_peer import Scann


@dataclass(frozen=True)
class Sizes:
    """How large everything is; shapes are (classes, features)."""

    glosses: tuple[int, int]
    million: tuple[int, int]
    outliers: tuple[int, int]
    growth: tuple[int, ...]
    layer: tuple[int, int]
    queries: int
    contestants: tuple[Contestant, ...]


FULL = Sizes(
    glosses=(wordnet.SYNSETS, wordnet.WIDTH),
    million=(1_000_000, 128),
    outliers=(20_000, 64),
    growth=(100_000, 1_000_000, 10_000_000),
    layer=(21_900, 4096),
    queries=4000,
    contestants=CONTESTANTS,
)
# One of each kind, on rows that are made in a moment.
QUICK = Sizes(
    glosses=(6_000, 64),
    million=(20_000, 64),
    outliers=(3_000, 64),
    growth=(2_000, 8_000, 32_000),
    layer=(2_000, 256),
    queries=400,
    contestants=(
        *(partial(Manyclass, pipeline=pipeline) for pipeline in ("default", "scan", "cells", "paper")),
        TorchSoftmax,
        FastestExact,
        FaissIVFPQ,
        Scann,
        FaissHNSW,
        Hnswlib,
    ),
)


def sizes_of(quick: bool) -> Sizes:
    """Return the sizes of a run."""
    return QUICK if quick else FULL
