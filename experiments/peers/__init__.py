"""Everything manyclass is compared with, as one list; no library is imported before a peer is built."""

from collections.abc import Callable
from functools import partial

from experiments.peers.exact import FastestExact, TorchSoftmax
from experiments.peers.faiss_peers import FaissFlatPQ, FaissHNSW, FaissIVFPQ, FaissRaBitQ
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.peer import Peer
from experiments.peers.scann_peer import Scann

__all__ = ["CONTESTANTS", "Contestant", "Peer"]

Contestant = Callable[[int, int, int], Peer]  # of classes, features, threads

# A new entry needs nothing but a line here.
CONTESTANTS: tuple[Contestant, ...] = (
    partial(Manyclass, pipeline="default"),
    partial(Manyclass, pipeline="scan"),
    partial(Manyclass, pipeline="cells"),
    partial(Manyclass, pipeline="cells, 512 bits"),
    partial(Manyclass, pipeline="paper"),
    TorchSoftmax,
    FastestExact,
    partial(FaissFlatPQ, dims_per_code=4),
    partial(FaissFlatPQ, dims_per_code=2),
    FaissRaBitQ,
    partial(FaissIVFPQ, dims_per_code=4),
    partial(FaissIVFPQ, dims_per_code=2),
    Scann,
    FaissHNSW,
    Hnswlib,
)
