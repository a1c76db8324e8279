"""The hash tables of a head in training: built when first needed, kept near the moving weights, re-hashed in turns."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from manyclass._index_file import index_arrays, index_settings, restore_index
from manyclass._validation import Ids, check_count
from manyclass.config import FLAT_SCAN_CLASSES, HashConfig
from manyclass.errors import FileError, InputError
from manyclass.index import ClassIndex
from manyclass.torch.row_products import array

LOOKED_AT = 2400  # classes per example whose sketch is compared, where tables find them


def training_config(classes: int, features: int, candidates: int) -> HashConfig:
    """Return how a head finds so many candidates unless told: as an index does, with less effort where it has tables.

    Training asks with every example and forgives a miss, which the next example makes up for; serving does not.
    """
    if classes > FLAT_SCAN_CLASSES and features >= 16:
        breadth = min(128, max(4, LOOKED_AT // candidates))
        return HashConfig.probed_tables(classes, features, bands=32, breadth=breadth)
    return HashConfig.for_problem(classes, features)


class Tables:
    """An index over a head's rows that lags a little behind them.

    Every training step re-hashes at most `limit` classes: first a slice of all classes in turn, so that each is
    visited once in `period` steps (the paper's round-robin), then, with `touched_first`, rows that the last step
    changed, most moved first. These have at least half of the limit, if there are that many: where 2·classes/limit is
    more than `period`, a round takes that many steps.
    """

    def __init__(
        self,
        config: HashConfig | None,
        *,
        candidates: int,
        period: int,
        limit: int,
        touched_first: bool,
        unit_rows: bool,
    ) -> None:
        self.config = config
        self.candidates = candidates  # how many a search will ask for, about
        self.period = check_count("refresh_steps", period)
        self.limit = check_count("refresh_limit", limit)
        self.touched_first = touched_first
        self.unit_rows = unit_rows  # cosine logits: the index sees rows of length one, in an array of its own
        self.index: ClassIndex | None = None
        self.source: npt.NDArray[Any] | None = None  # the weight that the tables were built from
        self.cursor = 0  # next class of the round
        self.step = 0
        self.hashed_at: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # step at which each class was last hashed
        self.touched: Ids = np.empty(0, np.int64)  # classes the last step changed, most urgent first

    def __deepcopy__(self, memo: Any) -> Self:
        return self.unbuilt()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "index": None, "source": None, "hashed_at": np.zeros(0, np.int32)}

    def unbuilt(self) -> Self:
        """Return tables of the same settings that are yet to be built."""
        return type(self)(
            self.config,
            candidates=self.candidates,
            period=self.period,
            limit=self.limit,
            touched_first=self.touched_first,
            unit_rows=self.unit_rows,
        )

    def config_for(self, classes: int, features: int) -> HashConfig:
        """Return the config that was given, or one that suits these sizes."""
        return self.config or training_config(classes, features, self.candidates)

    def drop(self) -> None:
        """Forget the tables: the weights were replaced; the next use builds them anew."""
        self.index = self.source = None

    def over(self, weight: Tensor, bias: Tensor | None) -> ClassIndex:
        """Return the index over these rows, building it if there is none or the rows live elsewhere now."""
        if self.index is None or self.source is None or not _same(self.source, _view(weight)):
            self.build(weight, bias)
        assert self.index is not None
        return self.index

    def build(self, weight: Tensor, bias: Tensor | None) -> None:
        """Hash every row as it is now."""
        rows = self._hashed(weight)
        config = self.config_for(*rows.shape)
        self.index = ClassIndex.build(rows, bias=_floats(bias), config=config, threads=torch.get_num_threads())
        self.source = _view(weight)
        self.hashed_at = np.full(len(rows), self.step, np.int32)
        self.touched = np.empty(0, np.int64)

    def refresh(self, weight: Tensor, bias: Tensor | None) -> int:
        """Re-hash this step's share and return its size. Call once per training step, before the search."""
        index = self.over(weight, bias)
        self.step += 1
        ids = self._due(index.classes)
        if len(ids):
            self.rehash(ids, weight, bias)
        return len(ids)

    def rehash(self, ids: Ids, weight: Tensor, bias: Tensor | None) -> None:
        """Re-hash these classes now."""
        index = self.over(weight, bias)
        values = None if bias is None else _floats(bias.detach()[torch.from_numpy(ids)])
        rows = self._hashed(weight[torch.from_numpy(ids)]) if self._copies(weight) else None
        index.refresh(ids, rows, bias=values, threads=torch.get_num_threads())
        self.hashed_at[ids] = self.step

    def _due(self, classes: int) -> Ids:
        """Return this step's classes, distinct."""
        limit = min(self.limit, classes)
        turn = min(limit, -(-classes // self.period))
        turn = min(turn, -(-self.limit // 2)) if self.touched_first else turn
        touched = self.touched[: limit - turn] if self.touched_first else self.touched[:0]
        slice_ids = (self.cursor + np.arange(turn)) % classes
        self.cursor = int((self.cursor + turn) % classes)
        self.touched = np.empty(0, np.int64)
        return np.unique(np.concatenate([slice_ids, touched]))

    def settings(self) -> dict[str, Any]:
        """Return where the refresh stands, as plain numbers; `tensors` has the rest."""
        meta = None if self.index is None else index_settings(self.index)
        return {"cursor": self.cursor, "step": self.step, "index": meta}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tables themselves, and the ages of their entries."""
        if self.index is None:
            return {}
        arrays = index_arrays(self.index)
        if self.source is not None and not _same(self.source, self.index.rows):
            arrays["rows"] = self.index.rows
        arrays |= {"hashed_at": self.hashed_at, "touched": self.touched}
        return {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in arrays.items()}

    def check_saved(self, settings: dict[str, Any], tensors: dict[str, Tensor], weight: Tensor) -> None:
        """Raise a FileError if the saved tables are over other rows, or hashed in another way; change nothing."""
        if not tensors:
            return
        saved = settings["index"]
        config = self.config_for(*weight.shape)
        if (saved["classes"], saved["features"]) != tuple(weight.shape) or HashConfig(**saved["config"]) != config:
            way_out = "make the head with the same config, or load with tables=False"
            raise FileError(f"the saved tables are hashed in another way than the head's; {way_out}")

    def restored(self, settings: dict[str, Any], tensors: dict[str, Tensor], weight: Tensor) -> Self:
        """Return tables as they were saved; without tensors, tables yet to be built. Raises where things do not fit."""
        new = self.unbuilt()
        new.cursor = check_count("cursor", settings["cursor"], low=0)
        new.step = check_count("step", settings["step"], low=0)
        if not tensors:
            return new
        arrays: dict[str, npt.NDArray[Any]] = {name: tensor.numpy() for name, tensor in tensors.items()}
        new.hashed_at, new.touched = arrays.pop("hashed_at").copy(), arrays.pop("touched").copy()
        rows = arrays.pop("rows").copy() if self._copies(weight) else array(weight)
        if new.hashed_at.shape != (len(rows),) or rows.shape != tuple(weight.shape):
            raise InputError(f"saved tables are for {rows.shape} rows; the head has {tuple(weight.shape)}")
        size = sum(part.nbytes for part in arrays.values()) + rows.nbytes
        arrays["rows"] = rows
        new.source = _view(weight)
        new.index = restore_index(ClassIndex, settings["index"], arrays, size, torch.get_num_threads())
        return new

    def _copies(self, weight: Tensor) -> bool:
        """Return whether the index needs rows of its own: of length one, or of a type that NumPy lacks."""
        return self.unit_rows or weight.dtype == torch.bfloat16

    def _hashed(self, rows: Tensor) -> npt.NDArray[Any]:
        """Return rows as the index sees them."""
        values: npt.NDArray[Any] = array(rows.float() if rows.dtype == torch.bfloat16 else rows)
        return unit(values) if self.unit_rows else values

    def age(self) -> tuple[float, int]:
        """Return mean and largest age of the table entries, in steps."""
        ages = self.step - self.hashed_at
        return (float(ages.mean()), int(ages.max())) if len(ages) else (0.0, 0)


def _view(weight: Tensor) -> npt.NDArray[Any]:
    """Return the weight's memory, to recognise it by."""
    seen: npt.NDArray[Any] = array(weight.detach().view(torch.int16) if weight.dtype == torch.bfloat16 else weight)
    return seen


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    at, also = one.__array_interface__, other.__array_interface__
    return one.dtype == other.dtype and one.shape == other.shape and at["data"] == also["data"]


def unit(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return rows of length one; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: npt.NDArray[Any] = rows / np.where(lengths > 0, lengths, 1)
    return scaled.astype(rows.dtype, copy=False)


def _floats(bias: Tensor | None) -> Any:
    return None if bias is None else array(bias.float())
