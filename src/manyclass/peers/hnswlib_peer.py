"""hnswlib: a navigable graph, rows changeable in place."""

import numpy as np

from manyclass.peers.peer import Floats, Ids, Peer, Setting, with_bias_column, with_ones_column


class Hnswlib(Peer):
    """A navigable graph with 16 links per class."""

    name = "hnswlib M=16"
    install = "pip install 'hnswlib>=0.8'"

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import hnswlib

        self.widened = with_bias_column(rows, bias)
        self.index = hnswlib.Index(space="ip", dim=self.widened.shape[1])
        self.index.init_index(max_elements=self.classes, M=16, ef_construction=200, random_seed=0)
        self.index.add_items(self.widened, np.arange(self.classes), num_threads=self.threads)

    def settings(self) -> list[Setting]:
        return [{"ef": ef} for ef in (16, 32, 64, 128, 256, 512, 1024)]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        self.index.set_ef(setting["ef"])
        queries = with_ones_column(queries, self.widened.shape[1])
        found: Ids = self.index.knn_query(queries, k=k, num_threads=self.threads)[0].astype(np.int64)
        return found

    def bytes_per_class(self) -> float:
        return float(self.index.index_file_size()) / self.classes

    def update_one(self, row_id: int, new_row: Floats) -> bool:
        changed = self.widened[row_id].copy()
        changed[: self.features] = new_row
        self.index.add_items(changed[None], [row_id], num_threads=1)
        return True
