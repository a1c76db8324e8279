"""Adding and removing classes of a head in use: weights, optimizer state, names and index stay together.

Ids never move by themselves. A removed class keeps its row and is left out of everything; an added one gets the next id
and a row in the room behind the others. Neither touches the other rows or rebuilds the index. `compact` closes the gaps
when that is wanted, at the price of all rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from manyclass._validation import check_count, check_ids, check_names
from manyclass.errors import InputError, InputTypeError
from manyclass.torch.class_sampler import ClassSampler
from manyclass.torch.head_index import HeadIndex
from manyclass.torch.mining import Mining
from manyclass.torch.priors import HeadWithPrior
from manyclass.torch.removed_classes import RemovedClasses
from manyclass.torch.room_to_grow import grown
from manyclass.torch.row_head import RowHead
from manyclass.torch.tail_and_targets import TailAndTargets

REMOVED = "removed_classes"  # how a state dict names them
CHECKED_AT_ONCE = 10_000  # rows


class ChangingClasses(HeadWithPrior, RowHead):  # type: ignore[misc]  # forward takes a target, too
    """A head whose classes come and go. `num_classes` counts ids, removed ones included."""

    index: HeadIndex
    mining: Mining
    sampler: ClassSampler
    tail_and_targets: TailAndTargets | None
    names: list[str] | None

    @property
    def removed(self) -> Tensor:
        """Ids of the classes that were removed, ascending."""
        return self.sampler.removed.ids

    def add_classes(
        self,
        count: int | None = None,
        *,
        rows: Tensor | None = None,
        bias: Tensor | None = None,
        names: Sequence[str] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> range:
        """Add classes and return their ids, the next ones; ids of removed classes are not used again.

        count: so many random ones; or rows: these, (count, in_features). bias: (count,), unless given zeros or, with a
        prior, that of a class that was never met.
        names: one each where the head has names. optimizer: its state grows along.

        The first time all rows are copied once, to a place with room for half as many again; from then on the cost is
        that of the new rows. Gradients are dropped. A wrapper that knows the old size, such as DDP, is to be made anew.
        """
        new = self._new_rows(count, rows, bias)
        added = len(new["weight"])
        if (names is None) != (self.names is None):
            raise InputError(f"names is {'missing' if names is None else 'given'}, unlike for the first classes")
        new_names = [] if names is None else check_names("names", names, added)
        first = self.num_classes
        with self.index.changing:  # searches that go on meanwhile use the index as it was, and build no other
            self.index.forget_if_changed(self.weight, self.bias)
            self.change_rows(
                lambda name, old, start: grown(old, new[name].to(old) if start is None else _filled(old, added, start)),
                [optimizer] if optimizer else [],
            )
            self.num_classes = first + added
            self.sampler.add_classes(added)
            self._prior_of_added(added)
            if self.tail_and_targets is not None:
                self.tail_and_targets.counts.add_classes(added)
            if self.class_weight is not None:
                self.class_weight = torch.cat([self.class_weight, self.class_weight.new_ones(added)])
            if self.names is not None:
                self.names.extend(new_names)
            self.index.append(self.weight, self.bias)
        return range(first, first + added)

    def remove_classes(self, ids: Any) -> None:
        """Take classes out; the ids of the others stay as they are.

        ids: whole numbers. Those that are out already may be among them.

        A removed class is never found, never drawn at random, has probability 0, and is refused as a target. Its row
        and name stay in their places until `compact`.
        """
        gone = torch.from_numpy(check_ids("ids", ids.numpy() if isinstance(ids, Tensor) else ids, self.num_classes))
        removed = self.sampler.removed.with_(gone)
        if len(removed) == self.num_classes:
            raise InputError("ids are all the classes that are left; a head needs at least one")
        self._set_removed(removed)
        self.index.remove(gone.numpy())

    def compact(self, *, optimizer: torch.optim.Optimizer | None = None) -> Tensor:
        """Close the gaps that removed classes left, and return, for every new id, the id it had before.

        optimizer: its state follows. Gradients are dropped, the index is built anew when it is next needed: the cost is
        that of all classes.
        """
        stays = torch.ones(self.num_classes, dtype=torch.bool)
        stays[self.removed] = False
        kept = stays.nonzero()[:, 0]
        self.change_rows(lambda name, old, start: old[kept], [optimizer] if optimizer else [])
        self._renumber_rows()
        self.num_classes = len(kept)
        self.sampler.keep_classes(kept)
        self._prior_of_kept(kept)
        if self.tail_and_targets is not None:
            self.tail_and_targets.counts.keep_classes(kept)
        if self.class_weight is not None:
            self.class_weight = self.class_weight[kept]
        if self.names is not None:
            self.names = [self.names[old] for old in kept.tolist()]
        self._set_removed(RemovedClasses())
        self.index = self.index.unbuilt()
        self.mining.forget()
        return kept

    def _removed_ids(self) -> Tensor | None:
        return self.removed if len(self.removed) else None

    def _set_removed(self, removed: RemovedClasses) -> None:
        self.sampler.removed = self.index.removed = removed
        if self.tail_and_targets is not None and len(removed):
            self.tail_and_targets.counts.forget_classes(removed.ids)

    def _new_rows(self, count: int | None, rows: Tensor | None, bias: Tensor | None) -> dict[str, Tensor]:
        """Return checked rows and biases of new classes."""
        if (count is None) == (rows is None):
            raise InputError("give either count, for rows drawn at random, or rows")
        if rows is None:
            bound = self.in_features**-0.5
            rows = torch.empty(check_count("count", count), self.in_features).uniform_(-bound, bound)
        if not isinstance(rows, Tensor) or not rows.is_floating_point():
            raise InputTypeError("rows is not a tensor of floats; pass a (count, in_features) tensor")
        if rows.dim() != 2 or rows.shape[1] != self.in_features:
            raise InputError(f"rows has shape {tuple(rows.shape)}; expected (count, {self.in_features})")
        rows = rows.detach().to(self.weight.dtype)
        _check_norms(rows)
        if bias is not None and not isinstance(bias, Tensor):
            raise InputTypeError("bias is not a tensor; pass a (count,) tensor")
        if bias is not None:
            bias = bias.detach() if self.bias is None else bias.detach().to(self.bias.dtype)
            if self.bias is None or bias.shape != (len(rows),) or not bias.isfinite().all():
                raise InputError(f"bias must be {len(rows)} finite numbers, for a head with bias; leave it out")
        return {
            "weight": rows,
            "bias": self._start_of_new_classes(len(rows)) if bias is None else bias,
        }

    def _positives(self, target: Tensor, leading: torch.Size) -> Tensor:
        positives = super()._positives(target, leading)
        gone = self.sampler.removed.holds(positives) if len(self.removed) else None
        if gone is not None and gone.any():
            raise InputError(
                f"target holds {int(positives[gone][0])}, a class that was removed; leave such examples out, or give "
                f"ignore_index={self.ignore_index} in its place"
            )
        return positives

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if len(self.removed):
            destination[f"{prefix}{REMOVED}"] = self.removed

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        removed = state_dict.pop(f"{prefix}{REMOVED}", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if removed is not None or f"{prefix}weight" in state_dict:  # rows without a word of removed ones: none is
            self._set_removed(self._checked_removed(removed))

    def _checked_removed(self, ids: Tensor | None) -> RemovedClasses:
        """Return removed classes as they were saved."""
        if ids is not None and len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.num_classes:
            raise InputError(f"{REMOVED} holds ids beyond the {self.num_classes} classes of the head")
        return RemovedClasses() if ids is None else RemovedClasses().with_(ids)


def _check_norms(rows: Tensor) -> None:
    """Refuse rows that an index could not hold; few at a time, as they are copied to float64."""
    for number, part in enumerate(rows.split(CHECKED_AT_ONCE)):
        fits = part.double().norm(dim=1) <= torch.finfo(torch.float32).max
        if not fits.all():
            at = number * CHECKED_AT_ONCE + int((~fits).nonzero()[0])
            raise InputError(
                f"rows[{at}] has a NaN, an infinity or a norm beyond float32, as {rows.dtype}; clean it first"
            )


def _filled(old: Tensor, count: int, value: float) -> Tensor:
    return old.new_full((count, *old.shape[1:]), value)
