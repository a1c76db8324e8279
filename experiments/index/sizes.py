"""How large everything is, in a full and in a quick run."""

from dataclasses import dataclass, field
from functools import partial

from experiments.peers import CONTESTANTS, Contestant
from experiments.peers.entries import ENTRIES, EXACT, OURS, Entry
from experiments.peers.exact import FastestExact
from experiments.peers.faiss_peers import FaissHNSW, FaissIVFPQ
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.scann_peer import Scann

Shape = tuple[int, int, int]  # classes, features, queries


@dataclass(frozen=True)
class Sizes:
    """How large everything is; shapes are (classes, features).

    made: by layer, what stands in its place in a quick run. entry_seconds: of every library, by layer.
    """

    made: dict[str, Shape]
    entries: tuple[Entry, ...]
    entry_seconds: float
    outliers: tuple[int, int]
    growth: tuple[int, ...]
    layer: tuple[int, int]
    queries: int
    contestants: tuple[Contestant, ...] = field(default=CONTESTANTS)


MADE = {
    "language_model": (6_000, 64, 2000),
    "han": (6_000, 128, 1000),
    "wordnet": (6_000, 64, 2000),
    "million": (20_000, 64, 2000),
}
FULL = Sizes(
    made=MADE,
    entries=ENTRIES,
    entry_seconds=30.0,
    outliers=(20_000, 64),
    growth=(100_000, 1_000_000, 10_000_000),
    layer=(21_900, 4096),
    queries=4000,
)
# Some of each kind, on rows that are made in a moment.
SOME = (OURS, "manyclass without queries", "LoRANN with queries", "ScaNN", "faiss IVF-PQ", "faiss flat PQ", "hnswlib",
        EXACT)  # fmt: skip
QUICK = Sizes(
    made=MADE,
    entries=tuple(entry for entry in ENTRIES if entry.name in SOME),
    entry_seconds=1.0,
    outliers=(3_000, 64),
    growth=(2_000, 8_000, 32_000),
    layer=(2_000, 256),
    queries=400,
    contestants=(
        *(partial(Manyclass, pipeline=pipeline) for pipeline in ("default", "scan", "cells", "paper")),
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
