"""Negatives that cost no draw: the positives of the batch's other examples, corrected for how often each is there.

The correction is that of Yi et al. (2019), "Sampling-bias-corrected neural modeling for large corpus item
recommendations": a logit less the log of how often its class is expected in the batch. Two things differ, for the sake
of an unbiased normaliser: an example's own positives are not corrected, as they are there for certain, and the expected
number is that among the *other* examples.

Counted while training, the expected number comes from (times met before + 1) / (targets before + 1). With n, the times
met before, Poisson of mean m, the mean of 1 / (n + 1) is (1 - e^-m) / m: the weight of a class is in the mean what it
should be times the probability that the class was met before, and never too large in the mean.
"""

import torch
from torch import Tensor

from manyclass._backend import core
from manyclass.torch.class_frequencies import smoothed
from manyclass.torch.class_sampler import Drawn
from manyclass.torch.target_counts import TargetCounts


class InBatch:
    """The classes of a batch as each other's negatives.

    counts: what the head counts while it trains, the batch in question included. frequencies: given instead, (classes,)
    float64.
    """

    def __init__(self, counts: TargetCounts | None, frequencies: Tensor | None = None) -> None:
        self.counts = counts
        self._shares = None if frequencies is None else smoothed(frequencies / frequencies.sum())

    def negatives(self, positives: Tensor) -> Drawn:
        """Return the classes of a batch, positives (examples, n), -1 where absent; none of a batch of one."""
        given = positives.numpy().reshape(-1)
        classes, times = map(torch.from_numpy, core().counted_ids(given, given[:0]))
        examples, targets = len(positives), int(times.sum())
        if examples == 1:
            return Drawn(classes[:0], torch.empty(0, dtype=torch.float64))
        expected = self._share(classes, times, targets) * (targets * (examples - 1) / examples)
        return Drawn(classes, times.double().log() - expected.log())

    def _share(self, classes: Tensor, times: Tensor, targets: int) -> Tensor:
        """Return the share of each class in all targets, float64."""
        if self._shares is not None:
            return self._shares[classes]
        assert self.counts is not None
        before = (self.counts.counts[classes] - times).clamp_min(0).double()
        return (before + 1) / (max(0, self.counts.known - targets) + 1)
