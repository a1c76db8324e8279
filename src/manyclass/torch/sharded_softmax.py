"""CandidateSoftmax over several processes: every rank has a share of the classes, their index, their optimizer state.

Each rank gets the examples of all ranks, makes the same choices from them (sharded_choices.py), and computes the chosen
classes that are its own. What the ranks exchange beside the inputs is a few numbers per example, whatever the number of
classes.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, NoReturn, Self, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyclass._validation import Ids, check_count
from manyclass.errors import ConfigError, FileError, InputError, InputTypeError
from manyclass.torch.class_shards import ClassShards, drawn_rows
from manyclass.torch.class_targets import Targets
from manyclass.torch.fused_update import FusedUpdate
from manyclass.torch.head import check_overflow
from manyclass.torch.linear_conversion import folded, linear_over
from manyclass.torch.ranks import Ranks, Said, check_left_out_of_ddp, note_sharded
from manyclass.torch.sharded_choices import ShardedChoices
from manyclass.torch.sharded_loss import (
    GatheredInputs,
    OwnExamples,
    all_terms,
    losses_over_ranks,
    own_terms,
    shared_terms,
)
from manyclass.torch.step_classes import StepClasses

TrunkGradients = Literal["averaged", "summed"]
# Settings that are whole numbers, and the same on all ranks.
AGREED = ("in_features", "num_classes", "_candidates", "shared", "targets_for_all", "normalize")
BY_BATCH = -1  # as a tail: the default, which depends on the batch


class _Batch(NamedTuple):
    """What a rank was given, checked: (examples, features), (examples, n), and which of its examples count."""

    flat: Tensor
    positives: Tensor
    counted: Tensor


class ShardedSoftmax(ShardedChoices):
    """A CandidateSoftmax whose rows are spread over the processes of torch.distributed.

    in_features, num_classes: sizes of the layer; classes of all ranks together. `weight` and `bias` have the rows of
        this rank's classes, those with id % ranks == rank.
    group: process group = None. None: one of its own, by gloo, over all processes.
    timeout: float = 300.0. Seconds that a rank waits for the others before it raises, for a group of its own: more than
        the time by which they may differ in building an index or writing a checkpoint.
    trunk_gradients: "averaged" (default): DDP, or who else trains the network below, takes the mean of its gradients
        over ranks; the head makes up for that. "summed": the sum is taken.
    seed: int = 0. Of the first rows, too: they do not depend on the number of ranks.
    settings: every other argument of CandidateSoftmax, equal on all ranks; `prior` not "counted". `row_update` may be
        any: a row belongs to one process.

    All ranks call forward, topk, predict and log_prob together, in the same order, each with examples of its own, as
    many as it has, perhaps none. The loss is that of the whole batch, the same number on every rank (reduction="none":
    of the rank's own examples), and so `backward` is called on each.
    """

    _rank_mark: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        group: Any = None,
        timeout: float = 300.0,
        trunk_gradients: TrunkGradients = "averaged",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        ranks = Ranks(group, timeout)
        self.ranks = ranks

        def make() -> Said:
            if trunk_gradients not in get_args(TrunkGradients):
                raise ConfigError(f"trunk_gradients={trunk_gradients!r} is unknown; choose 'averaged' or 'summed'")
            if isinstance(settings.get("prior"), str):
                raise ConfigError("prior='counted' moves biases in training; give counts: Prior(counts, examples)")
            classes = check_count("num_classes", num_classes)
            if classes < ranks.count:
                raise ConfigError(f"num_classes={classes} is less than one per rank ({ranks.count}); use fewer ranks")
            self.shards = ClassShards(classes, ranks.rank, ranks.count)
            self._row_seed = check_count("seed", seed, low=0)
            super(ShardedSoftmax, self).__init__(in_features, num_classes, seed=seed, **settings)
            mined = self.mining
            same = {name.removeprefix("_"): int(getattr(self, name)) for name in AGREED}
            same[f"tail ({BY_BATCH}: default)"] = BY_BATCH if self.tail is None else self.tail
            same |= {"mined_examples": mined.examples, "mined_every": mined.every}
            same |= {"mined_candidates": mined.candidates, "remembered": mined.remembered, "seed": seed}
            return Said(
                same=same | {"meter_every": self.meter.every, "float64": int(self.weight.dtype == torch.float64)}
            )

        ranks.meet("make a head", make)
        self.trunk_gradients = trunk_gradients
        self.register_buffer("_rank_mark", torch.tensor(ranks.rank, device="cpu"), persistent=False)

    def _rows_here(self) -> int:
        return self.shards.rows

    def _rows_of(self, ids: Ids) -> Ids:
        rows = self.shards.rows_for(torch.from_numpy(ids))
        return rows[rows >= 0].numpy()

    def _draw_parameters(self) -> None:
        bound = self.in_features**-0.5
        with torch.no_grad():
            for parameter in self._row_parameters():
                if not parameter.is_meta:
                    drawn_rows(self.shards, self.in_features, bound, self._row_seed, parameter)

    def _set_bias_start(self) -> None:
        start, self._known_start = self._known_start, self._part_of_start()
        super()._set_bias_start()
        self._known_start = start

    def _part_of_start(self) -> Tensor | None:
        known = self._known_start
        return self.shards.part(known) if known is not None and known.dim() else known

    @property
    def _update(self) -> FusedUpdate | None:
        return self._fused if self.training and torch.is_grad_enabled() else None

    # Training

    @torch.compiler.disable
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the examples of all ranks. input, target: this rank's own."""
        own = _Batch(*[torch.empty(0)] * 3)

        def prepare() -> Said:
            nonlocal own
            own = self._checked_batch(input, target)
            same = {"training mode": int(self.training), "gradient mode": int(torch.is_grad_enabled())}
            same |= {"exact()": int(self._nothing_approximated), "float64 input": int(own.flat.dtype == torch.float64)}
            same |= {"one class per target": int(target.shape == input.shape[:-1])}
            return Said((len(own.flat), own.positives.shape[1], int(own.flat.requires_grad)), same)

        sizes = self.ranks.meet("loss", prepare)
        for parameter in self._row_parameters():  # here and not once, as copies of the head have others
            note_sharded(parameter, self.ranks)
        counts, width = [size[0] for size in sizes], max(size[1] for size in sizes)
        if not sum(counts):
            nothing = self._nothing(own.flat)
            return nothing if self.reduction != "none" else own.flat.new_zeros(input.shape[:-1]) + nothing
        x = self._gathered(own.flat, counts, follow=any(size[2] for size in sizes))
        padded = F.pad(own.positives, (0, width - own.positives.shape[1]), value=-1)
        positives = self.ranks.gather_rows(padded, counts, "gathering targets")
        self._note_targets(positives)
        with torch.autocast("cpu", enabled=False):
            losses = self._losses(x, positives)
        check_overflow(x, losses)
        if self.reduction == "mean":
            one_each = self.class_weight is not None and target.shape == input.shape[:-1]
            return self._checked_loss(self._weighted_mean(losses, positives) if one_each else losses.mean())
        if self.reduction == "sum":
            return self._checked_loss(losses.sum())
        mine = OwnExamples.apply(losses, self.ranks, counts)
        return self._checked_loss(
            mine.new_zeros(len(own.counted)).masked_scatter(own.counted, mine).reshape(input.shape[:-1])
        )

    def _checked_batch(self, input: Tensor, target: Tensor) -> _Batch:
        check_left_out_of_ddp(self._rank_mark, self.ranks.rank)
        flat, positives = self._flat(input), self._positives(target, input.shape[:-1])
        counted = (positives[:, :1] >= 0).any(1)
        return _Batch(flat, positives, counted) if counted.all() else _Batch(flat[counted], positives[counted], counted)

    def _gathered(self, flat: Tensor, counts: list[int], follow: bool) -> Tensor:
        """Return the inputs of all ranks. follow: whether some rank wants gradients of them; then all take part."""
        if not (follow and torch.is_grad_enabled()):
            return self.ranks.gather_rows(flat, counts, "gathering inputs")
        factor = float(self.ranks.count) if self.trunk_gradients == "averaged" else 1.0
        x: Tensor = GatheredInputs.apply(
            flat if flat.requires_grad else flat.detach().requires_grad_(), self.ranks, counts, factor
        )
        return x

    def _exact_losses(self, x: Tensor, positives: Tensor) -> Tensor:
        terms = all_terms(self.layer, x, self.shards, self._targets(positives))
        return losses_over_ranks(self.ranks, terms, self.output == "logistic")[0]

    def _losses_over(self, x: Tensor, classes: StepClasses, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
        logistic = self.output == "logistic"
        if self.shared:
            terms, rows = shared_terms(self.layer, x, self.shards, classes, targets)
            losses, probabilities = losses_over_ranks(self.ranks, terms, logistic)
            return losses, rows, probabilities.sum(0) + terms.own.sum(0)
        terms, local = own_terms(self.layer, x, self.shards, classes, targets)
        losses, _ = losses_over_ranks(self.ranks, terms, logistic)
        return losses, *local.pulled(terms.logits.detach(), self.shards.rows_for(targets.positives))

    # The layer as a whole

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, queries: Any = None, **settings: Any) -> Self:
        """Return a head with copies of this rank's rows. linear: the same layer on every rank, trained or not."""
        if not isinstance(linear, nn.Linear):
            raise InputTypeError(f"linear is a {type(linear).__name__}; pass an nn.Linear")
        if queries is not None or settings.get("prior") is not None:
            raise InputError("queries and prior do not go with the layer of a sharded head; leave them out")
        settings.setdefault("dtype", linear.weight.dtype)
        head = cls(linear.in_features, linear.out_features, bias=linear.bias is not None, **settings)
        with torch.no_grad():
            head.weight.copy_(head.shards.part(linear.weight))
            if head.bias is not None:
                head.bias.copy_(head.shards.part(linear.bias))
        head._weights_replaced()
        return head

    @torch.no_grad()
    def to_linear(self) -> nn.Linear:
        """Return the whole layer, as CandidateSoftmax does, on every rank: rows of all ranks are copied."""
        if self.normalize:
            raise ConfigError("normalize=True: cosine logits are no linear layer; keep the head, or train without")
        self.ranks.meet("gather rows", Said)
        bias = None if self.bias is None else self._of_all_ranks(self.bias)
        weight, bias = folded(self._of_all_ranks(self.weight), bias, self.input_mean, self.temperature)
        return linear_over(nn.Parameter(weight), None if bias is None else nn.Parameter(bias))

    def _of_all_ranks(self, rows: Tensor) -> Tensor:
        """Return the rows of all classes, by id."""
        counts = [self.shards.rows_of(rank) for rank in range(self.ranks.count)]
        gathered = self.ranks.gather_rows(rows, counts, "gathering rows")
        everything = torch.empty_like(gathered)
        for rank, part in enumerate(gathered.split(counts)):
            everything[rank :: self.ranks.count] = part
        return everything

    def extra_settings(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the tensors, and whose it is."""
        return super().extra_settings() | {"shard": list(self.shards)}

    def check_restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        """Raise a FileError if `restore` could not take this over: also if it is that of another rank."""
        if settings.get("shard") != list(self.shards):
            classes, rank, ranks = settings.get("shard") or (self.num_classes, 0, 1)
            raise FileError(
                f"the file holds rank {rank} of {ranks} ({classes} classes), and this is rank {self.ranks.rank} of "
                f"{self.ranks.count}; use load_sharded_checkpoint, which reads files of any number of ranks"
            )
        super().check_restore(tensors, settings)

    def add_classes(self, *args: Any, **settings: Any) -> NoReturn:
        """Raise: classes of a sharded head stay as they are."""
        raise ConfigError("a sharded head cannot add or remove classes; make one with more classes and load its rows")

    remove_classes = compact = add_classes

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank {self.ranks.rank} of {self.ranks.count} with {self.shards.rows} rows"


def leave_out_of_ddp(model: nn.Module, names: Sequence[str] = ()) -> nn.Module:
    """Return the model, told that DistributedDataParallel(model) leaves the rows of its sharded heads alone.

    names: further parameters and buffers that DDP is to leave alone.
    """
    left_out = list(names)
    for prefix, module in model.named_modules():
        if isinstance(module, ShardedSoftmax):
            parts = [*dict(module.named_parameters()), *dict(module.named_buffers())]
            left_out += [f"{prefix}.{part}" if prefix else part for part in parts]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, left_out)
    return model
