"""What every head offers: forward(input, target) → loss, topk, predict, log_prob. Any training loop takes any head.

Longer than our usual file because all heads share these checks of what they are given and of what comes out.
"""

import math
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyclass._topk import TopK
from manyclass._validation import check_count
from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.torch.class_ids import among
from manyclass.torch.class_targets import (
    Targets,
    checked_class_weight,
    checked_smoothing,
    even_targets,
    weighted_targets,
)

Reduction = Literal["mean", "sum", "none"]
Output = Literal["softmax", "logistic"]
ID_TYPES = (torch.int64, torch.int32, torch.int16, torch.uint8)


class OutputHead(nn.Module):
    """Last layer and loss in one module: base class that checks, flattens and reduces.

    input: (..., in_features) floats. target: (...) class ids, or (..., n) padded with -1 for several positives each
    (cross entropy against the uniform distribution over them; a repeated one counts once). Targets equal to
    `ignore_index`, and examples without any positive, do not count.
    """

    class_weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None:
        nn.Module.__init__(self)  # a head may have a second base that is a module
        self.in_features = check_count("in_features", in_features)
        self.num_classes = check_count("num_classes", num_classes)
        if reduction not in get_args(Reduction):
            raise ConfigError(f"reduction={reduction!r} is not one of {', '.join(get_args(Reduction))}; try 'mean'")
        if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
            raise InputTypeError(f"ignore_index={ignore_index!r} is not a whole number; try -100")
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = checked_smoothing(label_smoothing)
        weight = None if class_weight is None else checked_class_weight(class_weight, self.num_classes)
        self.register_buffer("class_weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss. Input and target are checked before anything changes."""
        flat = self._flat(input)
        positives = self._positives(target, input.shape[:-1])
        counted = (positives[:, :1] >= 0).any(1)  # the first one is there if any is
        everything = bool(counted.all())
        if not len(flat) or not (everything or counted.any()):
            nothing = self._nothing(flat)
            return nothing if self.reduction != "none" else flat.new_zeros(input.shape[:-1]) + nothing
        flat, positives = (flat, positives) if everything else (flat[counted], positives[counted])
        self._note_targets(positives)
        with torch.autocast("cpu", enabled=False):  # a loss is summed in full precision
            losses = self._losses(flat, positives)
        check_overflow(flat, losses, summed=True)
        if self.reduction == "mean":
            one_each = self.class_weight is not None and target.shape == input.shape[:-1]
            return self._checked_loss(self._weighted_mean(losses, positives) if one_each else losses.mean())
        if self.reduction == "sum":
            return self._checked_loss(losses.sum())
        if not everything:
            losses = losses.new_zeros(len(counted)).masked_scatter(counted, losses)
        return self._checked_loss(losses.reshape(input.shape[:-1]))

    @torch.no_grad()
    def topk(self, input: Tensor, k: int = 10, *, exclude: Tensor | None = None, **options: Any) -> TopK[Tensor]:
        """Return the k best classes of each input with their log probabilities.

        exclude: class ids (..., n) that are left out, padded with -1: what a user has already seen. Probabilities are
            those of the head, as if nothing were left out.
        """
        k = check_count("k", k)
        if k > self.num_classes:
            raise InputError(f"k={k} is more than there are classes ({self.num_classes}); ask for fewer")
        flat = self._flat(input)
        left_out = None if exclude is None else self._excluded(exclude, input.shape[:-1])
        with torch.autocast("cpu", enabled=False):
            if left_out is None:
                best = self._topk(flat, k, **options)
            else:
                best = without(self._topk(flat, min(self.num_classes, k + left_out.shape[1]), **options), left_out, k)
        check_overflow(flat, best.log_probs)
        return reshaped(best, (*input.shape[:-1], k))

    def _excluded(self, exclude: Tensor, leading: torch.Size) -> Tensor:
        """Return ids to leave out as (examples, n), -1 where there is none."""
        if not isinstance(exclude, Tensor) or exclude.dtype not in ID_TYPES:
            kind = exclude.dtype if isinstance(exclude, Tensor) else type(exclude).__name__
            raise InputTypeError(f"exclude is {kind}; class ids are whole numbers: pass exclude.long()")
        self._check_device("exclude", exclude)
        if not exclude.dim() or exclude.shape[:-1] != leading:
            raise InputError(f"exclude has shape {tuple(exclude.shape)}; expected {(*leading, 'n')}, padded with -1")
        return self._check_ids("exclude", exclude.long(), also=-1).reshape(leading.numel(), exclude.shape[-1])

    @torch.no_grad()
    def predict(self, input: Tensor) -> Tensor:
        """Return the best class of each input, (...)."""
        return self.topk(input, 1).classes[..., 0]

    @torch.no_grad()
    def log_prob(self, input: Tensor, classes: Tensor | None = None, **options: Any) -> Tensor:
        """Return log probabilities of all classes, (..., num_classes), or of the given ones, (..., n)."""
        flat = self._flat(input)
        if classes is not None:
            classes = self._wanted(classes, input)
        with torch.autocast("cpu", enabled=False):
            found = self._log_prob(flat, classes, **options)
        check_overflow(flat, found)
        return found.reshape(*input.shape[:-1], found.shape[-1])

    def _wanted(self, classes: Tensor, input: Tensor) -> Tensor:
        """Return the classes that are asked for as (examples, n), after checks."""
        if not isinstance(classes, Tensor) or classes.dtype not in ID_TYPES:
            kind = classes.dtype if isinstance(classes, Tensor) else type(classes).__name__
            raise InputTypeError(f"classes is {kind}; class ids are whole numbers: pass classes.long()")
        self._check_device("classes", classes)
        if classes.dim() != input.dim() or classes.shape[:-1] != input.shape[:-1]:
            expected = tuple(input.shape[:-1])
            raise InputError(f"classes has shape {tuple(classes.shape)}; expected {(*expected, 'n')}")
        self._check_ids("classes", classes)
        return classes.long().reshape(input.shape[:-1].numel(), classes.shape[-1])

    def _weighted_mean(self, losses: Tensor, positives: Tensor) -> Tensor:
        """Return the sum by that of the targets' weights, as CrossEntropyLoss has it for one class per example."""
        assert self.class_weight is not None
        total = self.class_weight[positives[:, 0]].sum()
        return losses.sum() / total if total > 0 else losses.sum() * 0

    @property
    def _weighs_targets(self) -> bool:
        return bool(self.label_smoothing) or self.class_weight is not None

    def _targets(self, positives: Tensor, ids: Tensor | None = None, log_weights: Tensor | None = None) -> Targets:
        """Return what the examples should say over some classes, which may stand for others; over all without ids."""
        if not self._weighs_targets:
            return even_targets(positives, getattr(self, "output", "softmax") == "logistic")
        removed = self._removed_ids()
        gone = 0 if removed is None else len(removed)
        every = torch.arange(self.num_classes) if ids is None else ids
        smoothing, left = self.label_smoothing, self.num_classes - gone
        targets = weighted_targets(positives, smoothing, self.class_weight, left, every, log_weights)
        if ids is None and targets.spread is not None and removed is not None:
            return targets._replace(spread=targets.spread.index_fill(0, removed, 0))
        return targets

    def _removed_ids(self) -> Tensor | None:
        """Return the classes that are out of use, if there are any."""
        return None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        missing: list[str] = rest[2]
        if f"{prefix}class_weight" in missing:  # a state dict of nn.Linear: the weights of this head stay
            missing.remove(f"{prefix}class_weight")

    # What a head implements. input (examples, in_features), finite; positives (examples, n) padded with -1, at least
    # one per example, none twice.

    def _nothing(self, flat: Tensor) -> Tensor:
        """Return the loss of a batch without positives: 0, through which backward can run."""
        return flat[:0].sum()

    def _note_targets(self, positives: Tensor) -> None:
        """Called with the positives of a batch before its loss; a head may count them."""

    def _checked_loss(self, loss: Tensor) -> Tensor:
        """Return the loss; a head may look at what comes back to it."""
        return loss

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        raise NotImplementedError

    def _topk(self, input: Tensor, k: int) -> TopK[Tensor]:
        raise NotImplementedError

    def _log_prob(self, input: Tensor, classes: Tensor | None) -> Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, num_classes={self.num_classes}"

    def _flat(self, input: Tensor) -> Tensor:
        """Return the input as (examples, in_features), in float32 unless it is float64."""
        if not isinstance(input, Tensor) or not input.is_floating_point():
            kind = input.dtype if isinstance(input, Tensor) else type(input).__name__
            raise InputTypeError(f"input is {kind}; give a tensor of floats, for instance input.float()")
        if input.dim() < 1 or input.shape[-1] != self.in_features:
            raise InputError(f"input has shape {tuple(input.shape)}; expected (..., {self.in_features})")
        self._check_device("input", input)
        self._check_weights()
        flat = input.reshape(-1, self.in_features)
        flat = flat if flat.dtype == torch.float64 else flat.float()
        # One sum is quick, and finite unless something is wrong; or so large that the rows are looked at one by one.
        if not squares_add_up(flat):
            fits = flat.detach().double().norm(dim=1) <= torch.finfo(torch.float32).max  # as an index has it
            if not fits.all():
                at = int((~fits).nonzero()[0])
                raise InputError(f"input[{at}] has a NaN, an infinity or a norm beyond float32; lower the rate?")
        return flat

    def _positives(self, target: Tensor, leading: torch.Size) -> Tensor:
        if not isinstance(target, Tensor) or target.dtype not in ID_TYPES:
            kind = target.dtype if isinstance(target, Tensor) else type(target).__name__
            raise InputTypeError(f"target is {kind}; class ids are whole numbers: pass target.long()")
        self._check_device("target", target)
        target = target.long()
        if target.shape == leading:
            ids = target.reshape(-1, 1)
            if not self._all_are_classes(ids):
                ids = torch.where(ids == self.ignore_index, -1, self._check_ids("target", ids, also=self.ignore_index))
        elif target.dim() and target.shape[:-1] == leading:
            ids = target.reshape(leading.numel(), target.shape[-1])
            if not target.shape[-1]:
                ids = ids.new_full((len(ids), 1), -1)
            ids = torch.where(ids == self.ignore_index, -1, ids)
            ids = self._check_ids("target", ids, also=-1).sort(1, descending=True).values
            repeated = torch.zeros_like(ids, dtype=torch.bool)
            repeated[:, 1:] = ids[:, 1:] == ids[:, :-1]
            ids = ids.masked_fill(repeated, -1)
        else:
            expected = tuple(leading)
            raise InputError(f"target has shape {tuple(target.shape)}; expected {expected} or {(*expected, 'n')}")
        return ids

    def _all_are_classes(self, ids: Tensor) -> bool:
        """Return whether these are class ids, none of them `ignore_index`: in one look, as they mostly are."""
        if not ids.numel() or 0 <= self.ignore_index < self.num_classes:
            return False
        low, high = ids.aminmax()
        return int(low) >= 0 and int(high) < self.num_classes

    def _check_ids(self, name: str, ids: Tensor, also: int | None = None) -> Tensor:
        wrong = ((ids < 0) | (ids >= self.num_classes)) & (ids != also if also is not None else True)
        if wrong.any():
            raise InputError(f"{name} holds {int(ids[wrong][0])}; class ids are from 0 to {self.num_classes - 1}")
        return ids

    def _check_weights(self) -> None:
        weight = self._parameters.get("weight")  # absent where it is parametrized
        device = (next(self.parameters()) if weight is None else weight).device
        if device.type != "cpu":
            way_out = "to_empty(device='cpu') and load or reset_parameters()" if device.type == "meta" else "cpu()"
            raise InputError(f"the head's weight is on {device}; this head computes on the CPU: {way_out}")

    def _check_device(self, name: str, tensor: Tensor) -> None:
        if tensor.device.type != "cpu":
            raise InputError(f"{name} is on {tensor.device}; this head computes on the CPU: pass {name}.cpu()")


def reshaped(best: TopK[Tensor], shape: tuple[int, ...]) -> TopK[Tensor]:
    """Return the same answers in another shape."""
    return TopK(
        classes=best.classes.reshape(shape),
        log_probs=best.log_probs.reshape(shape),
        logits=None if best.logits is None else best.logits.reshape(shape),
    )


def squares_add_up(flat: Tensor) -> bool:
    """Return whether all is finite, and so small that float32 holds the sum of all squares."""
    values = flat.detach().reshape(-1).float()
    return math.isfinite(torch.dot(values, values))


def check_overflow(flat: Tensor, outcome: Tensor, summed: bool = False) -> None:
    """Raise where inputs so large that float32 cannot hold their squares led to logits beyond it.

    summed: of the outcome, the sum is wanted, too.
    """
    if math.isfinite(outcome.detach().sum()):
        return
    if not squares_add_up(flat) and (summed or (outcome.isnan() | outcome.isposinf()).any()):
        raise InputError("input gives logits beyond float32 with these rows; scale either down")


def without(best: TopK[Tensor], left_out: Tensor, k: int) -> TopK[Tensor]:
    """Return the k best that are not left out, -1 and -inf where there are too few."""
    gone = among(best.classes, left_out) & (best.classes >= 0)
    order = gone.int().sort(dim=1, stable=True).indices[:, :k]  # those that stay, best first
    gone = gone.gather(1, order)

    def kept(values: Tensor, fill: float) -> Tensor:
        found = values.gather(1, order).masked_fill(gone, fill)
        return F.pad(found, (0, k - found.shape[1]), value=fill)

    return TopK(
        classes=kept(best.classes, -1),
        log_probs=kept(best.log_probs, -torch.inf),
        logits=None if best.logits is None else kept(best.logits, -torch.inf),
    )


def checked_output(output: Any, label_smoothing: float = 0.0, class_weight: Tensor | None = None) -> Output:
    """Return the kind of output, "softmax" or "logistic", after a check with what belongs to softmax only."""
    if output not in get_args(Output):
        raise ConfigError(f"output={output!r} is unknown; choose 'softmax' or 'logistic'")
    if output == "logistic" and (label_smoothing or class_weight is not None):
        raise ConfigError("label_smoothing and class_weight belong to output='softmax'; leave them out for 'logistic'")
    checked: Output = output
    return checked
