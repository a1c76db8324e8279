"""What the row optimizers compute, in NumPy: the definition that the native core matches bit for bit.

Only the rows named by `ids` are read or written. Every operation is rounded to float32 in the order written here.
"""

import numpy as np
import numpy.typing as npt

from manyclass._row_rule import ADAGRAD, ADAM, SGD, RowRule

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


def update_rows(
    rule: RowRule,
    weight: Floats,
    first: Floats | None,
    second: Floats | None,
    ids: Ids,
    gradient: Floats,
    threads: int = 1,
) -> None:
    """Take one step on rows `ids` of weight (rows, width) and of its states, in place.

    ids: int64 (n,), strictly ascending; gradient: float32 (n, width). States have the weight's shape; those that the
    rule does not use may be None. Cost: n × width, whatever the number of rows.
    """
    _check(rule, weight, first, second, ids, gradient)
    f = np.float32
    with np.errstate(all="ignore"):
        w, g = weight[ids], f(rule.scale) * gradient
        if rule.kind == ADAM:
            assert first is not None
            assert second is not None
            m = f(rule.first_decay) * first[ids] + f(rule.first_share) * g
            v = f(rule.second_decay) * second[ids] + (f(rule.second_share) * g) * g
            first[ids], second[ids] = m, v
            weight[ids] = f(rule.keep) * w - (f(rule.step) * m) / (np.sqrt(v) / f(rule.correction) + f(rule.eps))
            return
        if f(rule.weight_decay) != 0:
            g = g + f(rule.weight_decay) * w
        if rule.kind == ADAGRAD:
            assert first is not None
            s = first[ids] + g * g
            first[ids] = s
            weight[ids] = w - (f(rule.step) * g) / (np.sqrt(s) + f(rule.eps))
            return
        if rule.uses_first:
            assert first is not None
            m = f(rule.first_decay) * first[ids] + f(rule.first_share) * g
            first[ids] = m
            g = g + f(rule.first_decay) * m if rule.nesterov else m
        weight[ids] = w - f(rule.step) * g


def _check(
    rule: RowRule, weight: Floats, first: Floats | None, second: Floats | None, ids: Ids, gradient: Floats
) -> None:
    """Raise ValueError with the native core's words, before anything is written."""
    if rule.kind not in (SGD, ADAGRAD, ADAM):
        raise ValueError("kind of rule is unknown")
    if gradient.shape != (len(ids), weight.shape[1]):
        raise ValueError("gradient must be (ids, row width)")
    for state, used in ((first, rule.uses_first), (second, rule.uses_second)):
        if used and (state is None or state.shape != weight.shape):
            raise ValueError("the rule needs a state of the weight's shape")
    if ((ids < 0) | (ids >= len(weight))).any():
        raise ValueError("an id is out of range")
    if (ids[1:] <= ids[:-1]).any():
        raise ValueError("ids must be strictly ascending")
