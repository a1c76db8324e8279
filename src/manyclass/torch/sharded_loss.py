"""The loss over classes that are spread over ranks: local logits, one normaliser for all, gradients back to the inputs.

Every rank has the inputs of all examples and the logits of its own classes. A maximum and three sums per example are
all that is exchanged for the loss; in backward the ranks' parts of the inputs' gradients are.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyclass.torch.class_shards import ClassShards
from manyclass.torch.class_targets import Targets
from manyclass.torch.ranks import Ranks
from manyclass.torch.row_products import ClassLayer
from manyclass.torch.shared_loss import LossTerms, loss_terms
from manyclass.torch.step_classes import StepClasses

SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX


class GatheredInputs(torch.autograd.Function):
    """Examples of all ranks, (all examples, features). Gradients are summed over ranks, times `factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks, counts: list[int], factor: float) -> Tensor:
        """Return the inputs of all ranks, one rank's after the other's."""
        ctx.ranks, ctx.counts, ctx.factor = ranks, counts, factor
        return ranks.gather_rows(x, counts, "gathering inputs")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of this rank's inputs: what all ranks' classes have for them."""
        parts = ctx.ranks.to_owners(gradients[0], ctx.counts, "gradients of inputs")
        return parts.sum(0) * ctx.factor, None, None, None


class _SummedOverRanks(torch.autograd.Function):
    """The sum over ranks of tensors that all of them then use alike: each one's gradient is the sum's own."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: Ranks) -> Tensor:
        return ranks.all_reduce(part, SUM, "the normaliser")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0], None


class OwnExamples(torch.autograd.Function):
    """Of the losses of all examples, those of this rank's; in backward every rank gets all their gradients."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, ranks: Ranks, counts: list[int]) -> Tensor:
        """Return the part of this rank."""
        ctx.ranks, ctx.counts = ranks, counts
        begin = sum(counts[: ranks.rank])
        return losses[begin : begin + counts[ranks.rank]].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all ranks' losses."""
        return ctx.ranks.gather_rows(gradients[0], ctx.counts, "gradients of losses"), None, None


def shared_terms(
    layer: ClassLayer, x: Tensor, shards: ClassShards, classes: StepClasses, targets: Targets
) -> tuple[LossTerms, Tensor]:
    """Return the terms of this rank's part of shared classes, and their rows here, ascending."""
    here = shards.here(classes.ids)
    rows = classes.ids[here] // shards.ranks
    weight, bias = layer.gathered(rows, x.dtype)
    local = StepClasses(rows, classes.log_weights[here])
    return loss_terms(_logits(x, weight, bias, layer.temperature), local, _local(targets, shards, here)), rows


def own_terms(
    layer: ClassLayer, x: Tensor, shards: ClassShards, classes: StepClasses, targets: Targets
) -> tuple[LossTerms, StepClasses]:
    """Return the terms of this rank's part of each example's own classes, and these with rows for ids."""
    rows = shards.rows_for(classes.ids)
    logits = layer.own_logits(x, rows)
    width = targets.positives.shape[1]
    own = torch.zeros_like(rows, dtype=torch.bool)
    own[:, :width] = rows[:, :width] >= 0
    wanted = torch.zeros_like(logits)
    wanted[:, :width] = targets.shares.to(x.dtype)
    if targets.spread is not None:
        wanted[:, width:] = targets.spread[:, width:].to(x.dtype)
    log_weights = classes.log_weights.to(x.dtype).expand_as(logits)
    terms = LossTerms(logits, log_weights, wanted.masked_fill(rows < 0, 0), own)
    return terms, StepClasses(rows, classes.log_weights)


def all_terms(layer: ClassLayer, x: Tensor, shards: ClassShards, targets: Targets) -> LossTerms:
    """Return the terms of all classes of this rank; the rows get dense gradients. x: as the rows see it."""
    inputs, weight, bias = layer.plain(x)
    rows = torch.arange(shards.rows)
    everything = StepClasses(rows, torch.zeros(len(rows), dtype=torch.float64))
    here = shards.here(torch.arange(shards.classes)) if targets.spread is not None else rows
    logits = F.linear(inputs, weight.to(inputs.dtype), bias)
    return loss_terms(logits, everything, _local(targets, shards, here))


def losses_over_ranks(ranks: Ranks, terms: LossTerms, logistic: bool) -> tuple[Tensor, Tensor]:
    """Return the losses of all examples, the same on every rank, and the probabilities of the classes here.

    Softmax: mass·log Σ e^(logit + log_weight) - Σ wanted·logit; logistic: Σ e^log_weight·log(1 + e^logit) - the same.
    """
    logits, log_weights, wanted, _ = terms
    of_targets = (wanted * logits.masked_fill(wanted == 0, 0)).sum(1)  # absent ones have a logit of -inf
    if logistic:
        part = (F.softplus(logits) * log_weights.exp()).sum(1) - of_targets
        summed: Tensor = _SummedOverRanks.apply(part, ranks)
        return summed, logits.detach().sigmoid() * log_weights.exp()
    weighted = logits + log_weights
    largest = weighted.detach().amax(1) if weighted.shape[1] else weighted.new_full((len(weighted),), -torch.inf)
    largest = ranks.all_reduce(largest, MAX, "the largest logit")
    powers = (weighted - largest[:, None]).exp()
    total, of_targets, mass = _SummedOverRanks.apply(torch.stack([powers.sum(1), of_targets, wanted.sum(1)]), ranks)
    return mass * (largest + total.log()) - of_targets, (powers / total[:, None]).detach()


def _logits(x: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    return (x @ weight.T if bias is None else torch.addmm(bias, x, weight.T)) / temperature


def _local(targets: Targets, shards: ClassShards, here: Tensor) -> Targets:
    """Return what this rank's classes are to say. here: which of the shared classes are of this rank."""
    positives = shards.rows_for(targets.positives)
    shares = targets.shares.masked_fill(positives < 0, 0)
    return Targets(positives, shares, None if targets.spread is None else targets.spread[here])
