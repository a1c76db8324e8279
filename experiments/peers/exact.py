"""Exact answers, the yardstick: what users write, and the fastest exact product of this machine."""

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting

if TYPE_CHECKING:
    import torch

LOGITS_AT_ONCE = 64 * 2**20  # floats; a batch of 1000 over a million classes would not fit in memory
PRODUCTS = ("torch x@W.T", "torch W@x.T", "numpy x@W.T", "numpy W@x.T")


class ExactPeer(Peer):
    """All logits, then the best k. Nothing is built: the rows are the index."""

    install = "pip install 'manyclass[torch]'"

    def build(self, rows: Floats, bias: Floats | None) -> None:
        """Keep the rows as a torch tensor and as an array, both over the same memory."""
        import torch

        torch.set_num_threads(self.threads)
        self.torch = torch
        self.rows = np.array(rows, np.float32)  # in memory, as in a model; the data set is a memory map
        self.bias = np.zeros(len(rows), np.float32) if bias is None else np.array(bias, np.float32)
        self.tensor_rows, self.tensor_bias = torch.from_numpy(self.rows), torch.from_numpy(self.bias)

    @abstractmethod
    def logits(self, queries: Floats, setting: Setting) -> "torch.Tensor":
        """Return a torch tensor (queries, classes) that ranks the classes."""

    def search(self, queries: Floats, k: int, setting: Setting, batch_mode: bool) -> Ids:
        """Return the exact best classes, as many queries at a time as fit."""
        step = max(1, LOGITS_AT_ONCE // self.classes)
        parts = [queries[start : start + step] for start in range(0, len(queries), step)]
        with self.torch.inference_mode():
            return np.vstack([self.logits(part, setting).topk(k, dim=1).indices.numpy() for part in parts])

    def bytes_per_class(self) -> float:
        """Return the bytes of a row and its bias."""
        return (self.rows.nbytes + self.bias.nbytes) / self.classes

    def update_one(self, row_id: int, new_row: Floats) -> bool:
        """Overwrite the row; nothing depends on it."""
        self.rows[row_id] = new_row
        return True


class TorchSoftmax(ExactPeer):
    """What users write: softmax(x @ W.T + b)."""

    name = "torch softmax"

    def settings(self) -> list[Setting]:
        return [{}]

    def logits(self, queries: Floats, setting: Setting) -> "torch.Tensor":
        logits: torch.Tensor = self.torch.from_numpy(queries) @ self.tensor_rows.T + self.tensor_bias
        self.probabilities = self.torch.softmax(logits, dim=1)
        return logits  # most probabilities underflow to zero in float32 and would tie in the ranking


class FastestExact(ExactPeer):
    """The same product in the forms that differ in speed; the best of them is the honest yardstick."""

    name = "fastest exact"
    install = "pip install 'manyclass[torch]' threadpoolctl"

    def settings(self) -> list[Setting]:
        return [{"product": product} for product in PRODUCTS]

    def build(self, rows: Floats, bias: Floats | None) -> None:
        """Also hold NumPy's BLAS to the same number of threads."""
        from threadpoolctl import threadpool_limits

        super().build(rows, bias)
        threadpool_limits(self.threads)

    def logits(self, queries: Floats, setting: Setting) -> "torch.Tensor":
        library, form = setting["product"].split()
        if library == "torch":
            x = self.torch.from_numpy(queries)
            tensor: torch.Tensor = x @ self.tensor_rows.T if form == "x@W.T" else (self.tensor_rows @ x.T).T
        else:
            product = queries @ self.rows.T if form == "x@W.T" else (self.rows @ queries.T).T
            tensor = self.torch.from_numpy(product)
        # W@x.T comes out class-major; topk is several times slower on that layout than the copy costs
        return tensor.contiguous().add_(self.tensor_bias)
