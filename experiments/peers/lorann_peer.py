"""LoRANN: clusters, in each a low-rank regression of the inner products, fitted to queries if there are any."""

import math
from itertools import product

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting, Widened

LEAST_FEATURES = 64  # below that it refuses


class Lorann(Peer):
    """8-bit products over `rank` numbers per class, then exact logits of the best.

    clusters: as a multiple of the square root of the classes, rounded to a power of two. width: features to which
    everything is reduced first; with more than a thousand the regressions take minutes. trained: whether it gets
    queries.
    """

    install = "pip install 'lorann>=1.0'"

    def __init__(
        self,
        classes: int,
        features: int,
        threads: int = 2,
        trained: bool = True,
        clusters: float = 1.0,
        rank: int = 32,
        width: int = 1024,
    ) -> None:
        super().__init__(classes, features, threads)
        self.name = f"LoRANN {'with' if trained else 'without'} queries"
        self.takes_queries = trained
        self.clusters = max(4, 1 << round(math.log2(clusters * math.sqrt(classes))))
        self.rank, self.width = rank, width

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import lorann

        self.widened = Widened(rows, bias, least=LEAST_FEATURES)
        width = min(self.width, self.widened.columns // 32 * 32)
        self.index = lorann.LorannIndex(
            self.widened.rows, self.clusters, width, quantization_bits=8, rank=self.rank, distance=lorann.IP
        )
        training = None if self.sample is None else self.widened.widen(self.sample)
        self.index.build(n_threads=self.threads, training_queries=training)

    def settings(self) -> list[Setting]:
        shares = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
        searched = sorted({max(1, round(share * self.clusters)) for share in shares})
        return [{"clusters": some, "rerank": rerank} for some, rerank in product(searched, (30, 100, 300, 1000))]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        queries = self.widened.widen(queries)
        effort = setting["clusters"], setting["rerank"]
        if batch_mode:
            return np.asarray(self.index.search(queries, k, *effort, n_threads=self.threads), np.int64)
        return np.asarray(self.index.search(queries[0], k, *effort), np.int64)[None]

    def bytes_per_class(self) -> float:
        """Return an estimate, as LoRANN tells none: the rows, a byte per number of rank, the clusters' matrices."""
        columns = int(self.widened.columns)
        matrices = 4 * self.clusters * self.rank * min(self.width, columns)
        return 4.0 * columns + self.rank + matrices / self.classes
