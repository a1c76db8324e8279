"""Predictions from retrieved classes: best classes and log probabilities, normalised as one chooses."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass._topk import TopK
from manyclass.errors import ConfigError
from manyclass.torch import all_classes
from manyclass.torch.class_ids import among, first_places
from manyclass.torch.row_products import ClassLayer

Normalizer = Literal["candidates", "estimated", "exact"]
DrawOutside = Callable[[Tensor], tuple[Tensor, Tensor]]  # classes (examples, n) → others at random, log weights


def checked_normalizer(normalizer: Any) -> Normalizer:
    """Return how log probabilities are normalised, after a check."""
    if normalizer not in get_args(Normalizer):
        raise ConfigError(f"normalizer={normalizer!r} is unknown; choose {', '.join(get_args(Normalizer))}")
    checked: Normalizer = normalizer
    return checked


def topk(
    layer: ClassLayer, x: Tensor, found: Tensor, k: int, logistic: bool, normalizer: Normalizer, outside: DrawOutside
) -> TopK[Tensor]:
    """Return the k best of the classes found (examples, n), -1 where absent; of equal logits the lowest id."""
    classes, logits = ranked(layer, x, found)
    best = logits[:, :k]
    if logistic:
        log_probs = F.logsigmoid(best)
    else:
        log_probs = best - _log_normalizer(layer, x, classes, logits, normalizer, outside)
    return TopK(classes=classes[:, :k], log_probs=log_probs, logits=best)


def ranked(layer: ClassLayer, x: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Return the classes found, best first, of equal ones the lowest id, and their logits."""
    classes = _ascending(found)
    logits, order = layer.own_logits(x, classes).sort(dim=1, descending=True, stable=True)
    return classes.gather(1, order), logits


def log_prob(
    layer: ClassLayer,
    x: Tensor,
    found: Tensor,
    wanted: Tensor | None,
    logistic: bool,
    normalizer: Normalizer,
    outside: DrawOutside,
) -> Tensor:
    """Return log probabilities of all classes, -inf for those not found; or of the wanted ones (examples, n)."""
    if wanted is not None:
        found = found.masked_fill(among(found, wanted), -1)
        first = first_places(wanted)
        repeated = first != torch.arange(wanted.shape[1])
        found = torch.cat([wanted.masked_fill(repeated, -1), found], 1)
    logits = layer.own_logits(x, found)
    if logistic:
        log_probs = F.logsigmoid(logits)
    else:
        log_probs = logits - _log_normalizer(layer, x, found, logits, normalizer, outside)
    if wanted is None:
        classes = len(layer.weight)
        everything = x.new_full((len(x), classes + 1), -torch.inf)  # the last column takes what is absent
        return everything.scatter_(1, found.where(found >= 0, classes), log_probs)[:, :-1]
    if repeated.any():  # a class that is asked for twice counts once, and is answered twice
        return log_probs.gather(1, first)
    return log_probs[:, : wanted.shape[1]]


def _log_normalizer(
    layer: ClassLayer, x: Tensor, classes: Tensor, logits: Tensor, normalizer: Normalizer, outside: DrawOutside
) -> Tensor:
    if normalizer == "exact":
        return all_classes.log_normalizer(*layer.plain(x))[:, None]
    if normalizer == "estimated":
        others, log_weights = outside(classes)
        logits = torch.cat([logits, layer.own_logits(x, others) + log_weights.to(x.dtype)], 1)
    total = logits.logsumexp(1, keepdim=True)
    return total.masked_fill(total.isneginf(), 0)  # nothing found: -inf for every class, not NaN


def _ascending(classes: Tensor) -> Tensor:
    """Return ids in order, absent ones (-1) last."""
    last = torch.iinfo(classes.dtype).max
    ordered = classes.masked_fill(classes < 0, last).sort(1).values
    return ordered.masked_fill(ordered == last, -1)
