"""The loss of a batch over classes that all its examples share, with gradients for the touched rows only.

float32 on the CPU, with rows of float32 or bfloat16, runs as one pass of the native core (cpp/shared_step.h has the
formulas). Anything else (float64 for gradcheck, second derivatives) runs as plain torch operations with the same
result: they are the specification.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass._backend import core
from manyclass.errors import ConfigError
from manyclass.torch.class_targets import Targets
from manyclass.torch.row_arrays import array, computes_natively
from manyclass.torch.row_gradients import RowReceiver, rows_wanted
from manyclass.torch.row_products import ClassLayer
from manyclass.torch.step_classes import StepClasses


class SharedLosses(NamedTuple):
    """What a step gives: `losses` (examples,), differentiable, and two that come for free.

    pull: (classes,), how far the step pulls each class: its probabilities, and 1 for each positive.
    tail_variance: (examples,), the sum of squared probabilities of the classes that stand for several.
    """

    losses: Tensor
    pull: Tensor
    tail_variance: Tensor


def shared_losses(
    layer: ClassLayer, x: Tensor, classes: StepClasses, targets: Targets, *, logistic: bool = False
) -> SharedLosses:
    """Return the losses of examples x (examples, features) over shared classes.

    A class that is one of an example's positives counts once in its normaliser, any other e^log_weight times.
    """
    weight, bias, ids, update, dense = layer.weight, layer.bias, classes.ids, layer.update, False
    native = computes_natively(x, weight, bias)
    if layer.unit_rows or not native:
        weight, bias = layer.gathered(ids, x.dtype)
        update, dense = None, True
    scale = 1 / layer.temperature
    if not native:
        return _plain_losses(x, weight, bias, scale, classes, targets, logistic)
    follow = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    task = _Task(classes, targets, scale, logistic, RowReceiver(weight, bias, update, dense), follow)
    return SharedLosses(*_SharedLosses.apply(x, weight, bias, task))


class _Task(NamedTuple):
    """What the native pass needs beside the tensors that it differentiates."""

    classes: StepClasses
    targets: Targets
    scale: float
    logistic: bool
    receiver: RowReceiver
    gradients_follow: bool


class _SharedLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, task: _Task) -> tuple[Tensor, ...]:
        classes, targets = task.classes, task.targets
        rows = torch.arange(len(classes.ids)) if task.receiver.dense else classes.ids
        positives = _places(classes.ids, targets.positives) if task.receiver.dense else targets.positives
        step = core().SharedStep(array(rows), array(positives))
        losses, tail_variance = np.empty(len(x), np.float32), np.empty(len(x), np.float32)
        pull = np.empty(len(rows), np.float32)
        step.losses(
            array(weight),
            None if bias is None else array(bias),
            array(x),
            task.scale,
            array(classes.log_weights.float()),
            None if targets.spread is None else array(targets.spread.float()),
            array(targets.shares.float()),
            task.logistic,
            task.gradients_follow,
            losses,
            pull,
            tail_variance,
            torch.get_num_threads(),
        )
        found = torch.from_numpy(losses), torch.from_numpy(pull), torch.from_numpy(tail_variance)
        ctx.mark_non_differentiable(*found[1:])
        if task.gradients_follow:
            ctx.step, ctx.rows, ctx.task = step, rows, task
            ctx.save_for_backward(x)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            if ctx.task.receiver.update is not None:
                raise ConfigError(
                    "rows that move in backward have no second derivatives, which create_graph=True asks for; use "
                    "row_update='gradient'"
                )
            return _differentiable_gradients(ctx, x, gradients[0])
        of_losses = array(gradients[0])
        of_input = None
        if ctx.needs_input_grad[0]:
            into = np.empty(tuple(x.shape), np.float32)
            ctx.step.input_gradients(of_losses, into, torch.get_num_threads())
            of_input = torch.from_numpy(into)
        wanted = rows_wanted(ctx, 1, 1, ctx.task.receiver.update)
        return of_input, *ctx.task.receiver.receive(ctx.step, ctx.rows, of_losses, array(x), wanted), None


def _differentiable_gradients(ctx: Any, x: Tensor, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients by plain operations, which autograd can differentiate again."""
    task = ctx.task
    weight, bias, _, dense = task.receiver
    layer = ClassLayer(weight, bias)
    rows, of_rows = (weight, bias) if dense else layer.gathered(task.classes.ids, x.dtype)
    losses = _plain_losses(x, rows, of_rows, task.scale, task.classes, task.targets, task.logistic).losses
    inputs = [
        part
        for part, wanted in zip((x, weight, bias), ctx.needs_input_grad, strict=False)
        if wanted and part is not None
    ]
    found = iter(torch.autograd.grad(losses, inputs, gradient, create_graph=True))
    return tuple(next(found) if wanted else None for wanted in ctx.needs_input_grad)


def _places(ids: Tensor, positives: Tensor) -> Tensor:
    """Return in which columns the positives are, -1 where there is none."""
    return torch.searchsorted(ids, positives.clamp(min=0)).masked_fill(positives < 0, -1)


class LossTerms(NamedTuple):
    """What a loss is summed up from, (examples, classes) each; all but the logits without gradients.

    log_weights: as classes have them, 0 for an example's own positives. wanted: the target of each class.
    own: which classes are positives of the example.
    """

    logits: Tensor
    log_weights: Tensor
    wanted: Tensor
    own: Tensor


def loss_terms(logits: Tensor, classes: StepClasses, targets: Targets) -> LossTerms:
    """Return the terms of the losses over shared classes."""
    count = logits.shape[1]
    places = _places(classes.ids, targets.positives)
    places = torch.where(places < 0, count, places)  # absent: a column that is cut off
    empty = logits.new_zeros(len(logits), count + 1)
    own = empty.bool().scatter(1, places, True)[:, :count]
    wanted = empty.scatter(1, places, targets.shares.to(logits.dtype))[:, :count]
    if targets.spread is not None:
        wanted = torch.where(own, wanted, targets.spread.to(logits.dtype))
    return LossTerms(logits, torch.where(own, 0, classes.log_weights.to(logits.dtype)), wanted, own)


def _plain_losses(
    x: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    scale: float,
    classes: StepClasses,
    targets: Targets,
    logistic: bool,
) -> SharedLosses:
    logits = (x @ rows.T if bias is None else torch.addmm(bias, x, rows.T)) * scale
    logits, log_weights, wanted, own = loss_terms(logits, classes, targets)
    of_targets = (wanted * logits).sum(1)
    if logistic:
        losses = (F.softplus(logits) * log_weights.exp()).sum(1) - of_targets
        shares = logits.detach().sigmoid() * log_weights.exp()
    else:
        losses = wanted.sum(1) * (logits + log_weights).logsumexp(1) - of_targets
        shares = (logits.detach() + log_weights).softmax(1)
    tail = torch.where(log_weights > 0, shares, 0).square().sum(1)
    return SharedLosses(losses, shares.sum(0) + own.sum(0), tail)
