"""Loss and predictions over all classes of a weight matrix, what approximations are compared with.

Predictions work in pieces, so that they never hold more than a fixed number of logits at a time. All of it is computed
in float32, or in float64 where the weight is: 16-bit rows are widened piece by piece, whole only for a gradient.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass._topk import TopK
from manyclass.torch.class_targets import Targets
from manyclass.torch.row_arrays import computed_in

LOGITS_AT_ONCE = 1 << 24
WIDENED_AT_ONCE = 1 << 20  # elements of 16-bit rows: they stay in the cache
EXAMPLES_AT_ONCE = 256


def losses(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    positives: Tensor,
    *,
    logistic: bool = False,
    targets: Targets | None = None,
) -> Tensor:
    """Return each example's loss, (examples,): dense gradients, no matrix of targets.

    input (examples, features); positives (examples, n) distinct ids, -1 where absent, the first one present.
    Softmax: cross entropy against the uniform distribution over the positives, or against `targets` over all classes.
    Logistic: binary cross entropy, summed over all classes.
    """
    input = input.to(computed_in(weight.dtype))
    absent = positives < 0
    if weight.dtype != input.dtype:
        if targets is None and not torch.is_grad_enabled():
            return _losses_by_pieces(input, weight, bias, positives, logistic)
        weight = weight.to(input.dtype)
    bias = None if bias is None else bias.to(input.dtype)
    if not logistic and targets is None and positives.shape[1] == 1:
        return F.linear_cross_entropy(input, weight, positives[:, 0], linear_bias=bias, reduction="none")
    chosen = chosen_logits(input, weight, bias, positives)
    total = chosen.masked_fill(absent, 0).sum(1)
    if logistic:
        return -F.logsigmoid(-F.linear(input, weight, bias)).sum(1) - total
    # The cross entropy of one positive is log(normaliser) - its logit; exchange that logit for the positives' mean.
    first = F.linear_cross_entropy(input, weight, positives[:, 0], linear_bias=bias, reduction="none")
    log_sums = first + chosen[:, 0]
    if targets is None:
        return log_sums - total / (~absent).sum(1)
    shares = targets.shares.to(input.dtype)
    if targets.spread is None:
        return shares.sum(1) * log_sums - (shares * chosen.masked_fill(absent, 0)).sum(1)
    # What is spread goes to all classes, and their logits add up before they are computed.
    spread = targets.spread.to(input.dtype)
    shares = shares - spread[positives.clamp_min(0)].masked_fill(absent, 0)
    everywhere = input @ (spread @ weight)
    if bias is not None:
        everywhere = everywhere + (spread * bias.masked_fill(spread == 0, 0)).sum()
    of_targets = (shares * chosen.masked_fill(absent, 0)).sum(1) + everywhere
    return (shares.sum(1) + spread.sum()) * log_sums - of_targets


def _losses_by_pieces(input: Tensor, weight: Tensor, bias: Tensor | None, positives: Tensor, logistic: bool) -> Tensor:
    """Return the same without gradients, and without a wider copy of all rows."""
    absent = positives < 0
    total = chosen_logits(input, weight, bias, positives).masked_fill(absent, 0).sum(1)
    if logistic:
        return -sum(F.logsigmoid(-logits).sum(1) for _, logits in _pieces(input, weight, bias)) - total
    return log_normalizer(input, weight, bias) - total / (~absent).sum(1)


def chosen_logits(input: Tensor, weight: Tensor, bias: Tensor | None, classes: Tensor) -> Tensor:
    """Return logits (examples, n) of classes (examples, n); -inf where a class is negative."""
    present = classes.clamp_min(0)
    logits = torch.einsum("ed,end->en", input, F.embedding(present, weight).to(input.dtype))
    if bias is not None:
        logits = logits + bias[present].to(input.dtype)
    return logits.masked_fill(classes < 0, -torch.inf)


def topk(input: Tensor, weight: Tensor, bias: Tensor | None, k: int, *, logistic: bool = False) -> TopK[Tensor]:
    """Return the k classes with the largest logits, best first, equal ones by number; -1 where there are too few.

    A class whose logit is -inf does not count as one.
    """
    input = input.to(computed_in(weight.dtype))
    found = [_topk_of_few(few, weight, bias, k, logistic) for few in input.split(EXAMPLES_AT_ONCE)]
    classes, log_probs, logits = (torch.cat(parts) for parts in zip(*found, strict=True))
    return TopK(classes=classes, log_probs=log_probs, logits=logits)


def _topk_of_few(
    input: Tensor, weight: Tensor, bias: Tensor | None, k: int, logistic: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return classes, log probabilities and logits."""
    values = input.new_full((len(input), k), -torch.inf)
    ids = torch.full(values.shape, -1, device=input.device)
    normalizer = input.new_full((len(input),), -torch.inf)
    for begin, logits in _pieces(input, weight, bias):
        new_values, new_ids = _best(logits, k)
        # Stable, and earlier pieces hold lower numbers.
        values, order = torch.cat([values, new_values], 1).sort(stable=True, dim=1, descending=True)
        values, ids = values[:, :k], torch.cat([ids, new_ids + begin], 1).gather(1, order)[:, :k]
        if not logistic:
            normalizer = torch.logaddexp(normalizer, logits.logsumexp(1))
    ids = ids.masked_fill(values.isneginf(), -1)  # a masked class is none of the best
    return ids, F.logsigmoid(values) if logistic else values - normalizer[:, None], values


def _best(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest logits of every row and where they are; of equal ones the first."""
    values, ids = logits.topk(min(k, logits.shape[1]), 1)
    # torch takes any of several equal values: where the last one has equals outside, sort the row.
    tied = (logits >= values[:, -1:]).sum(1) > values.shape[1]
    if tied.any():
        ids[tied] = logits[tied].sort(stable=True, dim=1, descending=True).indices[:, : values.shape[1]]
    ids = ids.sort(1).values
    values, order = logits.gather(1, ids).sort(stable=True, dim=1, descending=True)
    return values, ids.gather(1, order)


def log_prob(
    input: Tensor, weight: Tensor, bias: Tensor | None, classes: Tensor | None, *, logistic: bool = False
) -> Tensor:
    """Return log probabilities of the classes (examples, n), -inf where one is negative; of all classes for None."""
    input = input.to(computed_in(weight.dtype))
    if classes is None:
        logits = torch.cat([part for _, part in _pieces(input, weight, bias)], 1)
        return F.logsigmoid(logits) if logistic else F.log_softmax(logits, 1)
    logits = chosen_logits(input, weight, bias, classes)
    if logistic:
        return F.logsigmoid(logits)
    return logits - log_normalizer(input, weight, bias)[:, None]


def log_normalizer(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return log Σ exp(logit) over all classes, (examples,)."""
    sums = [
        torch.stack([logits.logsumexp(1) for _, logits in _pieces(few, weight, bias)]).logsumexp(0)
        for few in input.split(EXAMPLES_AT_ONCE)
    ]
    return torch.cat(sums)


def _pieces(input: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[int, Tensor]]:
    """Yield (first class, logits of a run of classes)."""
    step = max(1, LOGITS_AT_ONCE // max(1, len(input)))
    if weight.dtype != input.dtype:
        step = min(step, max(1, WIDENED_AT_ONCE // weight.shape[1]))
    for begin in range(0, len(weight), step):
        run = slice(begin, begin + step)
        yield begin, F.linear(input, weight[run].to(input.dtype), None if bias is None else bias[run].to(input.dtype))
