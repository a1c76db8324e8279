"""faiss: one graph and three compressed scans followed by exact re-ranking."""

from abc import abstractmethod
from itertools import product
from typing import Any

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting, Widened


class FaissPeer(Peer):
    """What faiss indexes share: a factory string, inner product, serialised size."""

    install = "pip install 'faiss-cpu>=1.12'"
    multiple = 1  # the columns must be divisible by this

    @abstractmethod
    def factory(self, columns: int) -> str:
        """Return the `index_factory` description for rows of so many columns."""

    @abstractmethod
    def parameters(self, faiss: Any, setting: Setting) -> Any:
        """Return the faiss search parameters of a setting."""

    def build(self, rows: Floats, bias: Floats | None) -> None:
        """Train and fill the index."""
        import faiss

        faiss.omp_set_num_threads(self.threads)
        self.faiss, self.widened = faiss, Widened(rows, bias, self.multiple)
        columns = self.widened.columns
        self.index = faiss.index_factory(columns, self.factory(columns), faiss.METRIC_INNER_PRODUCT)
        self.index.train(self.widened.rows)
        self.index.add(self.widened.rows)

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        """Return class ids; faiss takes one query and many the same way."""
        parameters = self.parameters(self.faiss, setting)
        found: Ids = self.index.search(self.widened.widen(queries), k, params=parameters)[1]
        return found

    def bytes_per_class(self) -> float:
        """Return the size of the serialised index per class; faiss keeps the same arrays in memory."""
        return len(self.faiss.serialize_index(self.index)) / self.classes


class FaissHNSW(FaissPeer):
    """A navigable graph, by default with 32 links per class. Rows cannot be changed in place."""

    def __init__(self, classes: int, features: int, threads: int = 2, links: int = 32) -> None:
        super().__init__(classes, features, threads)
        self.name = f"faiss HNSW{links}"

    def factory(self, columns: int) -> str:
        return self.name.removeprefix("faiss ")

    def settings(self) -> list[Setting]:
        return [{"ef": ef} for ef in (10, 16, 32, 64, 128, 256, 512, 1024)]

    def parameters(self, faiss: Any, setting: Setting) -> Any:
        return faiss.SearchParametersHNSW(efSearch=setting["ef"])


class FaissFlatPQ(FaissPeer):
    """A flat scan of 4-bit codes in registers, then exact logits of the best `10 × refine`."""

    def __init__(self, classes: int, features: int, threads: int = 2, dims_per_code: int = 4) -> None:
        super().__init__(classes, features, threads)
        self.multiple = dims_per_code
        self.name = f"faiss PQ{{d/{dims_per_code}}}x4fs,RFlat"

    def factory(self, columns: int) -> str:
        return f"PQ{columns // self.multiple}x4fs,RFlat"

    def settings(self) -> list[Setting]:
        return [{"refine": refine} for refine in (1, 2, 4, 8, 16, 32, 64, 128)]

    def parameters(self, faiss: Any, setting: Setting) -> Any:
        return faiss.IndexRefineSearchParameters(k_factor=setting["refine"])


class FaissRaBitQ(FaissFlatPQ):
    """A flat scan of one-bit codes, then exact logits of the best `10 × refine`."""

    def __init__(self, classes: int, features: int, threads: int = 2) -> None:
        super().__init__(classes, features, threads, dims_per_code=8)
        self.name = "faiss RaBitQfs,RFlat"

    def factory(self, columns: int) -> str:
        return "RaBitQfs,RFlat"


class FaissIVFPQ(FaissFlatPQ):
    """Cells of k-means, 4-bit codes inside the cells probed, then exact logits.

    most_probed: share of the cells at which its settings end. per_root: cells as a multiple of the square root of the
    classes; faiss's advice is one to four.
    """

    def __init__(
        self,
        classes: int,
        features: int,
        threads: int = 2,
        dims_per_code: int = 4,
        most_probed: float = 0.5,
        per_root: float = 2.0,
    ) -> None:
        super().__init__(classes, features, threads, dims_per_code)
        self.most_probed = most_probed
        self.cells = 2 ** round(np.log2(per_root * classes**0.5))
        self.name = f"faiss IVF{self.cells},PQ{{d/{dims_per_code}}}x4fs,RFlat"

    def factory(self, columns: int) -> str:
        return f"IVF{self.cells},{super().factory(columns)}"

    def settings(self) -> list[Setting]:
        probes = [
            probe for probe in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if probe <= self.cells * self.most_probed
        ]
        return [{"probes": probe, "refine": refine} for probe, refine in product(probes, (1, 2, 4, 8, 32))]

    def parameters(self, faiss: Any, setting: Setting) -> Any:
        cells = faiss.SearchParametersIVF(nprobe=setting["probes"])
        return faiss.IndexRefineSearchParameters(k_factor=setting["refine"], base_index_params=cells)
