"""Ten million classes in the memory of one machine: rows of bfloat16, what was promised to fit, and what it took.

torch is loaded when something is run, not by those who only read the table.
"""

import statistics
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from experiments.frame.documents import as_markdown
from experiments.frame.page import Table
from experiments.frame.records import Records
from experiments.frame.stages import Run
from experiments.frame.wording import ABSENT, number, whole
from experiments.heads.apart import run_apart
from experiments.heads.sizes import WideSizes

STAGE = "ten_million"
OPTIMIZERS = ("RowSGD", "RowAdagrad")
RATE, WARM_UP = 0.1, 4


@dataclass(frozen=True)
class Promised:
    """Bytes by `memory_budget`, before anything is taken. float32: of the same head with rows twice as wide."""

    budget: int
    float32: int
    available: int | None


def run_ten_million(run: Run, sizes: WideSizes) -> None:
    """Write a record for each optimizer that the records lack, each measured in a new process."""
    key = {"stage": STAGE, "kind": "result", **asdict(sizes)}
    left = [optimizer for optimizer in OPTIMIZERS if not run.records.done(**key, optimizer=optimizer)]
    with run.progress(len(left), "heads") as show:
        calls = [partial(measure, optimizer, sizes) for optimizer in left]
        done = run_apart(calls, run.options.threads, fresh=not run.options.quick)
        for completed, (turn, found) in enumerate(done, start=1):
            run.records.write(**key, optimizer=left[turn], **found)
            show(completed, f"{left[turn]}: {found['step_ms']:.1f} ms, {found['peak'] / 1e9:.1f} GB")


def measure(optimizer: str, sizes: WideSizes) -> dict[str, Any]:
    """Return milliseconds of a step, seconds until the index is built, and bytes at the end, the process included."""
    import torch

    import manyclass.torch as mct
    from experiments.heads.steps import peak_bytes, touch_states

    update = partial(getattr(mct, optimizer), lr=RATE)
    told = promised(sizes, update)
    torch.manual_seed(0)
    head = mct.CandidateSoftmax(
        sizes.features, sizes.classes, dtype=torch.bfloat16, row_update="fused", row_optimizer=update
    )
    spent = []
    for _ in range(WARM_UP + sizes.steps):
        x, y = torch.randn(sizes.batch, sizes.features), torch.randint(sizes.classes, (sizes.batch,))
        started = time.perf_counter()
        head(x, y).backward()
        spent.append(time.perf_counter() - started)
        if len(spent) == 1:
            touch_states(head.row_optimizer)  # what a whole pass over the classes would
    started = time.perf_counter()
    head.eval()
    head.predict(torch.randn(sizes.batch, sizes.features))  # builds the index, and answers by it
    return {
        "step_ms": 1000 * statistics.mean(spent[WARM_UP:]),
        "index_seconds": time.perf_counter() - started,
        "peak": int(peak_bytes()),
        **asdict(told),
    }


def promised(sizes: WideSizes, optimizer: partial[object]) -> Promised:
    """Return what the library says beforehand."""
    import torch

    import manyclass.torch as mct

    narrow, wide = (
        mct.memory_budget(sizes.features, sizes.classes, dtype=dtype, optimizer=optimizer)
        for dtype in (torch.bfloat16, torch.float32)
    )
    return Promised(narrow.total, wide.total, narrow.available)


def ten_million_table(records: Records) -> Table:
    """Return a line per optimizer."""
    found = {str(record["optimizer"]): record for record in records.select(stage=STAGE, kind="result")}
    lines = [
        [optimizer, number(run["step_ms"]), number(run["index_seconds"]), *(gigabytes(run[part]) for part in
         ("budget", "peak", "float32", "available"))]
        for optimizer, run in found.items()
    ]  # fmt: skip
    columns = ["rows of bfloat16", "ms per step", "s until the first answer", "promised, GB", "taken, GB",
               "promised with float32, GB", "available, GB"]  # fmt: skip
    return Table(columns, lines, "Taken: the most the process held, Python and torch included.")


def gigabytes(size: int | None) -> str:
    """Return bytes as gigabytes."""
    return ABSENT if size is None else f"{size / 1e9:.1f}"


def ten_million_block(records: Records) -> str:
    """Return the table for the documents."""
    some = records.last(stage=STAGE, kind="result")
    if some is None:
        return f"Not measured yet: stage `{STAGE}` of the experiment `heads`."
    told = f"{whole(some['classes'])} classes × {whole(some['features'])}, batch {some['batch']}, all states touched:"
    return f"{told}\n\n{as_markdown(ten_million_table(records))}"
