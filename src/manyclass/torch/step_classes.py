"""Which classes a training step computes: shared by the batch, or each example's own (paper); and the random tail."""

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass._backend import core
from manyclass.errors import ConfigError
from manyclass.torch.class_ids import among
from manyclass.torch.class_sampler import ClassSampler, Drawn, already_there
from manyclass.torch.class_targets import Targets


class StepClasses(NamedTuple):
    """The classes that a step computes.

    ids: (n,) ascending, shared by all examples; or (examples, n) of each its own, positives first, -1 where absent.
    log_weights: (n,) float64, log of how many classes each one stands for: 0, or more for samples of the tail. Where it
        is shared, less than 0 for a share of one, -inf for a class that counts only where it is a positive.
    """

    ids: Tensor
    log_weights: Tensor

    @property
    def shared(self) -> bool:
        return self.ids.dim() == 1

    def pulled(self, logits: Tensor, positives: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distinct classes and how far the step pulls each: its probabilities, and 1 for each positive.

        Of each example's own classes; shared ones get it with the loss.
        """
        share = (logits + self.log_weights.to(logits.dtype)).softmax(1)
        distinct, places = torch.unique(self.ids, return_inverse=True)
        pull = share.new_zeros(len(distinct)).index_add_(0, places.reshape(-1), share.reshape(-1))
        if len(distinct) and distinct[0] < 0:
            distinct, pull = distinct[1:], pull[1:]
        of_positives = torch.searchsorted(distinct, positives[positives >= 0])
        return distinct, pull.index_add(0, of_positives, torch.ones(len(of_positives), dtype=pull.dtype))

    def without_tail(self, positives: Tensor) -> Tensor:
        """Return the classes of the first examples that stand for themselves, (examples, n), -1 elsewhere.

        positives: (examples, p), -1 where absent; an example's own always stand for themselves.
        """
        ids = self.ids.expand(len(positives), -1) if self.shared else self.ids[: len(positives)]
        alone = ids.masked_fill(self.log_weights != 0, -1)
        return torch.cat([alone.masked_fill(among(alone, positives), -1), positives], 1)


MOST_KEPT = 32  # losses before a backward


class RecentClasses:
    """The classes of the last steps, for activation checkpointing: a step that is computed again in backward must
    compute what it did, and not draw and re-hash anew."""

    def __init__(self) -> None:
        self._kept: deque[tuple[bytes, StepClasses]] = deque(maxlen=MOST_KEPT)

    def computed_before(self, positives: Tensor) -> StepClasses | None:
        """Return the classes of the step that is computed again; None outside of a backward, where none is.

        Raises ConfigError where a step is computed again of which nothing is known.
        """
        if torch._C._current_graph_task_id() < 0:
            return None
        found = self.again(positives)
        if found is None:
            raise ConfigError(
                "a loss is computed again in backward, and the classes of its first time are gone: activation "
                f"checkpointing of a head wants use_reentrant=False, and a backward after at most {MOST_KEPT} losses"
            )
        return found

    def keep(self, positives: Tensor, classes: StepClasses) -> None:
        """Remember the classes of a step."""
        self._kept.append((positives.numpy().tobytes(), classes))

    def again(self, positives: Tensor) -> StepClasses | None:
        """Return the classes of the newest step with these positives that was not asked for yet, if there is one."""
        wanted = positives.numpy().tobytes()
        for place in reversed(range(len(self._kept))):
            known, classes = self._kept[place]
            if known == wanted:
                del self._kept[place]
                return classes
        return None

    def __deepcopy__(self, memo: object) -> "RecentClasses":
        return RecentClasses()


def shared_classes(
    hard: Tensor, positives: Tensor, *, tail: int, sampler: ClassSampler, targets_for_all: bool = True
) -> StepClasses:
    """Return one set for all examples: all positives, hard classes that were found, and a random tail.

    hard: ids of any shape, -1 where absent. tail: how many random classes stand for all that are not in the set.
    targets_for_all: whether a positive counts for the examples, too, whose positive it is not, and is not drawn.
    """
    given = positives.numpy().reshape(-1)
    known = hard.numpy().reshape(-1)
    members, _ = core().counted_ids(np.concatenate([known, given]) if targets_for_all else known, given[:0])
    found = with_tail(members, tail, sampler)
    return found if targets_for_all else sampled_classes(positives, Drawn(found.ids, found.log_weights))


def with_tail(members: npt.NDArray[np.int64], tail: int, sampler: ClassSampler) -> StepClasses:
    """Return members, distinct and ascending, that stand for themselves, and draws that stand for all others."""
    return _merged(members, 0.0, sampler.draw_outside(torch.from_numpy(members), tail))


def sampled_classes(positives: Tensor, drawn: Drawn) -> StepClasses:
    """Return drawn classes and all positives; those that were not drawn count for their own examples only."""
    return _merged(positives.numpy().reshape(-1), -torch.inf, drawn)


def _merged(given: npt.NDArray[np.int64], log_weight: float, drawn: Drawn) -> StepClasses:
    ids, log_weights = core().merged_classes(given, log_weight, drawn.classes.numpy(), drawn.log_weights.numpy())
    return StepClasses(torch.from_numpy(ids), torch.from_numpy(log_weights))


def own_classes(found: Tensor, positives: Tensor, *, tail: int, sampler: ClassSampler) -> StepClasses:
    """Return for every example its positives and its own candidates (examples, K), and a tail that all share."""
    candidates = found.masked_fill(among(found, positives), -1)
    ids = torch.cat([positives, candidates], 1)
    log_weights = torch.zeros(ids.shape[1], dtype=torch.float64)
    if tail:  # also with as many places as classes: tables may leave places empty
        drawn, drawn_weights = sampled_outside(ids, tail, sampler)
        ids, log_weights = torch.cat([ids, drawn], 1), torch.cat([log_weights, drawn_weights])
    return StepClasses(ids, log_weights)


def own_losses(logits: Tensor, classes: StepClasses, targets: Targets, logistic: bool) -> Tensor:
    """Return the losses over each example's own classes, whose positives come first."""
    log_weights, shares, width = (
        classes.log_weights.to(logits.dtype),
        targets.shares.to(logits.dtype),
        targets[0].shape[1],
    )
    of_targets = (shares * logits[:, :width].masked_fill(targets.positives < 0, 0)).sum(1)
    if logistic:
        return (F.softplus(logits) * log_weights.exp()).sum(1) - of_targets
    mass = shares.sum(1)
    if targets.spread is not None:
        spread = targets.spread[:, width:].to(logits.dtype)
        of_targets = of_targets + (spread * logits[:, width:].masked_fill(classes.ids[:, width:] < 0, 0)).sum(1)
        mass = mass + spread.sum(1)
    return mass * (logits + log_weights).logsumexp(1) - of_targets


def sampled_outside(ids: Tensor, samples: int, sampler: ClassSampler) -> tuple[Tensor, Tensor]:
    """Return classes drawn from all, for all examples, and log weights (n,).

    ids (examples, width) → (examples, n), -1 where an example has the class already: what is left, weighted, is an
    unbiased sample of what that example lacks.
    """
    drawn = sampler.draw(samples)
    others = drawn.classes.expand(len(ids), -1)
    return others.masked_fill(already_there(ids, drawn.classes), -1), drawn.log_weights
