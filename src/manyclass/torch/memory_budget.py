"""The memory of a head, worked out before it is taken: a report, a line on a terminal, an error if it cannot fit."""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyclass._machine import available_memory
from manyclass._training_config import training_config
from manyclass._validation import check_count
from manyclass.config import HashConfig
from manyclass.errors import ConfigError, MemoryBudgetError
from manyclass.torch.row_arrays import computed_in

WORTH_A_LOOK = 2**26  # bytes of rows below which nothing is asked: making small heads must stay quick
WORTH_A_WORD = 2**30  # bytes of a head from which on somebody who watches is told
CLASSES_PER_STEP = 4352  # at most: candidates of 256 examples, their positives, random classes
RANKS = 16  # candidates per example behind them
REMEMBERED = 22  # bytes of a class: how often it was a target, what was found for it and when, how old its hash is
UNCHECKED = "MANYCLASS_MEMORY_CHECK"  # "off": nothing is refused


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes of a head by part, beside those that are available (None: the system does not tell). Prints as a table.

    rows, bias: the parameters. states: of the optimizer, once every row was touched. index: what finds candidates, and
    remembers them.
    step: rows, gradients and logits that a training step works with.
    """

    in_features: int
    num_classes: int
    dtype: torch.dtype
    rows: int
    bias: int
    states: int
    index: int
    step: int
    available: int | None

    @property
    def total(self) -> int:
        """All of it."""
        return self.rows + self.bias + self.states + self.index + self.step

    @property
    def fits(self) -> bool:
        """Whether it is no more than what is available; True where nobody knows."""
        return self.available is None or self.total <= self.available

    @property
    def title(self) -> str:
        """The sizes in words."""
        return f"{self.num_classes:,} classes × {self.in_features}, {str(self.dtype).removeprefix('torch.')}"

    def parts(self) -> dict[str, int]:
        """Return the bytes of each part by its name."""
        return {"rows": self.rows, "bias": self.bias, "optimizer states": self.states, "index": self.index,
                "one step": self.step}  # fmt: skip

    def __str__(self) -> str:
        available = "unknown" if self.available is None else gigabytes(self.available)
        shown = {name: gigabytes(size) for name, size in {**self.parts(), "total": self.total}.items()}
        lines = [f"{name:<16} {size:>12}" for name, size in {**shown, "available": available}.items()]
        return "\n".join([self.title, *lines])

    def in_one_line(self) -> str:
        """Return the same for a running text."""
        parts = ", ".join(f"{name} {gigabytes(size)}" for name, size in self.parts().items() if size)
        left = "" if self.available is None else f" of {gigabytes(self.available)} available"
        return f"{self.title}: {gigabytes(self.total)}{left} ({parts})"


def memory_budget(
    in_features: int,
    num_classes: int,
    *,
    dtype: torch.dtype = torch.float32,
    bias: bool = True,
    optimizer: Callable[[Iterable[Tensor]], Any] | None = None,
    config: HashConfig | None = None,
    index: bool = True,
    normalize: bool = False,
    classes_per_step: int = CLASSES_PER_STEP,
) -> MemoryBudget:
    """Return what a head of these sizes would take, without taking it.

    dtype: of the rows. bias: bool = True. One float32 per class.
    optimizer: what makes the row optimizer, e.g. RowAdagrad or functools.partial(RowSGD, lr=0.1); None: no states.
    config: HashConfig, default that of a CandidateSoftmax of this size. index: False for heads that have none.
    normalize: bool = False. Cosine logits: the index keeps rows of length one of its own.
    classes_per_step: int = 4352. Classes that a training step computes.
    """
    features, classes = check_count("in_features", in_features), check_count("num_classes", num_classes)
    rows = features * classes * dtype.itemsize
    wide = computed_in(dtype).itemsize
    per_class = (config or training_config(classes, features, RANKS)).bytes_per_class(classes) if index else 0
    return MemoryBudget(
        in_features=features,
        num_classes=classes,
        dtype=dtype,
        rows=rows,
        bias=classes * wide if bias else 0,
        states=states_per_row(optimizer, dtype) * rows,
        index=round((per_class + REMEMBERED) * classes) + (rows if normalize else 0) if index else 0,
        step=2 * min(check_count("classes_per_step", classes_per_step), classes) * features * wide,
        available=available_memory(),
    )


def states_per_row(optimizer: Callable[[Iterable[Tensor]], Any] | None, dtype: torch.dtype) -> int:
    """Return how many numbers an optimizer keeps for each number of a row."""
    if optimizer is None:
        return 0
    stand_in = torch.zeros(1, 1, dtype=dtype)
    made = optimizer([stand_in])
    if not hasattr(made, "begin_step"):
        raise ConfigError(f"optimizer makes a {type(made).__name__}; give RowSGD, RowAdagrad or RowAdam, or a partial")
    step = made.begin_step(stand_in)
    return sum(state is not None for state in (step.first, step.second))


def check_memory(what: str, shape: tuple[int, int], dtype: torch.dtype, needs: dict[str, Any]) -> None:
    """Raise where a head cannot fit; say its size in one line where it is large and somebody watches.

    shape: of the rows. needs: further arguments of `memory_budget`.
    """
    if shape[0] * shape[1] * dtype.itemsize < WORTH_A_LOOK:
        return
    budget = memory_budget(shape[1], shape[0], dtype=dtype, **needs)
    if not budget.fits and not _unchecked():
        ways = ["dtype=torch.bfloat16"] if budget.dtype.itemsize > 2 else []
        if budget.states:
            ways.append("row_optimizer=functools.partial(RowSGD, lr=...), which has no state")
        ways.append("fewer features")
        raise MemoryBudgetError(
            f"{what} does not fit: {budget.in_one_line()}; give it {' or '.join(ways)}, or set {UNCHECKED}=off"
        )
    if budget.total >= WORTH_A_WORD and sys.stderr is not None and sys.stderr.isatty():
        print(f"{what}: {budget.in_one_line()}", file=sys.stderr)


def check_state(size: int) -> None:
    """Raise where a state of so many bytes, large and about to be made, cannot fit.

    The system hands such memory out page by page, and ends the process when there is none left.
    """
    available = available_memory() if size >= WORTH_A_WORD else None
    if available is not None and size > available and not _unchecked():
        raise MemoryBudgetError(
            f"a state of the row optimizer takes {gigabytes(size)}, and {gigabytes(available)} are available; use "
            f"RowSGD, which has none, or rows of torch.bfloat16, or set {UNCHECKED}=off if few rows are ever touched"
        )


def gigabytes(size: int) -> str:
    """Return bytes in words."""
    return f"{size / 1e9:,.2f} GB"


def _unchecked() -> bool:
    return os.environ.get(UNCHECKED, "").lower() == "off"
