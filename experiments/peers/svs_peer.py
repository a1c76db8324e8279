"""Intel's Scalable Vector Search: a graph over rows as they are.

Its compressed rows (LVQ, LeanVec) end the process with a message on processors that are not Intel's, so they are left
out here, and with them the one way in which it learns from queries.
"""

import tempfile
from pathlib import Path

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting, Widened


class Svs(Peer):
    """A Vamana graph. half: rows in 16 bits."""

    name = "SVS Vamana"
    install = "pip install 'scalable-vs>=0.5'"

    def __init__(self, classes: int, features: int, threads: int = 2, degree: int = 32, half: bool = False) -> None:
        super().__init__(classes, features, threads)
        self.degree, self.half = degree, half

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import svs

        self.widened = Widened(rows, bias)
        parameters = svs.VamanaBuildParameters(alpha=0.95, graph_max_degree=self.degree, window_size=100)
        kept = self.widened.rows.astype(np.float16) if self.half else self.widened.rows
        self.index = svs.Vamana.build(parameters, kept, svs.DistanceType.MIP, num_threads=self.threads)

    def settings(self) -> list[Setting]:
        return [{"window": window} for window in (10, 16, 32, 64, 128, 256, 512, 1024)]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        if self.index.search_window_size != setting["window"]:
            self.index.search_window_size = setting["window"]
        return np.asarray(self.index.search(self.widened.widen(queries), k)[0]).astype(np.int64)

    def bytes_per_class(self) -> float:
        """Return the size of the saved index per class."""
        with tempfile.TemporaryDirectory() as folder:
            parts = [str(Path(folder) / part) for part in ("config", "graph", "rows")]
            self.index.save(*parts)
            return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / self.classes
