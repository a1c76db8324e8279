"""Everything manyclass is compared with over a layer: each library once, with the builds it may choose among."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

from experiments.peers import Contestant
from experiments.peers.exact import FastestExact
from experiments.peers.faiss_peers import FaissFlatPQ, FaissHNSW, FaissIVFPQ, FaissRaBitQ
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.lorann_peer import Lorann
from experiments.peers.manyclass_peer import Manyclass, SelfConfigured
from experiments.peers.rabitq_peers import RaBitQCells, SymphonyQG
from experiments.peers.scann_peer import Scann
from experiments.peers.svs_peer import Svs

TARGETS = (0.9, 0.97, 0.99)  # of agreement with the exact winner, for which everybody chooses settings
OURS = "manyclass"
EXACT = "fastest exact product"


@dataclass(frozen=True)
class Entry:
    """A contestant by name. builds: what tells them apart → how each is made, the likeliest first.

    No more builds are begun once its time is up, so that of a slow one only the first is tried. most_classes: above
    which it is left out, because even one build would take longer than all others together.
    """

    name: str
    builds: Mapping[str, Contestant]
    most_classes: int | None = None

    def enters(self, classes: int) -> bool:
        """Return whether it takes part over so many classes."""
        return self.most_classes is None or classes <= self.most_classes


def _lorann(trained: bool) -> dict[str, Contestant]:
    return {
        "root clusters": partial(Lorann, trained=trained),
        "256 features": partial(Lorann, trained=trained, width=256),
        "twice the clusters": partial(Lorann, trained=trained, clusters=2.0),
        "rank 64": partial(Lorann, trained=trained, rank=64),
        "half the clusters": partial(Lorann, trained=trained, clusters=0.5),
    }


# A new library needs nothing but an entry here.
ENTRIES: tuple[Entry, ...] = (
    Entry(OURS, {
        f"target {target}, optimize {mode}": partial(SelfConfigured, target=target, optimize=mode)
        for mode, target in product(("batch", "single"), (0.99, 0.9, 0.97))
    }),
    Entry("manyclass without queries", {"as build chooses": partial(SelfConfigured, queries=False)}),
    Entry("manyclass, the paper's pipeline", {"paper": partial(Manyclass, pipeline="paper")}),
    Entry("LoRANN with queries", _lorann(trained=True)),
    Entry("LoRANN without queries", _lorann(trained=False)),
    Entry("ScaNN", {
        "root leaves": Scann,
        "threshold 0.1": partial(Scann, threshold=0.1),
        "twice the leaves": partial(Scann, per_root=2.0),
    }),
    Entry("faiss IVF-PQ", {
        "2 per code": partial(FaissIVFPQ, dims_per_code=2),
        "4 per code": partial(FaissIVFPQ, dims_per_code=4),
        "2 per code, twice the cells": partial(FaissIVFPQ, dims_per_code=2, per_root=4.0),
    }),
    Entry("faiss flat PQ", {f"{size} per code": partial(FaissFlatPQ, dims_per_code=size) for size in (2, 4)}),
    Entry("faiss RaBitQ", {"one bit": FaissRaBitQ}),
    Entry("rabitqlib IVF", {
        "1 bit, then rows": RaBitQCells,
        "4 bits": partial(RaBitQCells, bits=4),
        "8 bits": partial(RaBitQCells, bits=8),
    }),
    Entry("rabitqlib SymphonyQG", {"degree 32": SymphonyQG, "degree 64": partial(SymphonyQG, degree=64)}),
    Entry("SVS Vamana", {"degree 32": Svs, "16 bits": partial(Svs, half=True), "degree 64": partial(Svs, degree=64)},
          most_classes=200_000),
    Entry("faiss HNSW", {"32 links": FaissHNSW, "16 links": partial(FaissHNSW, links=16)}),
    Entry("hnswlib", {
        "16 links, lists of 100": partial(Hnswlib, effort=100),
        "16 links, lists of 200": Hnswlib,
        "32 links": partial(Hnswlib, links=32),
    }),
    Entry(EXACT, {"": FastestExact}),
)  # fmt: skip
