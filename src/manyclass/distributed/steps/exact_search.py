"""The best rows of inputs by looking at all rows, a block at a time: memory does not depend on how many there are."""

import numpy as np

from manyclass._validation import Ids
from manyclass.distributed.messages import Floats

EXAMPLES, ROWS = 1024, 4096  # logits that are computed together: 16 MB


def best_rows(weight: Floats, bias: Floats | None, x: Floats, count: int) -> tuple[Ids, Floats]:
    """Return the `count` rows with the largest logits per input, best first, and those logits.

    Ties go to the lowest row. Where there are fewer rows than `count`, all come.
    """
    count = min(count, len(weight))
    parts = [_best(weight, bias, x[start : start + EXAMPLES], count) for start in range(0, len(x), EXAMPLES)]
    parts = parts or [_best(weight, bias, x, count)]
    return np.concatenate([found for found, _ in parts]), np.concatenate([logits for _, logits in parts])


def _best(weight: Floats, bias: Floats | None, x: Floats, count: int) -> tuple[Ids, Floats]:
    best: Ids = np.full((len(x), count), -1, np.int64)
    values: Floats = np.full((len(x), count), -np.inf, np.float32)
    for start in range(0, len(weight), ROWS):
        logits: Floats = x @ weight[start : start + ROWS].T
        if bias is not None:
            logits += bias[start : start + ROWS]
        better = np.flatnonzero(logits.max(1) > values[:, -1])  # few after the first blocks; a tie is not better
        if len(better):
            columns, found = _largest(logits[better], min(count, logits.shape[1]))
            merged = np.concatenate([values[better], found], 1)
            order = np.argsort(-merged, axis=1, kind="stable")[:, :count]  # earlier rows are to the left
            values[better] = np.take_along_axis(merged, order, 1)
            best[better] = np.take_along_axis(np.concatenate([best[better], columns + start], 1), order, 1)
    return best, values


def _largest(logits: Floats, count: int) -> tuple[Ids, Floats]:
    """Return the columns of the `count` largest of each line, ascending, and these; of equal ones the lowest columns.

    The least of them is found first: NumPy's partitions give ties to anybody.
    """
    least = np.partition(logits, -count, axis=1)[:, -count, None]
    above, equal = logits > least, logits == least
    missing = count - above.sum(1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, 1, np.int32) <= missing))
    columns = np.nonzero(chosen)[1].reshape(len(logits), count)
    return columns, np.take_along_axis(logits, columns, 1)
