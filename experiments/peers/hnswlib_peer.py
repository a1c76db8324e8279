"""hnswlib: a navigable graph, rows changeable in place."""

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting, Widened


class Hnswlib(Peer):
    """A navigable graph with 16 links per class."""

    name = "hnswlib M=16"
    install = "pip install 'hnswlib>=0.8'"

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import hnswlib

        self.widened = Widened(rows, bias)
        self.index = hnswlib.Index(space="ip", dim=self.widened.columns)
        self.index.init_index(max_elements=self.classes, M=16, ef_construction=200, random_seed=0)
        self.index.add_items(self.widened.rows, np.arange(self.classes), num_threads=self.threads)

    def settings(self) -> list[Setting]:
        return [{"ef": ef} for ef in (10, 16, 32, 64, 128, 256, 512, 1024)]

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        self.index.set_ef(setting["ef"])
        queries = self.widened.widen(queries)
        found: Ids = self.index.knn_query(queries, k=k, num_threads=self.threads)[0].astype(np.int64)
        return found

    def bytes_per_class(self) -> float:
        return float(self.index.index_file_size()) / self.classes

    def update_one(self, row_id: int, new_row: Floats) -> bool:
        changed = self.widened.changed(row_id, new_row)
        self.index.add_items(changed[None], [row_id], num_threads=1)
        return True
