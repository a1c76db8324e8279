"""How good the approximation is while training: measured on a few examples now and then, exactly."""

import warnings

import torch
from torch import Tensor

from manyclass._validation import check_count

EXAMPLES = 4  # examples compared with all classes at a time: the cost is that of their exact logits
DEPTH = 10  # recall is of the exact best ten
LARGE_SHARE = 0.2
FIRST_DOUBLING = 16
CLASSES_PER_STEP = 250  # compared in the mean, for each example: a small part of what a step computes
UNHEEDED = 4  # times as many steps between two readings that steer nothing
SHORTEST_INTERVAL = 10


class ApproximationWarning(UserWarning):
    """The approximation does little good here: see the message."""


class ApproximationMeter:
    """Readings of a head in training: recall, missed probability mass, table age, distinct classes per step.

    every: steps between two comparisons with all classes; 0: never. early: also at steps 0, 16, 32, 64 and so on, as
    most changes early, and mining goes by it. `report` returns the latest readings.
    """

    def __init__(self, every: int = 100, *, early: bool = True) -> None:
        self.every, self.early = check_count("meter_every", every, low=0), early
        self.steps = 0
        self.readings: dict[str, float] = {}
        self._warned = False

    def due(self) -> bool:
        """Return whether this step is one to compare with all classes."""
        if not self.every:
            return False
        doubled = self.steps >= FIRST_DOUBLING and self.steps & (self.steps - 1) == 0
        return (self.early and doubled) or (self.steps % self.every == 0 and (self.early or self.steps > 0))

    def count(self, distinct: int, classes: int) -> None:
        """Note how many classes a step computed; warn, once, when they are so many that it cannot pay."""
        self.steps += 1
        self.readings["distinct_classes"] = float(distinct)
        if distinct > LARGE_SHARE * classes and not self._warned:
            self._warned = True
            warnings.warn(
                f"a batch touches {distinct} of {classes} classes, more than {LARGE_SHARE:.0%}: full softmax may be as "
                f"fast; lower mined_examples or tail (candidates with shared=False)",
                ApproximationWarning,
                stacklevel=2,
            )

    def compare(self, exact_logits: Tensor, seen: Tensor, age: tuple[float, int]) -> None:
        """Note recall and missed mass of examples whose logits of all classes are known, and the age of the index.

        exact_logits (examples, classes); seen (examples, width): the classes that were computed, -1 where absent;
        age: mean and largest, in steps.
        """
        depth = min(DEPTH, exact_logits.shape[1])
        values, best = exact_logits.topk(depth, 1)
        found = (best[:, :, None] == seen[:, None, :]).any(2)[~values.isneginf()]  # of classes that are not masked
        inside = exact_logits.gather(1, seen.clamp(min=0)).masked_fill(seen < 0, -torch.inf).logsumexp(1)
        self.note(depth, found, inside - exact_logits.logsumexp(1), age)

    def note(self, depth: int, found: Tensor, log_kept: Tensor, age: tuple[float, int]) -> None:
        """Note which of the exact best `depth` classes were computed, the log of the mass that was, and the age."""
        kept = log_kept.exp()
        self.readings[f"recall_at_{depth}"] = float(found.float().mean())
        self.readings["missed_mass"] = float((1 - kept).clamp(min=0).mean())
        self.readings |= {"table_age_mean": age[0], "table_age_max": float(age[1])}

    def report(self) -> dict[str, float]:
        """Return the latest readings by name."""
        return dict(self.readings)


def usual_meter(classes: int, every: int | None, *, heeded: bool) -> ApproximationMeter:
    """Return a meter that reads every so many steps; None: so many that it costs the same small part of any step.

    heeded: whether anything goes by its readings; else they are fewer, and none early, when each is dear.
    """
    if every is None:
        every = max(SHORTEST_INTERVAL, classes // CLASSES_PER_STEP) * (1 if heeded else UNHEEDED)
    return ApproximationMeter(every, early=heeded)


def likeliest_others(exact_logits: Tensor, positives: Tensor, depth: int, logistic: bool) -> tuple[Tensor, Tensor]:
    """Return the probabilities of the best few classes that are nobody's positives, and which these are.

    exact_logits (examples, classes) of the first examples; positives (batch, n), -1 where absent; depth: how many.
    """
    probabilities = exact_logits.sigmoid() if logistic else exact_logits.softmax(1)
    others = probabilities.index_fill(1, positives[positives >= 0], 0)
    best = others.topk(min(depth, others.shape[1]), 1)
    return best.values, best.indices


def sampling_noise(likeliest: Tensor, chance: Tensor) -> float:
    """Return how much of a step is noise where nothing is mined: 0 none, near 1 nothing else.

    A class of probability p that is there by chance π, and then counts 1 / π times, adds p² (1 / π - 1) to the relative
    variance of the normaliser; v, the sum over the best few classes that are nobody's positives, becomes v / (1 + v),
    so that a few hopeless examples do not decide for all.

    likeliest, chance: (examples, depth), p and π of those classes.
    """
    variance = (likeliest.double() ** 2 * (1 / chance.clamp_min(1e-12) - 1)).sum(1)
    return float((variance / (1 + variance)).mean())
