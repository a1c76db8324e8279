"""A trunk and the shards above it as one model: what evaluation asks for its best classes."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyclass._topk import TopK
from manyclass.distributed.messages import Exchange, Sender, TrunkValues
from manyclass.distributed.placement import Placement
from manyclass.distributed.steps.transport import TRUNK, Call, best_classes
from manyclass.distributed.workers.torch_replica import load_trunk
from manyclass.training.evaluation import evaluate
from manyclass.training.metrics import Accuracy, Metrics

ONLOOKER = Sender(-1, 0, 0)  # asks without pushing
MakeCalls = Callable[[list[Call]], list[Any]]


class ShardedModel(nn.Module):
    """topk(input, k): the trunk here, the classes at the shards. make: makes calls and returns their answers."""

    def __init__(self, trunk: nn.Module, placement: Placement, make: MakeCalls, *, exact: bool = True) -> None:
        super().__init__()
        self.trunk, self.placement, self.make, self.exact = trunk, placement, make, exact

    def fetch(self) -> None:
        """Take over the trunk as its server has it now."""
        (found,) = self.make([Call(TRUNK, "exchange", Exchange(ONLOOKER, 0, None, {}, True))])
        assert isinstance(found, TrunkValues)
        load_trunk(self.trunk, found.values, found.buffers)

    @torch.no_grad()
    def topk(self, input: Tensor, k: int = 10) -> TopK[Tensor]:
        """Return the k best classes of each input; log probabilities are over these alone."""
        x = self.trunk(input).float().contiguous().numpy()
        asking = best_classes(self.placement, x, k, exact=self.exact)
        try:
            asking.send(self.make(next(asking)))
        except StopIteration as finished:
            ids, logits = finished.value
        classes, scores = torch.from_numpy(ids), torch.from_numpy(np.ascontiguousarray(logits))
        return TopK(classes=classes, log_probs=scores.log_softmax(1), logits=scores)


def accuracy(model: ShardedModel, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return how often the best class is a target, by trunk and rows as they are now."""
    model.fetch()
    return float(evaluate(model, batches, Metrics([Accuracy()]))["accuracy"])
