"""Exact answers, the yardstick: what users write, and the fastest of the forms an exact product can be written in."""

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.peers.peer import Floats, Ids, Peer, Setting
from experiments.peers.timing import PAUSE, ROUNDS, best_seconds

if TYPE_CHECKING:
    import torch

LOGITS_AT_ONCE = 64 * 2**20  # floats; a batch of 1000 over a million classes would not fit in memory
PRODUCTS = ("torch x@W.T", "torch W@x.T", "numpy x@W.T", "numpy W@x.T")
SOFTMAX = "torch softmax"


def multiply(product: str, rows: Any, x: Any) -> Any:
    """Return the product in one of its forms; rows and x are tensors or arrays, as the name of the product says."""
    return x @ rows.T if product.endswith("x@W.T") else rows @ x.T


def exact_seconds(
    rows: Floats,
    bias: Floats | None,
    queries: Floats,
    batch: int,
    threads: int,
    rounds: int = ROUNDS,
    pause: float = PAUSE,
) -> dict[str, float]:
    """Return the best seconds of every exact product of the first `batch` queries, and of torch's softmax with bias."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    arrays = rows, queries[:batch]
    weight, x = map(torch.from_numpy, arrays)
    tensor_bias = torch.zeros(len(rows)) if bias is None else torch.from_numpy(bias)
    calls = {name: partial(multiply, name, *((weight, x) if "torch" in name else arrays)) for name in PRODUCTS}
    with threadpool_limits(threads):
        return best_seconds({**calls, SOFTMAX: lambda: torch.softmax(x @ weight.T + tensor_bias, dim=1)}, rounds, pause)


def speedups(ours: float, products: dict[str, float]) -> dict[str, Any]:
    """Return the record's fields of a search of so many seconds beside the exact products of the same batch."""
    fastest = min((name for name in products if name != SOFTMAX), key=lambda name: products[name])
    return {
        "ours_ms": ours * 1e3,
        "exact_ms": products[fastest] * 1e3,
        "exact_product": fastest,
        "softmax_ms": products[SOFTMAX] * 1e3,
        "products_ms": {name: seconds * 1e3 for name, seconds in products.items()},
        "speedup": products[fastest] / ours,
        "speedup_torch": products[SOFTMAX] / ours,
    }


class ExactPeer(Peer):
    """All logits, then the best k. Nothing is built: the rows are the index."""

    install = "pip install 'manyclass[torch]'"
    judged_queries = 200  # it is never wrong, and slow where classes are many

    def build(self, rows: Floats, bias: Floats | None) -> None:
        """Keep the rows as a torch tensor and as an array, both over the same memory."""
        import torch

        torch.set_num_threads(self.threads)
        self.torch = torch
        self.rows = np.array(rows, np.float32)  # its own copy, as every peer has
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

    name = SOFTMAX

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
        product = setting["product"]
        if "torch" in product:
            tensor: torch.Tensor = multiply(product, self.tensor_rows, self.torch.from_numpy(queries))
        else:
            tensor = self.torch.from_numpy(multiply(product, self.rows, queries))
        by_query = tensor if product.endswith("x@W.T") else tensor.T
        # W@x.T comes out class-major; topk is several times slower on that layout than the copy costs
        return by_query.contiguous().add_(self.tensor_bias)
