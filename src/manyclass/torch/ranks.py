"""The processes that share a head: what they exchange, and how all of them learn what went wrong in one.

Every exchange begins with a meeting: each rank says what it is about to do, with what sizes, or why it cannot. So a
rank with bad input, or one that asks for something else, gets a sentence on all ranks instead of a wait without end;
and one that has ended or hangs is noticed by the group's timeout at the latest.
"""

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from manyclass.errors import ConfigError, InputError, RankError

KINDS = ("loss", "topk", "log_prob", "make a head", "gather rows", "save", "load", "clip gradients")
MESSAGE = 400  # bytes of an error that the other ranks are told
VALUES = 32  # whole numbers that a rank says in a meeting


class Said(NamedTuple):
    """What a rank says in a meeting. sizes: may differ among ranks. same: must be equal on all, by name."""

    sizes: tuple[int, ...] = ()
    same: dict[str, int] = {}  # noqa: RUF012


class Ranks:
    """A process group with a timeout, by which tensors of the CPU are exchanged.

    group: an existing one; None: a gloo group of all processes, made for this head, so that its exchanges never mix
    with those of DDP. timeout: seconds that a rank waits for the others, for a group that is made here.
    """

    def __init__(self, group: Any = None, timeout: float = 300.0) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise ConfigError(
                "a sharded head needs a process group, and there is none; start the script with torchrun and call "
                "torch.distributed.init_process_group('gloo') first"
            )
        if isinstance(timeout, bool) or not isinstance(timeout, float | int) or not 0 < timeout < 1e6:
            raise ConfigError(f"timeout={timeout!r} is not a positive number of seconds; try 300.0")
        self._in_time = f"within {timeout:g} s" if group is None else "in time"
        with self._reported("making a process group"):
            limit = timedelta(seconds=float(timeout))
            self.group = dist.new_group(backend="gloo", timeout=limit) if group is None else group
        self.rank, self.count = dist.get_rank(self.group), dist.get_world_size(self.group)
        # nccl alone exchanges nothing but memory of its GPU: tensors then go through that.
        self._device = torch.device("cuda") if dist.get_backend(self.group) == "nccl" else torch.device("cpu")

    def __deepcopy__(self, memo: Any) -> "Ranks":
        return self

    @contextlib.contextmanager
    def _reported(self, doing: str) -> Iterator[None]:
        try:
            yield
        except RankError:
            raise
        except RuntimeError as error:
            cause = str(error).partition("\n")[0][:200]
            raise RankError(
                f"{doing} failed: another rank has ended, or did not come {self._in_time} ({cause}); look at "
                "the first error of all ranks, and start them again from the last checkpoint"
            ) from error

    def meet(self, kind: str, prepare: Callable[[], Said]) -> list[tuple[int, ...]]:
        """Return the sizes of all ranks; where `prepare` raises on one of them, or they do not agree, all raise.

        kind: what is about to be done. prepare: checks what this rank was given, and says its sizes.
        """
        problem: Exception | None = None
        said = Said()
        try:
            said = prepare()
        except Exception as error:
            problem = error
        numbers = [KINDS.index(kind), int(problem is not None), len(said.sizes), *said.sizes, *said.same.values()]
        assert len(numbers) <= VALUES, numbers
        told = self.all_gather(torch.tensor(numbers + [0] * (VALUES - len(numbers))), kind)
        kinds, problems = told[:, 0].tolist(), told[:, 1].tolist()
        if any(problems):
            self._raise_everywhere(kind, problem, problems.index(1))
        if len(set(kinds)) > 1:
            other = next(rank for rank in range(self.count) if kinds[rank] != kinds[self.rank])
            raise RankError(
                f"rank {self.rank} is at {kind!r} and rank {other} at {KINDS[kinds[other]]!r}; all ranks must make the "
                "same calls of a sharded head in the same order"
            )
        width = len(said.sizes)
        for column, name in enumerate(said.same, 3 + width):
            values = told[:, column].tolist()
            if len(set(values)) > 1:
                listed = ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
                raise RankError(f"{name} is {listed}; it must be the same on all ranks")
        return [tuple(row[3 : 3 + width]) for row in told.tolist()]

    def _raise_everywhere(self, kind: str, problem: Exception | None, first: int) -> None:
        """Raise the own problem, or that of the first rank that has one."""
        text = (str(problem) or type(problem).__name__).encode()[:MESSAGE]
        padded = torch.zeros(MESSAGE, dtype=torch.uint8)
        padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        told = self.all_gather(padded, kind)
        if problem is not None:
            raise problem
        message = bytes(told[first].tolist()).rstrip(b"\0").decode(errors="ignore")
        raise RankError(f"rank {first} of {self.count} could not {_in_words(kind)}: {message}")

    def together(self, kind: str, work: Callable[[], None]) -> None:
        """Do work of this rank's own; when this returns, all ranks have done theirs, and where one raises, all do."""

        def done() -> Said:
            work()
            return Said()

        self.meet(kind, done)

    def same_text(self, text: str) -> str:
        """Return rank 0's text, which must be as long on all of them."""
        told = self.all_gather(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8), "a name")
        return bytes(told[0].tolist()).decode()

    def all_gather(self, tensor: Tensor, doing: str) -> Tensor:
        """Return what every rank gave, (ranks, *shape); shapes and types must be equal."""
        given = tensor.detach().contiguous().reshape(-1).to(self._device)
        gathered = given.new_empty(self.count * len(given))
        with self._reported(doing):
            dist.all_gather_single(gathered, given, group=self.group)
        return gathered.reshape(self.count, *tensor.shape).to(tensor.device)

    def gather_rows(self, tensor: Tensor, counts: list[int], doing: str, fill: float = 0) -> Tensor:
        """Return the rows of all ranks, one rank after the other. counts: how many rows each has."""
        most = max(counts)
        padded = tensor.new_full((most, *tensor.shape[1:]), fill)
        padded[: len(tensor)] = tensor.detach()
        if not padded.numel():
            return padded.new_empty((sum(counts), *tensor.shape[1:]))
        gathered = self.all_gather(padded, doing)
        return torch.cat([gathered[rank, :count] for rank, count in enumerate(counts)])

    def to_owners(self, rows: Tensor, counts: list[int], doing: str) -> Tensor:
        """Return what all ranks have for the examples of this one, (ranks, own examples, ...).

        rows: (all examples, ...), one rank's after the other's; counts: how many each rank has.
        """
        own = counts[self.rank]
        given = rows.detach().contiguous().to(self._device)
        received = given.new_empty((self.count * own, *rows.shape[1:]))
        if rows.numel():
            with self._reported(doing):
                dist.all_to_all_single(received, given, [own] * self.count, counts, group=self.group)
        return received.reshape(self.count, own, *rows.shape[1:]).to(rows.device)

    def all_reduce(self, tensor: Tensor, operation: Any, doing: str) -> Tensor:
        """Return the sum, or another reduction, over all ranks: the same bits on each."""
        reduced = tensor.detach().clone().contiguous().to(self._device)
        if reduced.numel():
            with self._reported(doing):
                dist.all_reduce(reduced, operation, group=self.group)
        return reduced.to(tensor.device)


_SHARDED: WeakIdKeyDictionary = WeakIdKeyDictionary()  # parameter → ranks that have other rows of it


def note_sharded(parameter: Tensor, ranks: Ranks) -> None:
    """Remember that other ranks have other rows of a parameter."""
    _SHARDED[parameter] = ranks


def ranks_of(parameter: Tensor) -> Ranks | None:
    """Return the ranks that have other rows of a parameter; None: it is whole, or a copy of what others have."""
    ranks: Ranks | None = _SHARDED.get(parameter)
    return ranks


def _in_words(kind: str) -> str:
    return {"loss": "compute its loss", "topk": "answer topk", "log_prob": "answer log_prob"}.get(kind, kind)


def check_left_out_of_ddp(mark: Tensor, rank: int) -> None:
    """Raise where the mark that a rank has put on itself was overwritten by another rank's."""
    if int(mark) != rank:
        raise InputError(
            "DDP has copied the rows of another rank over this rank's; keep the head out of it: wrap the network below "
            "it alone, or call manyclass.torch.leave_out_of_ddp(model) before DistributedDataParallel(model)"
        )
