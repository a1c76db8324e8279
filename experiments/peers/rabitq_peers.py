"""RaBitQ's own library: a scan of its codes parted in cells, and a graph over them."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting, Widened

LEAST_FEATURES = 64  # below that it refuses
RAW = 32  # the number of bits that stands for rows as they are


class RaBitQPeer(Peer):
    """What both have in common: rows widened by their bias, inner products, a size read from the file they save."""

    install = "pip install 'rabitqlib>=0.7'"
    index: Any

    def bytes_per_class(self) -> float:
        """Return the size of the saved index per class; it keeps the same arrays in memory."""
        with tempfile.TemporaryDirectory() as folder:
            self.index.save(str(Path(folder) / "index"))
            return sum(file.stat().st_size for file in Path(folder).iterdir()) / self.classes


class RaBitQCells(RaBitQPeer):
    """Cells of k-means, codes of `bits` inside the cells probed; 32 bits score the best again on the rows."""

    name = "rabitqlib IVF"

    def __init__(self, classes: int, features: int, threads: int = 2, bits: int = RAW, per_root: float = 1.0) -> None:
        super().__init__(classes, features, threads)
        self.bits = bits
        self.cells = max(2, round(per_root * classes**0.5))

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import rabitqlib

        self.widened = Widened(rows, bias, least=LEAST_FEATURES)
        columns = self.widened.columns
        exactly = rabitqlib.FinalAssignmentMode.Exact
        centres = rabitqlib.RaBitQKMeans(columns, self.cells, num_threads=self.threads, final_assignment=exactly)
        centres.train(self.widened.rows)
        self.index = rabitqlib.IvfIndex(columns, self.classes, self.cells, self.bits, "ip")
        self.index.build(self.widened.rows, centres.centroids, centres.assignments, num_threads=self.threads)

    def settings(self) -> list[Setting]:
        probes = (2, 4, 8, 16, 32, 64, 128, 256, 512)
        return [{"probes": probe} for probe in probes if probe < self.cells] + [{"probes": self.cells}]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        queries = self.widened.widen(queries)
        found = self.index.search(queries, k, setting["probes"], num_threads=self.threads if batch_mode else 1)[0]
        return _signed(found)


class SymphonyQG(RaBitQPeer):
    """A graph whose neighbours are estimated many at a time from their codes; rows cannot be changed."""

    name = "rabitqlib SymphonyQG"

    def __init__(self, classes: int, features: int, threads: int = 2, degree: int = 32) -> None:
        super().__init__(classes, features, threads)
        self.degree = degree

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import rabitqlib

        self.widened = Widened(rows, bias, least=LEAST_FEATURES)
        self.index = rabitqlib.SymqgIndex(self.widened.columns, self.degree, "ip")
        self.index.build(self.widened.rows, 200, num_threads=self.threads)

    def settings(self) -> list[Setting]:
        return [{"ef": ef} for ef in (10, 16, 32, 64, 128, 256, 512, 1024)]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        queries = self.widened.widen(queries)
        return _signed(self.index.search(queries, k, setting["ef"], num_threads=self.threads if batch_mode else 1)[0])


def _signed(found: Any) -> Ids:
    """Return ids of which the library's largest unsigned number, for nothing found, has become -1."""
    return np.asarray(found).astype(np.uint32).view(np.int32).astype(np.int64)
