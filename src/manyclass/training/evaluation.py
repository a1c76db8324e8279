"""What a model's topk is worth: metrics over batches, without leaving a trace in the model."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from manyclass.training.metrics import Metrics

Batch = tuple[Tensor, Tensor]


class TrunkAndHead(nn.Module):
    """A network in two parts as one model: forward(input, target) → loss, and topk(input, k)."""

    def __init__(self, trunk: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = self.head(self.trunk(input), target)
        return loss

    def topk(self, input: Tensor, k: int = 10) -> Any:
        return self.head.topk(self.trunk(input), k)  # type: ignore[operator]


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], metrics: Metrics | None = None) -> dict[str, float]:
    """Return the metrics of the model's topk in eval mode; modes and random state stay as they were."""
    metrics = Metrics() if metrics is None else metrics
    metrics.reset()
    modes = [(module, module.training) for module in model.modules()]
    model.train(False)
    try:
        with torch.random.fork_rng(devices=[]):
            for input, target in batches:
                classes = model.topk(input, metrics.k).classes  # type: ignore[operator]
                single = target.shape == classes.shape[:-1]
                metrics.update(classes.flatten(0, -2), target.reshape(-1) if single else target.flatten(0, -2))
    finally:
        for module, mode in modes:
            module.training = mode
    return metrics.value()
