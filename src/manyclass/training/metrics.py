"""Streaming metrics on ranked class ids, in NumPy: what a head's `topk` found against what was wanted.

Words: `classes` (n, k) are the ranked ids of n examples, best first, -1 where there is none. `targets` are (n,) ids or
(n, p) ids padded with negative numbers; the positives of an example are its distinct targets that are not negative.
A position is a hit if it holds a positive that no earlier position holds: repeated ids count once, and the repetition
keeps its place in the ranking, as does an absent id. An example without positives says nothing about a ranking: it is
left out of the mean and counted in `skipped`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from manyclass._validation import Ids, as_array, check_count
from manyclass.errors import InputError, InputTypeError

__all__ = ["Accuracy", "AveragePrecision", "Metric", "Metrics", "NDCGAt", "PrecisionAt", "RecallAt"]

Values = npt.NDArray[np.float64]


class Judged(NamedTuple):
    """Rankings compared with their targets, for the examples that have positives."""

    hits: npt.NDArray[np.bool_]  # (n, k)
    positives: Ids  # (n,) how many distinct positives, at least one
    skipped: int  # examples without positives


class Metric:
    """The mean over examples of one number per example; NaN as long as there are none.

    update(classes, targets) adds examples, value() gives the mean so far, reset() forgets, merge(other) adds what
    another worker has seen. A metric is a few numbers: pickle it, send it, merge it.
    """

    label = "metric"

    def __init__(self, k: int) -> None:
        self.k = check_count("k", k)
        self.reset()

    @property
    def name(self) -> str:
        return f"{self.label}@{self.k}"

    def update(self, classes: Any, targets: Any) -> None:
        """Add examples: classes (n, at least k), targets (n,) or (n, p); arrays, lists or torch tensors."""
        self.add(judge(classes, targets, self.k))

    def value(self) -> float:
        return self.total / self.examples if self.examples else float("nan")

    compute = value

    def reset(self) -> None:
        self.total = 0.0
        self.examples = 0
        self.skipped = 0

    def merge(self, other: "Metric") -> Self:
        """Add the examples of another metric of the same kind, and return this one."""
        if type(other) is not type(self) or other.k != self.k:
            raise InputTypeError(
                f"cannot merge {_called(other)} into {self.name}; merge metrics of the same kind and k"
            )
        self.total += other.total
        self.examples += other.examples
        self.skipped += other.skipped
        return self

    def add(self, judged: Judged) -> None:
        self.total += float(self._values(judged.hits[:, : self.k], judged.positives).sum())
        self.examples += len(judged.positives)
        self.skipped += judged.skipped

    def _values(self, hits: npt.NDArray[np.bool_], positives: Ids) -> Values:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.name}={self.value():.4g} over {self.examples} examples"


class Accuracy(Metric):
    """Share of examples whose first id is a positive."""

    label = "accuracy"

    def __init__(self) -> None:
        super().__init__(1)

    @property
    def name(self) -> str:
        return self.label

    def _values(self, hits: npt.NDArray[np.bool_], positives: Ids) -> Values:
        return hits[:, 0].astype(np.float64)


class PrecisionAt(Metric):
    """hits among the first k / k, whatever the number of positives."""

    label = "precision"

    def _values(self, hits: npt.NDArray[np.bool_], positives: Ids) -> Values:
        share: Values = hits.sum(axis=1) / self.k
        return share


class RecallAt(Metric):
    """hits among the first k / number of positives; with a single positive this is top-k accuracy."""

    label = "recall"

    def _values(self, hits: npt.NDArray[np.bool_], positives: Ids) -> Values:
        share: Values = hits.sum(axis=1) / positives
        return share


class NDCGAt(Metric):
    """DCG / DCG of the best ranking possible, with DCG = sum over the hits at rank r ≤ k of 1 / log2(r + 1).

    Gains are binary; the best ranking has hits at ranks 1 to min(k, positives).
    """

    label = "ndcg"

    def _values(self, hits: npt.NDArray[np.bool_], positives: Ids) -> Values:
        gains = 1 / np.log2(np.arange(2, self.k + 2))
        best = np.cumsum(gains)[np.minimum(self.k, positives) - 1]
        # Summed in the order of cumsum, so that a perfect ranking gives exactly 1.
        share: Values = np.cumsum(hits * gains, axis=1)[:, -1] / best
        return share


class AveragePrecision(Metric):
    """AP@k = sum over the hits at rank r ≤ k of (hits among the first r / r) / min(k, positives); its mean is MAP@k."""

    label = "map"

    def _values(self, hits: npt.NDArray[np.bool_], positives: Ids) -> Values:
        precisions = np.cumsum(hits, axis=1) / np.arange(1, self.k + 1)
        share: Values = (precisions * hits).sum(axis=1) / np.minimum(self.k, positives)
        return share


class Metrics:
    """Several metrics updated together, as a dict: Metrics([1, 5]) has the accuracy and all the others at 1 and 5.

    Pass metrics instead of numbers to choose. `k` is how many ids `topk` must be asked for.
    """

    def __init__(self, metrics: "Sequence[int] | Iterable[Metric]" = (1, 5)) -> None:
        given = list(metrics)
        if not given:
            raise InputError("no metrics; give some numbers k, or some metrics")
        kinds = (PrecisionAt, RecallAt, NDCGAt, AveragePrecision)
        chosen: list[Metric] = [entry for entry in given if isinstance(entry, Metric)]
        if not chosen:
            chosen = [Accuracy(), *(kind(k) for kind in kinds for k in given)]  # type: ignore[arg-type]
        elif len(chosen) != len(given):
            raise InputTypeError(f"metrics={given!r} mixes metrics and other things; give numbers or metrics, not both")
        self.metrics = {metric.name: metric for metric in chosen}
        self.k = max(metric.k for metric in chosen)

    @property
    def examples(self) -> int:
        return next(iter(self.metrics.values())).examples

    @property
    def skipped(self) -> int:
        return next(iter(self.metrics.values())).skipped

    def update(self, classes: Any, targets: Any) -> None:
        judged = judge(classes, targets, self.k)
        for metric in self.metrics.values():
            metric.add(judged)

    def value(self) -> dict[str, float]:
        return {name: metric.value() for name, metric in self.metrics.items()}

    compute = value

    def reset(self) -> None:
        for metric in self.metrics.values():
            metric.reset()

    def merge(self, other: "Metrics") -> Self:
        if not isinstance(other, Metrics) or set(other.metrics) != set(self.metrics):
            raise InputTypeError(
                f"cannot merge {_called(other)} into {list(self.metrics)}; both must hold the same names"
            )
        for name, metric in self.metrics.items():
            metric.merge(other.metrics[name])
        return self

    def __repr__(self) -> str:
        return f"Metrics({', '.join(f'{name}={value:.4g}' for name, value in self.value().items())})"


def judge(classes: Any, targets: Any, k: int) -> Judged:
    """Return which of the first k positions hit, and how many positives there are. Cost: one sort of all ids."""
    found, wanted = _ids("classes", classes), _ids("targets", targets)
    if found.ndim != 2 or found.shape[1] < k:
        raise InputError(
            f"classes has shape {found.shape}; expected (examples, at least {k}): ask topk for {k} classes"
        )
    if wanted.ndim == 1:
        wanted = wanted[:, None]
    if wanted.ndim != 2 or len(wanted) != len(found):
        raise InputError(f"targets has shape {wanted.shape}; expected ({len(found)},) or ({len(found)}, positives)")
    if found.size and found.min() < -1:
        raise InputError(f"classes holds {found.min()}; ids are 0 or more, -1 where there is none")
    found = found[:, :k]
    # One key per (example, id): then whole batches are compared by set operations, without an n × k × p array.
    ids = np.concatenate([found, wanted], axis=1)
    distinct, numbers = np.unique(ids, return_inverse=True)
    keys = np.arange(len(ids))[:, None] * len(distinct) + numbers.reshape(ids.shape)
    positive_keys = np.unique(keys[:, k:][wanted >= 0])
    positives = np.bincount(positive_keys // max(len(distinct), 1), minlength=len(found))
    ranked = keys[:, :k].ravel()
    first = np.zeros(len(ranked), bool)
    first[np.unique(ranked, return_index=True)[1]] = True
    hits = (np.isin(ranked, positive_keys) & first).reshape(found.shape)
    judged = positives > 0
    return Judged(hits[judged], positives[judged].astype(np.int64), int((~judged).sum()))


def _ids(name: str, values: Any) -> Ids:
    """Return whole numbers as int64; a tensor of any device is brought here."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = as_array(name, values)
    if array.size and array.dtype.kind not in "iu":
        raise InputTypeError(f"{name} has dtype {array.dtype}; class ids are whole numbers")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError(f"{name} holds {array.max()}; ids are below 2**63")
    return array.astype(np.int64, copy=False)


def _called(thing: object) -> str:
    return getattr(thing, "name", None) or (
        str(list(thing.metrics)) if isinstance(thing, Metrics) else f"a {type(thing).__name__}"
    )
