"""Training of a network or of an output layer alone, with a rate that falls, as the experiments with pictures do it."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import manyclass.torch as mct
from experiments.frame.stages import Run
from manyclass.training.loop import Trained, train
from manyclass.training.metrics import Accuracy, Metrics

Batch = tuple[Tensor, Tensor]


def learn(
    model: nn.Module,
    batches: Callable[[int], Batch],
    optimizer: torch.optim.Optimizer,
    run: Run,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    final_rate: float = 1.0,
    tests: list[Batch] | Callable[[], list[Batch]],
    points: int,
    checkpoint: Path | None = None,
    **settings: Any,
) -> Trained:
    """Train for so many steps, over which the rates fall exponentially to a share of them, or for so many seconds.

    points: how many times it is evaluated on the tests. checkpoint: gone on from, unless the stage is run anew.
    """
    if checkpoint is not None and run.options.again:
        checkpoint.unlink(missing_ok=True)
    gamma = 1.0 if steps is None else final_rate ** (1 / steps)
    every = max(1, steps // points) if steps is not None else (seconds or 0.0) / points
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mct.ApproximationWarning)  # 3000 candidates are many of these classes
        return train(
            model,
            batches,
            optimizer,
            steps=steps,
            seconds=seconds,
            schedule=torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma),
            evaluate_on=tests,
            evaluate_every=every,
            metrics=Metrics([Accuracy()]),
            progress=run.progress,
            checkpoint=checkpoint,
            **settings,
        )
