"""One run on a task: train for so many seconds or so many steps, and judge every tenth of them by exact answers."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import manyclass.torch as mct
from experiments.heads.contestants import make, told_frequencies
from experiments.heads.tasks.task import Examples, Task
from manyclass.errors import InputError

MOMENTUM = 0.9
POINTS = 10  # of a curve
JUDGED_AT_ONCE = 250


@dataclass(frozen=True)
class Budget:
    """So many seconds, or else so many steps, over which the learning rate falls to the share `decay`."""

    seconds: float = 0.0
    steps: int = 0
    decay: float = 1.0

    def spent(self, step: int, seconds: float) -> float:
        """Return which share of it is spent."""
        return step / self.steps if self.steps else seconds / self.seconds


class Learner:
    """Trunk, head and optimizer of one run."""

    def __init__(self, task: Task, head: str, rate: float, seed: int) -> None:
        torch.manual_seed(seed)
        self.task, self.rate = task, rate
        self.trunk = task.trunk()
        self.head = make(head, task.features, task.classes, **told_frequencies(head, task.frequencies))
        parameters = [*self.trunk.parameters(), *self.head.parameters()]
        self.optimizer: torch.optim.Optimizer
        if task.optimizer == "adagrad":
            self.optimizer = mct.RowAdagrad(parameters, lr=rate)
        else:
            self.optimizer = mct.RowSGD(parameters, lr=rate, momentum=MOMENTUM)

    def step(self, inputs: Tensor, targets: Tensor, rate: float) -> float:
        """Move the weights by one batch; return its loss."""
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.zero_grad()
        loss = self.head(self.trunk(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def scores(self, examples: Examples) -> dict[str, float]:
        """Return the task's metrics of the exact best classes, whatever the head approximates."""
        metrics = self.task.metrics()
        self.trunk.eval()
        for part in examples.parts(JUDGED_AT_ONCE):
            logits = all_logits(self.head, self.trunk(part.inputs))
            if part.excluded is not None:  # the column behind the last is for the padding
                logits = F.pad(logits, (0, 1)).scatter_(1, part.excluded % logits.shape[1], -torch.inf)[:, :-1]
            best = logits.argmax(1, keepdim=True) if metrics.k == 1 else logits.topk(metrics.k, 1).indices
            metrics.update(best, part.targets)
        self.trunk.train()
        return metrics.value()


def all_logits(head: mct.OutputHead, input: Tensor) -> Tensor:
    """Return what ranks the classes, (examples, classes): logits, or the log probabilities of a tree."""
    if isinstance(head, mct.HierarchicalSoftmax):
        return head.log_prob(input)
    return F.linear(input, head.get_parameter("weight"), head.get_parameter("bias"))


def learn(
    task: Task, head: str, rate: float, seed: int, size: int, budget: Budget, examples: Examples, points: int = POINTS
) -> tuple[Learner, dict[str, Any]]:
    """Return the curve of one run as (step, seconds, score), with steps and seconds in all; and the learner.

    Judging costs none of the seconds. A run whose loss is not finite ends there, with a score of 0 from then on.
    """
    warnings.simplefilter("ignore", mct.ApproximationWarning)  # a quick run has few classes
    learner = Learner(task, head, rate, seed)
    curve: list[tuple[int, float, float]] = []
    step, seconds, diverged = 0, 0.0, False
    while len(curve) < points and not diverged:
        start = time.perf_counter()
        inputs, targets = task.batch(step, size)
        now = rate * budget.decay ** (step / budget.steps) if budget.steps else rate
        try:
            diverged = not abs(learner.step(inputs, targets, now)) < float("inf")
        except InputError:  # what a head says of inputs that are not finite
            diverged = True
        step, seconds = step + 1, seconds + time.perf_counter() - start
        due = min(points, int(points * budget.spent(step, seconds) + 1e-9))
        if due > len(curve) and not diverged:
            score = next(iter(learner.scores(examples).values()))
            curve += [(step, seconds, score)] * (due - len(curve))  # a long step may pass several tenths
    curve += [(step, seconds, 0.0)] * (points - len(curve))
    return learner, {"curve": curve, "steps": step, "seconds": seconds, "diverged": diverged}
