"""The random tail and the batch's own targets as one sample of all classes.

The targets of a batch are classes drawn by how often they occur, and their rows are computed anyway. Together with the
uniform draws of the tail, a class is among those of a step with probability

    π = 1 − (1 − share among the targets)^(targets of the other examples) · (1 − 1 / classes)^draws,

and, when it is, stands for 1 / π classes (Horvitz and Thompson, 1952): a frequent one for itself, a rare one for all
that are like it. In the mean that is the sum over all classes, with far less spread than the tail has alone where
classes are unequal, and at no cost where they are equal. Shares are those among the last targets, drawn together as far
as they differ by no more than chance (see `_chances`): a class that was met once where others were met three times
would otherwise stand for thrice as many, and the sum be too large. What is not met yet has the probability that targets
lately were new (Good, 1953), divided evenly.

Batches must be drawn at random for that. Where the same targets meet in a batch much more often than by chance, as in
running text, targets stand for themselves alone, and the tail for all the rest.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from manyclass._backend import core
from manyclass._reference.step_classes import Chances
from manyclass._validation import Ids
from manyclass.errors import FileError, InputError
from manyclass.torch.class_sampler import ClassSampler, already_there
from manyclass.torch.step_classes import StepClasses, shared_classes
from manyclass.torch.target_counts import FOR_DRAWS, TargetCounts

PER_CLASS = 16  # targets remembered for each class, at most FOR_DRAWS in all
RATE = 0.02  # of a batch in running means
KNOWN_WELL = 1 << 14  # targets after which their shares tell what is chance
BY_CHANCE = 3.0  # times as many repetitions as expected; more is no chance
MOST_ALIKE = 1_000.0  # times that each class may count as met beforehand: of classes that are all alike
RARE = 0.02  # repetitions per target that do no harm, however few were expected

Doubles = npt.NDArray[np.float64]


class TailAndTargets:
    """Chooses the classes of a step, and counts targets for it. num_classes: ids that there are."""

    def __init__(self, num_classes: int) -> None:
        self.counts = TargetCounts(num_classes, min(FOR_DRAWS, PER_CLASS * num_classes))
        self.batches = 0  # counted: the first ones make up the means, which then follow slowly
        self.new_share = 1.0  # running mean: of the targets, those that none of the remembered ones equals
        self.same_share = 0.0  # running mean: of the remembered targets, those that equal a new one
        self.repeated, self.expected = 0.0, 0.0  # running means: pairs of equal targets per target, found and by chance

    @property
    def at_random(self) -> bool:
        """Whether batches look drawn at random."""
        return self.repeated <= BY_CHANCE * self.expected + RARE

    def classes(self, hard: Tensor, positives: Tensor, tail: int, sampler: ClassSampler) -> StepClasses:
        """Return the classes of a step, and count its targets.

        hard: ids of any shape, -1 where absent; each stands for itself. positives: (examples, n), -1 where absent.
        tail: uniform draws.
        """
        if self.at_random:
            found = self._sampled(hard.numpy().reshape(-1), positives.numpy(), tail, sampler)
        else:
            found = shared_classes(hard, positives, tail=tail, sampler=sampler)
        self._count(positives)
        return found

    def _sampled(self, hard: Ids, positives: Ids, tail: int, sampler: ClassSampler) -> StepClasses:
        drawn = sampler.draw_ids(tail).numpy()
        chances = self._chances(int(np.count_nonzero(positives >= 0)), len(positives), tail, sampler.classes_left)
        counts = self.counts.counts.numpy()
        ids, log_weights = core().sampled_classes(positives.reshape(-1), drawn, counts, chances)
        if len(hard):
            members, _ = core().counted_ids(hard, hard[:0])
            log_weights[already_there(torch.from_numpy(members)[None], torch.from_numpy(ids))[0].numpy()] = 0.0
            ids, log_weights = core().merged_classes(members, 0.0, ids, log_weights)
        return StepClasses(torch.from_numpy(ids), torch.from_numpy(log_weights))

    def _chances(self, targets: int, examples: int, tail: int, classes_left: int) -> Chances:
        """Return what the chance of a class follows from, in a step with so many targets.

        The counts are a sample: shares that vary from class to class like a gamma distribution of shape a are in the
        mean (times met + a) / (targets + a · classes). Two targets are then equal with probability
        (1 + 1 / a) / classes, and how often they are tells a: near zero where few classes are met all the time, so
        that counts say it all, and large where classes are alike and differ by chance.
        """
        alike = 1 / max(classes_left * self.same_share - 1, 1 / MOST_ALIKE)
        others = targets * (examples - 1) / examples
        return Chances(self.counts.known_here, alike, self.new_share, classes_left, others, tail)

    def chance(self, ids: Ids, targets: int, examples: int, tail: int, classes_left: int) -> Doubles:
        """Return π: how likely each class is among the draws, or among the targets of the other examples."""
        return self._chances(targets, examples, tail, classes_left).of_classes(self.counts.counts.numpy()[ids])

    def shares(self, ids: Ids, classes_left: int) -> Doubles:
        """Return how likely the next target is each of these classes, of so many that are not removed."""
        return self._chances(0, 1, 0, classes_left).shares(self.counts.counts.numpy()[ids])

    def _count(self, positives: Tensor) -> None:
        known, before = self.counts.known_here, self.counts.targets
        met, unmet, pairs = self.counts.add(positives)
        given = min(self.counts.targets - before, self.counts.remembered)
        if not given:
            return
        same = met / given / max(1, known)
        self.batches += 1
        rate = max(RATE, 1 / self.batches)
        if known >= KNOWN_WELL:
            self.repeated += RATE * (pairs / given - self.repeated)
            self.expected += RATE * (same * (given - 1) - self.expected)
        self.same_share += rate * (same - self.same_share)
        self.new_share += rate * (unmet / given - self.new_share)

    def settings(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, as JSON would."""
        means = {name: getattr(self, name) for name in ("new_share", "same_share", "repeated", "expected")}
        counted = {name: getattr(self.counts, name) for name in ("targets", "examples", "remembered")}
        return means | counted | {"batches": self.batches}

    def tensors(self) -> dict[str, Tensor]:
        """Return the targets that are remembered."""
        return {"targets": self.counts.get_extra_state()[: self.counts.known].to(torch.int32)}

    def restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        """Take over what `tensors` and `settings` gave."""
        kept, targets, remembered = tensors["targets"].long(), settings["targets"], settings["remembered"]
        if len(kept) != min(targets, remembered):
            raise FileError(f"{len(kept)} targets are more than a head of this size keeps; was it saved by another?")
        # As many as the saved head kept, which may have had other classes when it was made.
        counts = TargetCounts(self.counts.num_classes, remembered)
        unused = torch.full((remembered - len(kept),), -1)
        try:
            counts.set_extra_state(torch.cat([kept, unused, torch.tensor([targets, settings["examples"]])]))
        except InputError as error:
            raise FileError(str(error)) from error
        self.counts, self.batches = counts, int(settings.get("batches", round(1 / RATE)))
        self.new_share, self.repeated = float(settings["new_share"]), float(settings["repeated"])
        self.expected, self.same_share = float(settings["expected"]), float(settings.get("same_share", 0.0))
