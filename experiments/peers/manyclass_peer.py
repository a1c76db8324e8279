"""This library beside the others."""

from typing import Any

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting
from manyclass.config import HashConfig
from manyclass.index import ClassIndex

LADDER = (10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 3000)  # candidates that are tried
FACTORS = (0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.2, 1.4, 2, 4)  # of the candidates that an index chose for itself


def self_configured(rows: Floats, bias: Floats | None, queries: Floats | None, threads: int, **wish: Any) -> ClassIndex:
    """Return the index that `build` makes of rows and, if given, a sample of queries: it chooses how by itself.

    wish: target, metric, k, optimize or memory, as `build` takes them.
    """
    return ClassIndex.build(rows, bias=bias, queries=queries, threads=threads, **wish)


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
        return [{"candidates": count} for count in LADDER if count <= self.classes]

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


class SelfConfigured(Manyclass):
    """What `build` chooses by itself, from rows and a sample of queries or from the rows alone.

    wish: as `build` takes it, for instance target and optimize.
    """

    def __init__(self, classes: int, features: int, threads: int = 2, queries: bool = True, **wish: Any) -> None:
        super().__init__(classes, features, threads)
        self.takes_queries, self.wish = queries, wish
        self.name = "manyclass" if queries else "manyclass without queries"

    def build(self, rows: Floats, bias: Floats | None) -> None:
        self.rows = np.array(rows, np.float32)
        self.index = self_configured(self.rows, bias, self.sample, self.threads, **self.wish)
        self.config = self.index.config

    def settings(self) -> list[Setting]:
        """Return candidates around those it chose for its target; without queries it can only guess, so all."""
        if not self.takes_queries:
            return super().settings()
        around = [round(self.config.candidates * factor) for factor in FACTORS]
        return [{"candidates": count} for count in sorted({min(self.classes, max(LADDER[0], n)) for n in around})]
