"""How far a run has come, and how that is kept in a checkpoint beside model and optimizer."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from manyclass.errors import FileError
from manyclass.torch.checkpoint import checkpoint_info, load_checkpoint, save_checkpoint
from manyclass.training.run_log import as_json

Path = str | os.PathLike[str]


@dataclass
class Recent:
    """What has happened since the last line of the log."""

    steps: int = 0
    examples: int = 0
    loss: float = 0.0
    seconds: float = 0.0

    def add(self, loss: float, examples: int, seconds: float) -> None:
        self.steps, self.examples = self.steps + 1, self.examples + examples
        self.loss, self.seconds = self.loss + loss, self.seconds + seconds

    def means(self) -> dict[str, float]:
        return {"loss": self.loss / self.steps, "examples_per_second": self.examples / max(self.seconds, 1e-9)}


@dataclass
class Trained:
    """How far a run has come. Seconds are those of training: batches, forward, backward, update; nothing else."""

    step: int = 0
    seconds: float = 0.0
    loss: float = math.nan  # of the last step
    evaluations: list[dict[str, float]] = field(default_factory=list)  # step, seconds and the metrics
    recent: Recent = field(default_factory=Recent, repr=False)


class Every:
    """Says when a period of steps or seconds has passed, at most once per period."""

    def __init__(self, period: float | None, start: float) -> None:
        self.period = period
        self.next = math.inf if period is None else period * (start // period + 1)

    def due(self, now: float) -> bool:
        if self.period is None or now < self.next:
            return False
        self.next = self.period * (now // self.period + 1)
        return True


def save_run(
    path: Path, run: Trained, model: nn.Module, optimizer: Optimizer, schedules: Sequence[LRScheduler], index: bool
) -> None:
    """Write everything that a resumed run needs."""
    extra = {"run": json.loads(as_json(asdict(run))), "schedules": [_plain(s.state_dict()) for s in schedules]}
    save_checkpoint(path, model, optimizer, run.step, index, extra)


def resume_run(path: Path, model: nn.Module, optimizer: Optimizer, schedules: Sequence[LRScheduler]) -> Trained:
    """Bring everything back and return how far the run has come."""
    extra = checkpoint_info(path).extra
    if set(extra) != {"run", "schedules"} or len(extra["schedules"]) != len(schedules):
        found = f"{len(extra['schedules'])} schedules" if "schedules" in extra else "no training run"
        raise FileError(
            f"{os.fspath(path)} holds {found}, {len(schedules)} are given; use another path or resume=False"
        )
    load_checkpoint(path, model, optimizer)
    for schedule, saved in zip(schedules, extra["schedules"], strict=True):
        schedule.load_state_dict(_like(schedule.state_dict(), saved))
    run = dict(extra["run"])
    return Trained(**run | {"recent": Recent(**run["recent"])})


def _plain(value: Any) -> Any:
    """Return a scheduler's state in JSON's terms; a dict becomes pairs, because some have numbers as keys."""
    if isinstance(value, dict):
        return {"pairs": [[key, _plain(entry)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, Tensor) else value


def _like(now: Any, saved: Any) -> Any:
    """Return a saved state in the types that the scheduler uses now."""
    if isinstance(saved, dict):
        current = now if isinstance(now, dict) else {}
        entries = {key: _like(current.get(key), entry) for key, entry in saved["pairs"]}
        return type(now)(entries) if isinstance(now, dict) else entries
    if isinstance(saved, list):
        same = isinstance(now, list | tuple) and len(now) == len(saved)
        listed = [_like(old, entry) for old, entry in zip(now, saved, strict=True)] if same else saved
        return tuple(listed) if isinstance(now, tuple) else listed
    return saved
