"""Adding and removing classes of a head in use: weights, optimizer state, names and index stay together."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from manyclass._validation import check_count, check_ids, check_names
from manyclass.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from manyclass.torch.candidate_softmax import CandidateSoftmax


@torch.no_grad()
def add_classes(
    head: "CandidateSoftmax",
    count: int | None,
    rows: Tensor | None,
    bias: Tensor | None,
    names: Sequence[str] | None,
    optimizers: Iterable[torch.optim.Optimizer],
) -> range:
    """Append classes; see CandidateSoftmax.add_classes."""
    if (count is None) == (rows is None):
        raise InputError("give either count, for rows drawn at random, or rows")
    if rows is None:
        bound = head.in_features**-0.5
        rows = torch.empty(check_count("count", count), head.in_features).uniform_(-bound, bound)
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        raise InputTypeError("rows is not a tensor of floats; pass a (count, in_features) tensor")
    if rows.dim() != 2 or rows.shape[1] != head.in_features:
        raise InputError(f"rows has shape {tuple(rows.shape)}; expected (count, {head.in_features})")
    if not rows.isfinite().all():
        raise InputError("rows has a NaN or an infinity; clean it first")
    if bias is not None and not isinstance(bias, Tensor):
        raise InputTypeError("bias is not a tensor; pass a (count,) tensor")
    if bias is not None and (head.bias is None or bias.shape != (len(rows),) or not bias.isfinite().all()):
        raise InputError(f"bias must be {len(rows)} finite numbers, for a head with bias; leave it out")
    if (names is None) != (head.names is None):
        raise InputError(f"names is {'missing' if names is None else 'given'}, unlike for the first classes")
    new_names = None if names is None else check_names("names", names, len(rows))
    first = head.num_classes
    added = {"weight": rows, "bias": torch.zeros(len(rows)) if bias is None else bias}

    def grown(name: str, old: Tensor, fresh: bool) -> Tensor:
        new = added[name].to(old) if fresh else torch.zeros_like(old[:1]).expand(len(rows), *old.shape[1:])
        return torch.cat([old, new])

    _change(head, optimizers, grown, first + len(rows))
    if new_names is not None:
        head.names = [*(head.names or []), *new_names]
    return range(first, first + len(rows))


@torch.no_grad()
def remove_classes(head: "CandidateSoftmax", ids: Any, optimizers: Iterable[torch.optim.Optimizer]) -> Tensor:
    """Take classes out; see CandidateSoftmax.remove_classes."""
    gone = torch.from_numpy(check_ids("ids", ids.numpy() if isinstance(ids, Tensor) else ids, head.num_classes))
    stays = torch.ones(head.num_classes, dtype=torch.bool)
    stays[gone] = False
    kept = stays.nonzero()[:, 0]
    if not len(kept):
        raise InputError("ids are all the classes; a head needs at least one")
    _change(head, optimizers, lambda name, old, fresh: old[kept], len(kept))
    if head.names is not None:
        head.names = [head.names[int(old)] for old in kept]
    return kept


def _change(
    head: "CandidateSoftmax",
    optimizers: Iterable[torch.optim.Optimizer],
    changed: Callable[[str, Tensor, bool], Tensor],
    classes: int,
) -> None:
    head.change_rows(changed, optimizers)
    head.num_classes = head.sampler.num_classes = classes
    head.index = head.index.unbuilt()
