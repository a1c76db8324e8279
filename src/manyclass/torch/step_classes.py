"""Which classes a training step computes, and their logits: shared by the batch, or each example's own (paper)."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass.torch.row_products import array, gather_rows, pair_logits

if TYPE_CHECKING:
    from manyclass.torch.candidate_softmax import CandidateSoftmax

RANKS_PER_PLACE = 2  # how many ranks of all examples are looked at to fill the places of the shared set


class Chosen(NamedTuple):
    """Logits of chosen classes; the first three are (examples, width)."""

    classes: Tensor  # ids, -1 where absent
    values: Tensor  # logits, -inf where absent
    log_weights: Tensor  # log of how many classes each one stands for: 0, or more for samples of the tail
    positives: Tensor  # logits of the positives, in their order; arbitrary where there is none


def shared_logits(head: "CandidateSoftmax", x: Tensor, positives: Tensor) -> Chosen:
    """Return logits of one set of classes for all examples: their best candidates, all positives, the tail."""
    ids = _shared_classes(head, x, positives)
    tail, times = _draw_outside(ids, head.num_classes, head.tail, head.draws.generator).unique(return_counts=True)
    classes, order = torch.cat([ids, tail]).sort()
    stands_for = times.double() * ((head.num_classes - len(ids)) / max(1, head.tail))
    log_weights = torch.cat([stands_for.new_ones(len(ids)), stands_for]).log().to(x.dtype)[order]
    rows, bias = _gathered(head, classes, x.dtype)
    values = x @ rows.T if bias is None else torch.addmm(bias, x, rows.T)
    values = values / head.temperature
    places = torch.searchsorted(classes, positives.clamp(min=0)).clamp(max=len(classes) - 1)
    return Chosen(classes.expand(len(x), -1), values, log_weights.expand(len(x), -1), values.gather(1, places))


def own_logits(head: "CandidateSoftmax", x: Tensor, positives: Tensor, candidates: Tensor) -> Chosen:
    """Return logits of each example's own candidates and positives, and of a tail that all share."""
    candidates = candidates.masked_fill((candidates[:, :, None] == positives[:, None, :]).any(2), -1)
    classes = torch.cat([positives, candidates], 1)
    log_weights = x.new_zeros(classes.shape)
    if head.tail:  # also with as many places as classes: tables may leave places empty
        tail, tail_weights = sampled_outside(head, classes, head.tail)
        classes = torch.cat([classes, tail], 1)
        log_weights = torch.cat([log_weights, tail_weights.to(x.dtype).expand(len(x), -1)], 1)
    values = logits_of(head, x, classes)
    return Chosen(classes, values, log_weights, values[:, : positives.shape[1]])


def logits_of(head: "CandidateSoftmax", x: Tensor, classes: Tensor) -> Tensor:
    """Return logits of classes (examples, width); -inf where a class is negative."""
    if not head.normalize:
        return pair_logits(x, classes, head.weight, head.bias, head._update) / head.temperature
    distinct, places = torch.unique(classes, return_inverse=True)
    if len(distinct) and distinct[0] < 0:
        distinct, places = distinct[1:], places - 1
    rows, bias = _gathered(head, distinct, x.dtype)
    return pair_logits(x, places, rows, bias) / head.temperature


def sampled_outside(head: "CandidateSoftmax", classes: Tensor, samples: int) -> tuple[Tensor, Tensor]:
    """Return classes drawn from all, for all examples, and log weights (n,).

    classes (examples, width) → (examples, n), -1 where an example has the class already: what is left, weighted, is an
    unbiased sample of what that example lacks.
    """
    drawn = head.draws.draw(samples)
    own = classes.sort(1).values
    wanted = drawn.classes.expand(len(own), -1).contiguous()
    places = torch.searchsorted(own, wanted).clamp(max=own.shape[1] - 1)
    return wanted.masked_fill(own.gather(1, places) == wanted, -1), drawn.log_weights


def _gathered(head: "CandidateSoftmax", classes: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    rows = gather_rows(head.weight, classes, head._update).to(dtype)
    bias = None if head.bias is None else gather_rows(head.bias, classes, head._update).to(dtype)
    return (F.normalize(rows) if head.normalize else rows), bias


def _shared_classes(head: "CandidateSoftmax", x: Tensor, positives: Tensor) -> Tensor:
    """Return the batch's classes, ascending: all positives, and candidates by rank, best of every example first."""
    ranks = min(head.candidates, max(1, -(-RANKS_PER_PLACE * head.shared_limit // len(x))))
    best = head.shortlist(x, ranks)
    if best.shape[1] > ranks and head.shared_limit < head.num_classes:
        best = _all_by_rank(head, x, ranks)  # an index of few classes gives all of them, in no order
    by_rank = array(best).T.reshape(-1)
    distinct, first = np.unique(by_rank, return_index=True)
    found = by_rank[np.sort(first[distinct >= 0])[: head.shared_limit]]
    return torch.from_numpy(np.union1d(found, array(positives[positives >= 0])))


@torch.no_grad()
def _all_by_rank(head: "CandidateSoftmax", x: Tensor, ranks: int) -> Tensor:
    return F.linear(*head._all_classes(x)).sort(dim=1, descending=True, stable=True).indices[:, :ranks]


def _draw_outside(members: Tensor, classes: int, samples: int, generator: torch.Generator) -> Tensor:
    """Return `samples` draws, with replacement, from the classes that are not members (distinct, ascending)."""
    outside = classes - len(members)
    if outside == 0 or samples == 0:
        return members.new_empty(0)
    drawn = torch.randint(outside, (samples,), generator=generator)
    before = members - torch.arange(len(members))  # how many outsiders come before each member
    return drawn + torch.searchsorted(before, drawn, right=True)
