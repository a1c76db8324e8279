"""Rows of bfloat16 beside float32: do they learn alike, and is it rounding by chance that does it?

torch is loaded when something is run, not by those who only read the table.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean
from typing import Any

from experiments.frame.documents import as_markdown
from experiments.frame.page import Table
from experiments.frame.records import Records
from experiments.frame.stages import Run
from experiments.frame.wording import percent, whole
from experiments.heads.apart import run_apart
from experiments.heads.sizes import LearningSizes

STAGE = "bfloat16"
FLOAT32, BY_CHANCE, TO_NEAREST = "float32", "bfloat16, by chance", "bfloat16, to nearest"
ROWS = (FLOAT32, BY_CHANCE, TO_NEAREST)
RATES = {"RowSGD": 1.0, "RowAdagrad": 0.1, "RowAdam": 0.003}  # those of SGD in all: at once what momentum 0.9 makes


@dataclass(frozen=True)
class RoundedRun:
    """One line: an optimizer, how the rows and its states are kept, and a seed."""

    optimizer: str
    rows: str
    seed: int = 0


def rounded_runs(sizes: LearningSizes) -> list[RoundedRun]:
    """Return every optimizer with every kind of rows."""
    return [RoundedRun(optimizer, rows, seed) for seed in sizes.seeds for optimizer in RATES for rows in ROWS]


def run_bfloat16(run: Run, sizes: LearningSizes) -> None:
    """Write a record for each run that the records lack."""
    left = [plan for plan in rounded_runs(sizes) if not run.records.done(stage=STAGE, kind="result", **asdict(plan))]
    told = {"classes": sizes.classes, "steps": sizes.steps, "tests": sizes.tests}
    with run.progress(len(left), "runs") as show:
        calls = [partial(learn, plan, sizes) for plan in left]
        for completed, (number, found) in enumerate(
            run_apart(calls, threads=1, at_once=run.options.threads, fresh=False), start=1
        ):
            plan = left[number]
            run.records.write(stage=STAGE, kind="result", **asdict(plan), **told, **found)
            show(completed, f"{plan.optimizer}, {plan.rows}: {found['curve'][-1][1]:.3f}")


def learn(plan: RoundedRun, sizes: LearningSizes) -> dict[str, Any]:
    """Return the curve of one run as (step, accuracy). Random points, normalised trunk; only the head's rows differ."""
    import torch

    import manyclass.torch as mct
    from experiments.demo.task import trunk
    from experiments.heads import learning

    task = learning.task_of("random points", sizes.classes, plan.seed)
    inputs, labels = task.test(sizes.tests)
    torch.manual_seed(plan.seed)
    below = trunk(task.centres.shape[1], learning.HIDDEN, "normalized")
    dtype = torch.bfloat16 if plan.rows == BY_CHANCE else torch.float32
    moves = partial(getattr(mct, plan.optimizer), lr=RATES[plan.optimizer])
    head = mct.SampledSoftmax(
        learning.HIDDEN, sizes.classes, samples=2048, dtype=dtype, row_update="fused", row_optimizer=moves
    )
    optimizer = torch.optim.SGD(below.parameters(), lr=learning.RATE, momentum=learning.MOMENTUM)
    decay = learning.DECAY ** (1 / sizes.steps)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, decay) for o in (optimizer, head.row_optimizer)]
    curve = []
    for step in range(sizes.steps):
        x, y = task.batch(step, learning.BATCH)
        optimizer.zero_grad()
        head(below(x), y).backward()
        optimizer.step()
        for schedule in schedules:
            schedule.step()
        if plan.rows == TO_NEAREST:
            _round_to_nearest([head.weight, *head.row_optimizer.state.get(head.weight, {}).values()])
        if (step + 1) % sizes.every == 0:
            curve.append((step + 1, _accuracy(below, head, inputs, labels)))
    return {"curve": curve}


def _round_to_nearest(tensors: Iterable[Any]) -> None:
    """Keep float32 numbers that bfloat16 has: what torch's own optimizers make of rows of that type."""
    for tensor in tensors:
        if tensor.dim():  # not the count of the steps
            tensor.data.copy_(tensor.data.bfloat16())


def _accuracy(below: Any, head: Any, inputs: Any, labels: Any) -> float:
    import torch

    below.eval(), head.eval()
    with torch.no_grad():
        found = torch.cat([head.predict(below(part)) for part in inputs.split(2000)])
    below.train(), head.train()
    return float((found == labels).float().mean())


def rounding_table(records: Records) -> Table:
    """Return the accuracy at the end by optimizer and kind of rows, means of the seeds."""
    runs = records.select(stage=STAGE, kind="result")
    ends = {
        (optimizer, rows): [run["curve"][-1][1] for run in runs if (run["optimizer"], run["rows"]) == (optimizer, rows)]
        for optimizer in RATES
        for rows in ROWS
    }
    lines = [[optimizer, *(percent(mean(ends[optimizer, rows])) for rows in ROWS)] for optimizer in RATES]
    return Table(["accuracy at the end", *ROWS], lines, "Rows and states of the row optimizers in two types.")


def rounding_block(records: Records) -> str:
    """Return the table for the documents."""
    some = records.last(stage=STAGE, kind="result")
    if some is None:
        return f"Not measured yet: stage `{STAGE}` of the experiment `heads`."
    told = f"{whole(some['classes'])} classes, {whole(some['steps'])} steps, {whole(some['tests'])} test examples:"
    return f"{told}\n\n{as_markdown(rounding_table(records))}"
