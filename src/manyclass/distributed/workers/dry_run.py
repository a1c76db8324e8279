"""One batch through the trunk before anything starts: what would stop every worker is said at once, in a sentence."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from manyclass.distributed.job import Job
from manyclass.distributed.positives import Targets
from manyclass.distributed.workers.torch_replica import TorchReplica
from manyclass.errors import InputError, InputTypeError, ManyclassError

T = TypeVar("T")


def check_job(job: Job) -> None:
    """Raise an error where the job's first batch, its trunk, its output layer or its test do not fit each other.

    Random state stays as it was, so that the trunk that is made next has the weights it would have had.
    """
    with torch.random.fork_rng(devices=[]):
        trunk = _tried("trunk()", job.trunk)
        if not isinstance(trunk, nn.Module):
            raise InputTypeError(f"trunk() returned a {type(trunk).__name__}; return a torch module")
        batch = _checked("batches(0)", _tried("batches(0)", lambda: job.batches(0)), job)
        forward = _tried("the trunk on batches(0)", lambda: TorchReplica(trunk, lambda _: batch).forward(0))
        if forward.x.shape[1] != job.head.features:
            raise InputError(f"the trunk makes {forward.x.shape[1]} features per example, HeadSettings has "
                             f"features={job.head.features}; give the one or the other")  # fmt: skip
        if job.test is not None:
            first = _tried("test()", lambda: next(iter(job.test()), None))  # type: ignore[misc]
            if first is None:
                raise InputError("test() has no batches; return at least one, or give test=None")
            _checked("the first batch of test()", first, job)


def _checked(name: str, batch: Any, job: Job) -> tuple[Any, Tensor]:
    """Return a batch that is (input, targets), with class ids that there are."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputTypeError(f"{name} is a {type(batch).__name__}; return a pair (input, targets)")
    given, targets = batch
    if not isinstance(targets, Tensor):
        raise InputTypeError(f"the targets of {name} are a {type(targets).__name__}; give a tensor of class ids")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise InputTypeError(f"the targets of {name} are {targets.dtype}; give class ids, torch.int64")
    if targets.dim() not in (1, 2):
        raise InputError(f"the targets of {name} have the shape {tuple(targets.shape)}; give (examples,), or "
                         "(examples, n) padded with -1")  # fmt: skip
    Targets(targets.numpy(), job.head.classes)
    return given, targets


def _tried(name: str, make: Callable[[], T]) -> T:
    """Return what a function of the job makes; whatever it raises becomes one sentence."""
    try:
        return make()
    except ManyclassError:
        raise
    except Exception as error:
        said = str(error).strip().splitlines() or [""]
        raise InputError(f"{name} of the job raised {type(error).__name__}: {said[0]}; nothing was started") from error
