"""This library beside the others."""

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting
from manyclass.config import HashConfig
from manyclass.index import ClassIndex


class Manyclass(Peer):
    """This library; `candidates` is its one run-time knob."""

    def __init__(
        self,
        classes: int,
        features: int,
        threads: int = 2,
        pipeline: str = "default",
        config: HashConfig | None = None,
    ) -> None:
        super().__init__(classes, features, threads)
        self.pipeline = pipeline
        self.name = f"manyclass {pipeline}"
        self.config = config if config is not None else self._named_config()

    def build(self, rows: Floats, bias: Floats | None) -> None:
        self.rows = np.array(rows, np.float32)  # writable and in memory, as every peer's copy is
        self.index = ClassIndex.build(self.rows, bias=bias, config=self.config, threads=self.threads)

    def settings(self) -> list[Setting]:
        return [{"candidates": count} for count in (10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 3000)]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        return self.index.search(queries, k=k, candidates=setting["candidates"], threads=self.threads).classes

    def bytes_per_class(self) -> float:
        """Return the library's own report; the rows, of which it keeps a view, are part of it."""
        return sum(self.index.memory_report().values())

    def update_one(self, row_id: int, new_row: Floats) -> bool:
        self.index.refresh([row_id], rows=new_row[None])
        return True

    def _named_config(self) -> HashConfig:
        """Return what the library chooses itself, the paper's config, a scan of 256 bits, or scans parted in cells."""
        return {
            "default": HashConfig.for_problem(self.classes, self.features),
            "paper": HashConfig.paper(),
            "scan": HashConfig.flat_sketch(256),
            "cells": HashConfig.flat_sketch(256, cells=self.classes // 256),
            "cells, 512 bits": HashConfig.flat_sketch(512, cells=self.classes // 256),
        }[self.pipeline]
