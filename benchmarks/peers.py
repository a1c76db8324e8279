"""Everything that is compared, as one list: manyclass, exact products, faiss, ScaNN, hnswlib."""

from functools import partial
from itertools import product

import numpy as np

from benchmarks.peer import Peer, with_bias_column, with_ones_column
from benchmarks.peers_exact import FastestExact, TorchSoftmax
from benchmarks.peers_faiss import FaissFlatPQ, FaissHNSW, FaissIVFPQ, FaissRaBitQ


class Manyclass(Peer):
    """This library; `candidates` is its one run-time knob."""

    def __init__(self, classes: int, features: int, threads: int = 2, pipeline: str = "default") -> None:
        super().__init__(classes, features, threads)
        self.pipeline = pipeline
        self.name = f"manyclass {pipeline}"

    def build(self, rows: np.ndarray, bias: np.ndarray | None) -> None:
        """Build with the config the library chooses itself, the paper's, a scan of 256 bits, or one parted in cells."""
        import manyclass as mc

        config = {
            "default": None,
            "paper": mc.HashConfig.paper(),
            "scan": mc.HashConfig.flat_sketch(256),
            "cells": mc.HashConfig.flat_sketch(256, cells=len(rows) // 256),
        }[self.pipeline]
        self.rows = np.array(rows, np.float32)  # writable and in memory, as every peer's copy is
        self.index = mc.WTAIndex.build(self.rows, bias=bias, config=config)

    def settings(self) -> list[dict]:
        return [{"candidates": count} for count in (10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 3000)]

    def search(self, queries: np.ndarray, k: int, setting: dict, batch_mode: bool) -> np.ndarray:
        return self.index.search(queries, k=k, candidates=setting["candidates"], threads=self.threads).classes

    def bytes_per_class(self) -> float:
        """Return the library's own report; the rows, of which it keeps a view, are part of it."""
        return sum(self.index.memory_report().values())

    def update_one(self, row_id: int, new_row: np.ndarray) -> bool:
        self.index.refresh([row_id], rows=new_row[None])
        return True


class Hnswlib(Peer):
    """A navigable graph with 16 links per class."""

    name = "hnswlib M=16"

    def build(self, rows: np.ndarray, bias: np.ndarray | None) -> None:
        import hnswlib

        self.widened = with_bias_column(rows, bias)
        self.index = hnswlib.Index(space="ip", dim=self.widened.shape[1])
        self.index.init_index(max_elements=self.classes, M=16, ef_construction=200, random_seed=0)
        self.index.add_items(self.widened, np.arange(self.classes), num_threads=self.threads)

    def settings(self) -> list[dict]:
        return [{"ef": ef} for ef in (16, 32, 64, 128, 256, 512, 1024)]

    def search(self, queries: np.ndarray, k: int, setting: dict, batch_mode: bool) -> np.ndarray:
        self.index.set_ef(setting["ef"])
        queries = with_ones_column(queries, self.widened.shape[1])
        return self.index.knn_query(queries, k=k, num_threads=self.threads)[0].astype(np.int64)

    def bytes_per_class(self) -> float:
        return self.index.index_file_size() / self.classes

    def update_one(self, row_id: int, new_row: np.ndarray) -> bool:
        changed = self.widened[row_id].copy()
        changed[: self.features] = new_row
        self.index.add_items(changed[None], [row_id], num_threads=1)
        return True


class Scann(Peer):
    """Google's ScaNN: cells of k-means, anisotropic 4-bit codes of 2 columns each, exact re-ranking."""

    name = "ScaNN"

    def build(self, rows: np.ndarray, bias: np.ndarray | None) -> None:
        import scann

        self.widened = with_bias_column(rows, bias)
        builder = scann.scann_ops_pybind.builder(self.widened, 10, "dot_product").set_n_training_threads(self.threads)
        builder = builder.tree(num_leaves=self.leaves, num_leaves_to_search=10, training_sample_size=250_000)
        builder = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(100)
        self.index = builder.build(docids=list(range(self.classes)))
        self.index.set_num_threads(self.threads)

    @property
    def leaves(self) -> int:
        """Return the number of cells, the square root of the classes as ScaNN's guide says."""
        return round(self.classes**0.5)

    def settings(self) -> list[dict]:
        searched = [leaves for leaves in (5, 10, 20, 35, 50, 75, 100, 150, 250, 400, 1000) if leaves <= self.leaves]
        return [{"leaves": leaves, "reorder": reorder} for leaves, reorder in product(searched, (30, 100, 300))]

    def search(self, queries: np.ndarray, k: int, setting: dict, batch_mode: bool) -> np.ndarray:
        queries = with_ones_column(queries, self.widened.shape[1])
        limits = {"pre_reorder_num_neighbors": setting["reorder"], "leaves_to_search": setting["leaves"]}
        if batch_mode:
            return np.asarray(self.index.search_batched_parallel(queries, k, **limits)[0], np.int64)
        return np.asarray(self.index.search(queries[0], k, **limits)[0], np.int64)[None]

    def bytes_per_class(self) -> float:
        """Return an estimate, as ScaNN reports none: rows, half a byte per two columns, cell centres."""
        columns = self.widened.shape[1]
        return 4 * columns + columns / 4 + 4 * columns * self.leaves / self.classes

    def update_one(self, row_id: int, new_row: np.ndarray) -> bool:
        changed = self.widened[row_id].copy()
        changed[: self.features] = new_row
        self.index.upsert(row_id, changed)
        return True


# A new entry needs nothing but a line here.
CONTESTANTS = (
    partial(Manyclass, pipeline="default"),
    partial(Manyclass, pipeline="scan"),
    partial(Manyclass, pipeline="cells"),
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
