"""What the row optimizers compute, in NumPy: the definition that the native core matches bit for bit.

Only the rows named by `ids` are read or written. Every operation is rounded to float32 in the order written here; rows
kept as bfloat16 (their bits, in uint16) are rounded by chance when they are written.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._reference.row_rounding import stored, widened
from manyclass._row_rule import ADAGRAD, ADAM, SGD, RowRule

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[Any]  # float32, or uint16: the bits of bfloat16


def update_rows(
    rule: RowRule,
    weight: Rows,
    first: Rows | None,
    second: Rows | None,
    ids: Ids,
    gradient: Floats,
    threads: int = 1,
) -> None:
    """Take one step on rows `ids` of weight (rows, width) and of its states, in place.

    ids: int64 (n,), strictly ascending; gradient: float32 (n, width). States have the weight's shape; those that the
    rule does not use may be None. Cost: n × width, whatever the number of rows.
    """
    _check(rule, weight, first, second, ids, gradient)
    arrays = (weight, first if rule.uses_first else None, second if rule.uses_second else None)
    before = [None if rows is None else widened(rows[ids]) for rows in arrays]
    with np.errstate(all="ignore"):
        after = _step(rule, gradient, *before)
    for number, (rows, values) in enumerate(zip(arrays, after, strict=True)):
        if rows is not None and values is not None:
            rows[ids] = stored(values, rows, rule.noise, ids, number)


def _step(
    rule: RowRule, gradient: Floats, w: Floats | None, first: Floats | None, second: Floats | None
) -> tuple[Floats | None, Floats | None, Floats | None]:
    """Return weight and states after the step."""
    assert w is not None
    f = np.float32
    g = f(rule.scale) * gradient
    if rule.kind == ADAM:
        assert first is not None
        assert second is not None
        m = f(rule.first_decay) * first + f(rule.first_share) * g
        v = f(rule.second_decay) * second + (f(rule.second_share) * g) * g
        return f(rule.keep) * w - (f(rule.step) * m) / (np.sqrt(v) / f(rule.correction) + f(rule.eps)), m, v
    if f(rule.weight_decay) != 0:
        g = g + f(rule.weight_decay) * w
    if rule.kind == ADAGRAD:
        assert first is not None
        s: Floats = first + g * g
        return np.asarray(w - (f(rule.step) * g) / (np.sqrt(s) + f(rule.eps)), f), s, None
    if rule.uses_first:
        assert first is not None
        first = f(rule.first_decay) * first + f(rule.first_share) * g
        g = g + f(rule.first_decay) * first if rule.nesterov else first
    return w - f(rule.step) * g, first, None


def _check(rule: RowRule, weight: Rows, first: Rows | None, second: Rows | None, ids: Ids, gradient: Floats) -> None:
    """Raise ValueError with the native core's words, before anything is written."""
    if rule.kind not in (SGD, ADAGRAD, ADAM):
        raise ValueError("kind of rule is unknown")
    if any(rows is not None and rows.dtype not in (np.float32, np.uint16) for rows in (weight, first, second)):
        raise ValueError("rows must be float32, or bfloat16 as uint16")
    if gradient.shape != (len(ids), weight.shape[1]):
        raise ValueError("gradient must be (ids, row width)")
    for state, used in ((first, rule.uses_first), (second, rule.uses_second)):
        if used and (state is None or state.shape != weight.shape):
            raise ValueError("the rule needs a state of the weight's shape")
    if ((ids < 0) | (ids >= len(weight))).any():
        raise ValueError("an id is out of range")
    if (ids[1:] <= ids[:-1]).any():
        raise ValueError("ids must be strictly ascending")
