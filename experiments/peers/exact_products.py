"""A layer's exact products timed in every form, and a search compared with the fastest of them."""

from typing import Any

from experiments.peers.peer import Floats
from experiments.peers.timing import PAUSE, ROUNDS, best_seconds

SOFTMAX = "torch softmax"


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
    x = queries[:batch]
    tensor, tensor_bias, tensor_x = torch.from_numpy(rows), torch.zeros(len(rows)), torch.from_numpy(x)
    if bias is not None:
        tensor_bias = torch.from_numpy(bias)
    with threadpool_limits(threads):
        return best_seconds(
            {
                "torch x@W.T": lambda: tensor_x @ tensor.T,
                "torch W@x.T": lambda: tensor @ tensor_x.T,
                "numpy x@W.T": lambda: x @ rows.T,
                "numpy W@x.T": lambda: rows @ x.T,
                SOFTMAX: lambda: torch.softmax(tensor_x @ tensor.T + tensor_bias, dim=1),
            },
            rounds,
            pause,
        )


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
