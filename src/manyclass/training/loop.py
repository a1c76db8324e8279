"""A training loop small enough to read: progress bar, evaluation, checkpoints, run log. Use it, or write your own.

A batch is a function of the step number, `batches(step) -> (input, target)`. So a resumed run sees the data that the
interrupted one would have seen, and with a checkpoint that holds the index it computes the same bits.
"""

import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from manyclass.errors import ConfigError, DivergedError, InputError, InputTypeError
from manyclass.training.evaluation import Batch, TrunkAndHead, evaluate
from manyclass.training.metrics import Metrics
from manyclass.training.progress import Progress, progress_bar
from manyclass.training.run_log import RunLog
from manyclass.training.run_state import Every, Path, Recent, Trained, resume_run, save_run

__all__ = ["Trained", "TrunkAndHead", "evaluate", "train"]


def train(
    model: nn.Module | tuple[nn.Module, nn.Module],
    batches: Callable[[int], Batch] | Iterable[Batch],
    optimizer: Optimizer,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    schedule: LRScheduler | Sequence[LRScheduler] = (),
    evaluate_on: Iterable[Batch] | Callable[[], Iterable[Batch]] | None = None,
    evaluate_every: float | None = None,
    metrics: Metrics | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: float | None = None,
    index: bool = True,
    resume: bool = True,
    log: Path | None = None,
    log_every: int = 50,
    seed: int | None = None,
    progress: bool | Progress = True,
) -> Trained:
    """Train for a number of steps, or for a number of seconds, and return how far the run has come.

    model: forward(input, target) → loss, and topk(input, k) if it is evaluated; or (trunk, head).
    batches: a function of the step; or a DataLoader, or any other iterable of (input, target), gone through again and
        again. A resumed run passes over the batches it has had.
    steps or seconds: the budget, in all sessions together. Evaluation and checkpoints cost none of the seconds.
        evaluate_every and checkpoint_every have the same unit; both also happen at the end.
    schedule: stepped after every step. evaluate_on: (input, target) batches, gone through anew each time.
    checkpoint: with resume=True, a file that is there already is continued from; index as in `save_checkpoint`.
    log: JSON lines with, every `log_every` steps, mean loss, learning rate, examples per second and the readings of
        every module that has a `meter`. seed: only noted there.
    progress: a bar or none, or what shows progress instead: progress(total, unit) gives a context of show(done, text).
    """
    _check_settings(steps, seconds, evaluate_on, evaluate_every, checkpoint, checkpoint_every, log_every)
    network = model if isinstance(model, nn.Module) else TrunkAndHead(*model)
    schedules = [schedule] if isinstance(schedule, LRScheduler) else list(schedule)
    budget = steps if steps is not None else seconds or 0
    run = Trained()
    if resumed := checkpoint is not None and resume and os.path.exists(checkpoint):
        run = resume_run(checkpoint, network, optimizer, schedules)
    written = None if log is None else RunLog(log)
    if written:
        written.write_card(seed, steps=steps, seconds=seconds, resumed_from=run.step if resumed else None)

    def spent() -> float:
        return run.seconds if steps is None else run.step

    next_batch = batches if callable(batches) else _in_turn(batches, run.step)
    evaluation, saving = Every(evaluate_every, spent()), Every(checkpoint_every, spent())
    network.train()
    unit = "seconds" if steps is None else "steps"
    with progress_bar(budget, unit, progress) if isinstance(progress, bool) else progress(budget, unit) as show:
        while spent() < budget:
            started = time.perf_counter()
            input, target = next_batch(run.step)
            run.loss = _step(network, input, target, optimizer, schedules, run.step)
            elapsed = time.perf_counter() - started
            run.step, run.seconds = run.step + 1, run.seconds + elapsed
            run.recent.add(run.loss, len(target), elapsed)
            finished = spent() >= budget
            show(spent(), _summary(run))
            if written and (run.step % log_every == 0 or finished):
                rate = float(optimizer.param_groups[0]["lr"])
                written.write(kind="step", step=run.step, seconds=run.seconds, **run.recent.means(),
                              learning_rate=rate, meter=_readings(network))  # fmt: skip
                run.recent = Recent()
            if evaluate_on is not None and (evaluation.due(spent()) or finished):
                found = evaluate(network, evaluate_on() if callable(evaluate_on) else evaluate_on, metrics)
                run.evaluations.append({"step": run.step, "seconds": run.seconds, **found})
                if written:
                    written.write(kind="evaluation", **run.evaluations[-1])
            if checkpoint is not None and (saving.due(spent()) or finished):
                save_run(checkpoint, run, network, optimizer, schedules, index)
    return run


def _in_turn(batches: Iterable[Batch], done: int) -> Callable[[int], Batch]:
    """Return a function that gives one batch after the other, whatever the step; past the first `done` of them."""

    def endless() -> Iterator[Batch]:
        while True:
            empty = True
            for batch in batches:
                empty = False
                yield batch
            if empty:
                raise InputError("batches is empty, or can be gone through only once; give a DataLoader or a function")

    stream = itertools.islice(endless(), done, None)
    return lambda _: next(stream)


def _step(
    network: nn.Module, input: Tensor, target: Tensor, optimizer: Optimizer, schedules: list[LRScheduler], step: int
) -> float:
    """Move the weights by one batch and return its loss; a loss that is not finite moves nothing."""
    optimizer.zero_grad()
    loss = network(input, target)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise DivergedError(f"the loss of step {step} is {value}; lower the learning rate or look at the batch")
    loss.backward()
    optimizer.step()
    for schedule in schedules:
        schedule.step()
    return value


def _readings(network: nn.Module) -> dict[str, float]:
    """Return what the meters of the heads report; with several heads, by the head's name."""
    meters = {name: getattr(module, "meter", None) for name, module in network.named_modules()}
    found = {name: meter.report() for name, meter in meters.items() if meter is not None}
    if len(found) == 1:
        return dict(next(iter(found.values())))
    return {f"{name}.{reading}": value for name, report in found.items() for reading, value in report.items()}


def _summary(run: Trained) -> str:
    accuracy = run.evaluations[-1].get("accuracy") if run.evaluations else None
    return f"loss {run.loss:.3f}" + (f", accuracy {accuracy:.1%}" if accuracy is not None else "")


def _check_settings(
    steps: int | None,
    seconds: float | None,
    evaluate_on: object,
    evaluate_every: float | None,
    checkpoint: Path | None,
    checkpoint_every: float | None,
    log_every: int,
) -> None:
    if (steps is None) == (seconds is None):
        raise ConfigError(f"steps={steps} and seconds={seconds}; give one of them")
    numbers = {"steps": steps, "seconds": seconds, "evaluate_every": evaluate_every,
               "checkpoint_every": checkpoint_every, "log_every": log_every}  # fmt: skip
    for name, value in numbers.items():
        if value is not None and not (isinstance(value, int | float) and value > 0):
            raise ConfigError(f"{name}={value!r} is not a positive number; give one")
    if evaluate_every is not None and evaluate_on is None:
        raise ConfigError(f"evaluate_every={evaluate_every} without evaluate_on; give batches to evaluate on")
    if checkpoint_every is not None and checkpoint is None:
        raise ConfigError(f"checkpoint_every={checkpoint_every} without checkpoint; give a path")
    if evaluate_on is not None and not callable(evaluate_on):
        if not isinstance(evaluate_on, Iterable):
            raise InputTypeError(f"evaluate_on is a {type(evaluate_on).__name__}; give (input, target) batches")
        if iter(evaluate_on) is evaluate_on:
            raise InputTypeError("evaluate_on would be used up after one evaluation; give a list or a function")
