"""ScaNN: cells, anisotropic codes, exact re-ranking."""

import math
from itertools import product

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting, Widened


class Scann(Peer):
    """Google's ScaNN: cells of k-means, anisotropic 4-bit codes of 2 columns each, exact re-ranking.

    to_all_leaves: whether its settings end with a search of all cells. per_root: cells as a multiple of the square root
    of the classes, which is what ScaNN's guide says. threshold: of the anisotropic loss.
    """

    name = "ScaNN"
    install = "pip install 'scann>=1.4'"

    def __init__(
        self,
        classes: int,
        features: int,
        threads: int = 2,
        to_all_leaves: bool = False,
        per_root: float = 1.0,
        threshold: float = 0.2,
    ) -> None:
        super().__init__(classes, features, threads)
        self.to_all_leaves, self.threshold = to_all_leaves, threshold
        self.leaves = round(per_root * math.sqrt(classes))

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import scann

        self.widened = Widened(rows, bias)
        builder = scann.scann_ops_pybind.builder(self.widened.rows, 10, "dot_product").set_n_training_threads(
            self.threads
        )
        builder = builder.tree(num_leaves=self.leaves, num_leaves_to_search=10, training_sample_size=250_000)
        builder = builder.score_ah(2, anisotropic_quantization_threshold=self.threshold).reorder(100)
        self.index = builder.build(docids=list(range(self.classes)))
        self.index.set_num_threads(self.threads)

    def settings(self) -> list[Setting]:
        searched = [leaves for leaves in (5, 10, 20, 35, 50, 75, 100, 150, 250, 400, 1000) if leaves <= self.leaves]
        searched += [self.leaves] if self.to_all_leaves else []
        return [{"leaves": leaves, "reorder": reorder} for leaves, reorder in product(searched, (30, 100, 300))]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        queries = self.widened.widen(queries)
        limits = {"pre_reorder_num_neighbors": setting["reorder"], "leaves_to_search": setting["leaves"]}
        if batch_mode:
            return np.asarray(self.index.search_batched_parallel(queries, k, **limits)[0], np.int64)
        return np.asarray(self.index.search(queries[0], k, **limits)[0], np.int64)[None]

    def bytes_per_class(self) -> float:
        """Return an estimate, as ScaNN reports none: rows, half a byte per two columns, cell centres."""
        columns = self.widened.columns
        return 4 * columns + columns / 4 + 4 * columns * self.leaves / self.classes

    def update_one(self, row_id: int, new_row: Floats) -> bool:
        changed = self.widened.changed(row_id, new_row)
        self.index.upsert(row_id, changed)
        return True
