"""Heads whose training touches few rows: weight and bias with sparse gradients, or rows that move inside backward."""

import functools
import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from manyclass.errors import ConfigError, InputError
from manyclass.torch.fused_update import FusedUpdate
from manyclass.torch.head import OutputHead, Reduction
from manyclass.torch.memory_budget import check_memory
from manyclass.torch.row_arrays import computed_in
from manyclass.torch.row_gradients import RowUpdate
from manyclass.torch.row_products import gather_rows

RowUpdateMode = Literal["gradient", "fused", "at_step"]
ROW_STATE = "row_state."  # how a state dict begins the names of what moves the rows
LARGEST_SCALE = 100.0  # by which a loss may be multiplied before backward
MakeOptimizer = Callable[[Iterable[Tensor]], Any]


class SlowThreadsWarning(UserWarning):
    """Threads are set up so that a step takes longer than it need: see the message."""


class RowHead(OutputHead, nn.Embedding):  # type: ignore[misc]  # forward takes a target, too
    """A head with one row, and perhaps a bias, per class: parameters `weight` and `bias`, as nn.Linear has them.

    It is an nn.Embedding with sparse gradients, because that is what DDP looks for.

    num_rows: int, default num_classes. Rows of the weight, where they do not belong to classes.
    bias: bool = True. One number per row.
    row_update: "gradient" (default): weight.grad and bias.grad are sparse; give them to a row optimizer. "fused": the
        rows move inside backward and no .grad appears. "at_step": no .grad either, and the rows move when an optimizer
        that holds them takes its step, by the sum of what came since the last: any optimizer, gradient accumulation
        or trainer serves the rest of the network.
    row_optimizer: for "fused" and "at_step", what makes the rows' own optimizer, e.g. functools.partial(RowSGD,
        lr=0.1); schedulers take `head.row_optimizer`.
    ignore_index: int = -100. Targets with this value do not count.
    reduction: "mean" (default), "sum" or "none", as in torch.
    label_smoothing, class_weight: as in CrossEntropyLoss, where the latter is called `weight`; for heads that offer it.
    device, dtype: of the parameters, as for nn.Linear. With torch.bfloat16 the rows take half the memory, and row
        optimizers round them by chance (row_optimizers.py); the bias stays float32.
    budget: further arguments of `memory_budget`, from a head that takes more memory than its rows.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        num_rows: int | None = None,
        bias: bool = True,
        row_update: RowUpdateMode = "gradient",
        row_optimizer: MakeOptimizer | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
        budget: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            in_features, num_classes, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing,
            class_weight=class_weight,
        )  # fmt: skip
        if row_update not in get_args(RowUpdateMode):
            raise ConfigError(f"row_update={row_update!r} is unknown; choose 'gradient', 'fused' or 'at_step'")
        if row_update != "gradient" and row_optimizer is None:
            raise ConfigError(f"row_update={row_update!r} needs row_optimizer, e.g. functools.partial(RowSGD, lr=0.1)")
        if row_update == "gradient" and row_optimizer is not None:
            raise ConfigError("row_optimizer belongs to row_update='fused' or 'at_step'; set one of them")
        self.row_update = row_update
        self.num_embeddings = self._rows_here() if num_rows is None else num_rows
        self.embedding_dim, self.sparse, self.padding_idx = self.in_features, True, None
        self.max_norm, self.norm_type, self.scale_grad_by_freq = None, 2.0, False
        shape = (self.num_embeddings, self.embedding_dim)
        if torch.empty(0, device=device).device.type == "cpu":
            kind = torch.get_default_dtype() if dtype is None else dtype
            needs = {"bias": bias, "optimizer": row_optimizer, "index": False, **(budget or {})}
            check_memory(type(self).__name__, shape, kind, needs)
        self.register_parameter("weight", nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        wide = computed_in(self.weight.dtype)  # a bias of 16 bits would save next to nothing, and blur every logit
        of_rows = nn.Parameter(torch.empty(self.num_embeddings, device=device, dtype=wide)) if bias else None
        self.register_parameter("bias", of_rows)
        self._draw_parameters()
        self._fused: FusedUpdate | None = None
        self._moved = (self.weight, self.bias)  # what the fused optimizer knows
        if row_optimizer is not None:
            self._fused = FusedUpdate(row_optimizer(self._row_parameters()), row_update == "at_step")
            if not hasattr(self._fused.optimizer, "update_rows"):
                kind = type(self._fused.optimizer).__name__
                raise ConfigError(f"row_optimizer makes a {kind}, which cannot update rows; use RowSGD, RowAdagrad, …")
        self.register_load_state_dict_post_hook(_loaded)

    def drop_waiting(self) -> None:
        """Drop the gradients that wait for a step, with row_update="at_step": a bad batch is to leave no trace."""
        if self._fused is not None:
            self._fused.forget()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop gradients, also those that wait for a step; an optimizer's zero_grad does not reach these."""
        super().zero_grad(set_to_none)
        self.drop_waiting()

    def _rows_here(self) -> int:
        """Return how many rows belong to classes and are in this process."""
        return self.num_classes

    def reset_parameters(self) -> None:
        """Draw weight and bias as nn.Linear does."""
        self._draw_parameters()
        self._weights_replaced()

    def _draw_parameters(self) -> None:
        bound = self.in_features**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def _row_parameters(self) -> list[Tensor]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def __setattr__(self, name: str, value: Any) -> None:
        """Check a weight or bias that is assigned, to share it for instance: head.weight = embedding.weight."""
        if name not in ("weight", "bias"):
            return super().__setattr__(name, value)
        wanted = self.weight.shape if name == "weight" else self.weight.shape[:1]
        if value is not None and tuple(value.shape) != tuple(wanted):
            raise InputError(f"{name} has shape {tuple(value.shape)}; expected {tuple(wanted)}")
        if value is not None and not value.is_contiguous():  # every step would copy all of it
            raise InputError(
                f"{name} has strides {value.stride()}; rows must be contiguous: pass a contiguous parameter"
            )
        super().__setattr__(name, value)
        self._weights_replaced()

    def _follow_parameters(self) -> None:
        """Make the fused optimizer move the parameters that the head has now."""
        if self._fused is None:
            return
        now = (self.weight, self.bias)
        for before, value in zip(self._moved, now, strict=True):
            for group in self._fused.optimizer.param_groups:
                kept = [value if known is before else known for known in group["params"]]
                group["params"] = [known for known in kept if known is not None]
        self._moved = now

    def _weights_replaced(self) -> None:
        """Called when all weights may have new values or be new parameters."""
        self._follow_parameters()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._follow_parameters()  # to_empty makes new ones
        return self

    def _nothing(self, flat: Tensor) -> Tensor:
        nothing, no_ids = super()._nothing(flat), torch.empty(0, dtype=torch.int64)
        for parameter in self._row_parameters():  # an input without gradient must not stop a plain training loop
            nothing = nothing + gather_rows(parameter, no_ids, self._update, nothing.dtype).sum()
        return nothing

    @torch.no_grad()
    def change_rows(
        self, changed: Callable[[str, Tensor, float | None], Tensor], optimizers: Iterable[torch.optim.Optimizer]
    ) -> None:
        """Replace the data of weight and bias, and of every optimizer state of their shape; the parameters stay.

        changed(name, old, start) returns the new data of `name`, "weight" or "bias"; or, where `start` is not None, of
        a state of it, in which new rows start at that value. Gradients are dropped, also those that wait for a step.
        """
        known = list(optimizers)
        if self._fused is not None and not any(optimizer is self._fused.optimizer for optimizer in known):
            known.append(self._fused.optimizer)
        new_states: list[tuple[dict[str, Any], str, Tensor]] = []
        for name, parameter in self._named_rows().items():
            for optimizer in known:
                state = optimizer.state.get(parameter, {})
                for key, value in state.items():
                    if isinstance(value, Tensor) and value.shape == parameter.shape:
                        start = optimizer.defaults.get("initial_accumulator_value", 0.0) if key == "sum" else 0.0
                        new_states.append((state, key, changed(name, value, start)))
        new_data = {name: changed(name, parameter.data, None) for name, parameter in self._named_rows().items()}
        # Memory may have run out until here; from here on nothing fails.
        for state, key, value in new_states:
            state[key] = value
        rows = self._named_rows()
        for name in reversed(rows):  # the bias first: who asks meanwhile reads the weight first, and finds one for each
            rows[name].data, rows[name].grad = new_data[name], None
        for parameter in rows.values():
            _forget_old_shape(parameter)
        if self._fused is not None:
            self._fused.forget()
        self.num_embeddings = len(self.weight)

    def _renumber_rows(self) -> None:
        """Refuse what steps that began before would do to the rows, which have other numbers now."""
        if self._fused is not None:
            self._fused = self._fused.after_renumbering()
        for parameter in self._named_rows().values():
            if not parameter.is_inference():
                torch.autograd.graph.increment_version(parameter)

    def _flat(self, input: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            raise ConfigError(
                f"{type(self).__name__} cannot be exported: it looks classes up in an index; export head.to_linear(), "
                "or the network below it, and serve the rows with manyclass.ClassIndex"
            )
        _say_once_that_threads_spin()
        return super()._flat(input)

    def _named_rows(self) -> dict[str, Tensor]:
        return {"weight": self.weight} if self.bias is None else {"weight": self.weight, "bias": self.bias}

    def row_states(self) -> dict[str, Tensor]:
        """Return what rows that move by themselves need to go on: states, gradients that wait; part of the state dict.

        Empty with row_update="gradient": there the optimizer has it all.
        """
        return {} if self._fused is None else self._fused.saved(self._named_rows())

    def load_row_states(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `row_states` gave; nothing where rows have gradients."""
        if self._fused is not None:
            self._fused.restore(self._named_rows(), tensors)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensor in self.row_states().items():
            destination[f"{prefix}{ROW_STATE}{name}"] = tensor

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        begin = f"{prefix}{ROW_STATE}"
        states = {key.removeprefix(begin): state_dict.pop(key) for key in list(state_dict) if key.startswith(begin)}
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if states:
            self.load_row_states(states)

    @property
    def row_optimizer(self) -> Any:
        """The optimizer that moves the rows by itself; None with row_update='gradient'."""
        return None if self._fused is None else self._fused.optimizer

    @property
    def _update(self) -> RowUpdate | None:
        if self._fused is None or not (self.training and torch.is_grad_enabled()):
            return None
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if distributed and torch.distributed.get_world_size() > 1:
            raise ConfigError(
                f"row_update={self.row_update!r} keeps gradients to one process; use row_update='gradient'"
            )
        return self._fused

    def _checked_loss(self, loss: Tensor) -> Tensor:
        if self._update is not None and loss.requires_grad:
            loss.register_hook(_refuse_scaled)
        return loss


def _forget_old_shape(parameter: Tensor) -> None:
    """Make torch drop the node that takes this parameter's gradients, if it is one for rows as they were.

    A loss that is still held, as `loss` is in any plain loop, keeps that node alive; later losses would share it and
    fail in backward. torch drops it only with a change of the type.
    """
    if not parameter.requires_grad:
        return
    node: Any = torch.autograd.graph.get_gradient_edge(parameter).node
    if tuple(node._input_metadata[0].shape) != tuple(parameter.shape):
        rows = parameter.data
        parameter.data = torch.empty(0, dtype=torch.float32 if rows.dtype == torch.float64 else torch.float64)
        parameter.data = rows


@functools.cache
def _say_once_that_threads_spin() -> None:
    """Warn where torch's OpenMP threads keep spinning on the cores that the native threads want."""
    if torch.get_num_threads() > 1 and "OMP_WAIT_POLICY" not in os.environ:
        warnings.warn(
            "OMP_WAIT_POLICY is not set: torch's threads spin after each operation, on the cores that the head wants, "
            "and a step takes longer; set OMP_WAIT_POLICY=PASSIVE and GOMP_SPINCOUNT=20000 before Python starts",
            SlowThreadsWarning,
            stacklevel=2,
        )


def _refuse_scaled(gradient: Tensor) -> None:
    """Raise where a loss was multiplied before backward by so much that it can only be a GradScaler's doing."""
    if not gradient.numel():
        return
    scale = float(gradient.abs().max())
    if scale > LARGEST_SCALE:
        raise ConfigError(
            f"the loss was multiplied by {scale:g} before backward (a GradScaler?), and rows without a .grad would "
            "move by as much; use row_update='gradient', or no scaler: bfloat16 needs none"
        )


def _loaded(head: nn.Module, _: Any) -> None:
    assert isinstance(head, RowHead)
    head._weights_replaced()
