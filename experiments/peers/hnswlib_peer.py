"""hnswlib: a navigable graph, rows changeable in place."""

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting, Widened


class Hnswlib(Peer):
    """A navigable graph, by default with 16 links per class. effort: the length of the lists while it is built."""

    install = "pip install 'hnswlib>=0.8'"

    def __init__(self, classes: int, features: int, threads: int = 2, links: int = 16, effort: int = 200) -> None:
        super().__init__(classes, features, threads)
        self.name, self.links, self.effort = f"hnswlib M={links}", links, effort

    def build(self, rows: Floats, bias: Floats | None) -> None:
        import hnswlib

        self.widened = Widened(rows, bias)
        self.index = hnswlib.Index(space="ip", dim=self.widened.columns)
        self.index.init_index(max_elements=self.classes, M=self.links, ef_construction=self.effort, random_seed=0)
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
