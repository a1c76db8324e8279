"""Logits: differentiable products of examples with chosen rows; gradients exist for the touched rows only.

float32 on the CPU runs in the native core, on rows of float32 or bfloat16. Anything else (float64 for gradcheck) runs
as a few plain torch operations with the same result: they are the specification.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyclass._backend import core
from manyclass.torch.row_arrays import array, computed_in, computes_natively
from manyclass.torch.row_gradients import RowReceiver, RowUpdate, asked_for, rows_wanted, sparse_rows

SLICE_ELEMENTS = 2**20  # of rows that are widened at a time where all classes are computed: they stay in the cache


class ClassLayer(NamedTuple):
    """The output layer as one step sees it: logit = (x·row + bias) / temperature, of unit rows for cosine logits.

    update: what moves rows inside backward; None: they get sparse gradients.
    removed: (n,) classes whose logit is -inf where all classes are computed; None: there are none.
    """

    weight: Tensor
    bias: Tensor | None
    update: RowUpdate | None = None
    unit_rows: bool = False
    temperature: float = 1.0
    removed: Tensor | None = None

    def own_logits(self, x: Tensor, ids: Tensor) -> Tensor:
        """Return logits of each example's own classes (examples, n); -inf where a class is negative."""
        if not self.unit_rows:
            return pair_logits(x, ids, self.weight, self.bias, self.update) / self.temperature
        distinct, places = torch.unique(ids, return_inverse=True)
        if len(distinct) and distinct[0] < 0:
            distinct, places = distinct[1:], places - 1
        rows, bias = self.gathered(distinct, x.dtype)
        return pair_logits(x, places, rows, bias) / self.temperature

    @torch.no_grad()
    def all_logits(self, x: Tensor) -> Tensor:
        """Return logits of all classes, (examples, classes), without gradients and without a wider copy of all rows."""
        as_they_are = self.weight.dtype == x.dtype and not self.unit_rows
        step = max(1, len(self.weight) if as_they_are else SLICE_ELEMENTS // self.weight.shape[1])
        logits = x.new_empty(len(x), len(self.weight))
        for begin in range(0, len(self.weight), step):
            end = begin + step
            bias = None if self.bias is None else self.bias[begin:end]
            part = self._replace(weight=self.weight[begin:end], bias=bias, update=None, removed=None)
            inputs, weight, bias = part.plain(x)
            logits[:, begin:end] = F.linear(inputs, weight.to(x.dtype), bias)
        return logits if self.removed is None else logits.index_fill_(1, self.removed, -torch.inf)

    def plain(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return inputs, weight and bias whose plain product gives the logits of all classes.

        Rows of 16 bits stay as they are: who multiplies them (all_classes.py) widens them piece by piece.
        """
        weight, bias = self.weight, self.bias
        if self.update is not None:
            everything = torch.arange(len(weight))
            weight = gather_rows(weight, everything, self.update)
            bias = None if bias is None else gather_rows(bias, everything, self.update)
        if self.removed is not None:
            bias = weight.new_zeros(len(weight)) if bias is None else bias
            bias = bias.index_fill(0, self.removed, -torch.inf)
        weight = F.normalize(weight.to(x.dtype)) if self.unit_rows else weight
        return x / self.temperature, weight, None if bias is None else bias.to(x.dtype) / self.temperature

    def gathered(self, ids: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Return copies of the rows, of length one for cosine logits, and biases of distinct, ascending classes."""
        rows = gather_rows(self.weight, ids, self.update, dtype)
        bias = None if self.bias is None else gather_rows(self.bias, ids, self.update, dtype)
        return (F.normalize(rows) if self.unit_rows else rows), bias


def pair_logits(
    input: Tensor, ids: Tensor, weight: Tensor, bias: Tensor | None = None, update: RowUpdate | None = None
) -> Tensor:
    """Return weight[ids]·input + bias[ids]: the logits of each example's own rows.

    input (examples, features), ids (examples, width) with -1 where absent → (examples, width), -inf where absent.
    Gradients: dense for input; sparse and coalesced for weight and bias, or none where `update` takes them.
    A weight that is no parameter (gathered rows, `functional_call`) gets a dense gradient.
    """
    if computes_natively(input, weight, bias):
        logits: Tensor = _PairLogits.apply(input, ids, weight, bias, update)
        return logits
    rows = _EmbedRows.apply(weight, ids, update, input.dtype)
    logits = torch.einsum("ekd,ed->ek", rows, input)
    if bias is not None:
        logits = logits + _EmbedRows.apply(bias, ids, update, input.dtype)
    return logits.masked_fill(ids < 0, -torch.inf)


def gather_rows(
    weight: Tensor, ids: Tensor, update: RowUpdate | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return weight[ids] for distinct, ascending ids (n,); the gradient is sparse, or goes to `update`.

    dtype: of what comes back, None: that of the weight. `update` gets the gradient in it, unrounded.
    """
    rows: Tensor = _GatherRows.apply(weight, ids, update, dtype or weight.dtype)
    return rows


class _PairLogits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, ids: Tensor, weight: Tensor, bias: Tensor | None, update: RowUpdate | None
    ) -> Tensor:
        pairs = core().ChosenRows(array(ids))
        logits = np.empty(tuple(ids.shape), np.float32)
        threads = torch.get_num_threads()
        pairs.products(array(weight), None if bias is None else array(bias), array(input), logits, threads)
        ctx.pairs, ctx.update, ctx.bias = pairs, update, bias
        ctx.dense = not weight.is_leaf or not (bias is None or bias.is_leaf)
        if update is None:
            ctx.save_for_backward(input, weight)
        else:  # the rows may have moved by the time of a second backward, and that is meant
            ctx.save_for_backward(input)
            ctx.weight = weight
        return torch.from_numpy(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        if ctx.update is not None:
            ctx.update.check_numbers()
        input, weight = ctx.saved_tensors if ctx.update is None else (*ctx.saved_tensors, ctx.weight)
        values = array(gradient)
        input_gradient = None
        if ctx.needs_input_grad[0]:
            into = np.empty(tuple(input.shape), np.float32)
            ctx.pairs.input_gradients(values, array(weight), into, torch.get_num_threads())
            input_gradient = torch.from_numpy(into)
        receiver = RowReceiver(weight, ctx.bias, ctx.update, ctx.dense)
        wanted = rows_wanted(ctx, 2, 2, ctx.update)
        ids = torch.from_numpy(ctx.pairs.rows)
        of_rows = receiver.receive(ctx.pairs, ids, values, array(input), wanted)
        if ctx.dense and len(ids) < len(weight):
            of_weight, of_bias = (None if part is None else _spread(part, ids, len(weight)) for part in of_rows)
            of_rows = of_weight, of_bias
        return input_gradient, None, *of_rows, None


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, update: RowUpdate | None, dtype: torch.dtype) -> Tensor:
        ctx.weight, ctx.ids, ctx.update = weight, ids, update
        return weight.detach().index_select(0, ids).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        if ctx.update is not None:
            if asked_for(ctx, 0):
                ctx.update.update_rows(ctx.weight, ctx.ids, _accepted(gradient, ctx.weight).contiguous())
            return None, None, None, None
        return sparse_rows(ctx.ids, gradient.to(ctx.weight.dtype).contiguous(), ctx.weight), None, None, None


class _EmbedRows(torch.autograd.Function):
    """weight[ids] for ids of any shape that may repeat or be absent; updates see each distinct one once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, update: RowUpdate | None, dtype: torch.dtype) -> Tensor:
        ctx.weight, ctx.update, ctx.ids, ctx.dense = weight, update, ids, not weight.is_leaf
        return weight.detach()[ids.clamp(min=0)].to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        there = ctx.ids >= 0
        distinct, places = torch.unique(ctx.ids[there], return_inverse=True)
        summed = gradient.new_zeros((len(distinct), *ctx.weight.shape[1:]))
        summed.index_add_(0, places, gradient[there])
        if ctx.update is not None:
            if asked_for(ctx, 0):
                ctx.update.update_rows(ctx.weight, distinct, _accepted(summed, ctx.weight))
            return None, None, None, None
        summed = summed.to(ctx.weight.dtype)
        if ctx.dense:
            return _spread(summed, distinct, len(ctx.weight)), None, None, None
        return sparse_rows(distinct, summed, ctx.weight), None, None, None


def _spread(rows: Tensor, ids: Tensor, count: int) -> Tensor:
    """Return a dense gradient of so many rows: these at ids, zeros elsewhere."""
    return rows.new_zeros((count, *rows.shape[1:])).index_copy_(0, ids, rows)


def _accepted(gradient: Tensor, weight: Tensor) -> Tensor:
    """Return a gradient in the type that moves rows of this weight: a float64 one may come to float32 rows."""
    return gradient.to(computed_in(weight.dtype))
