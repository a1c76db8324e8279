"""The index of a head in training: built when first needed, kept near the moving weights, re-hashed in turns.

Longer than our usual file because each way to be out of date is mended here, and they share what is known of the rows.
"""

import copy
import threading
import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from manyclass._index_file import index_arrays, index_settings, restore_index
from manyclass._index_state import Progress
from manyclass._row_types import as_floats, as_rows
from manyclass._self_configuration.plans import with_balance
from manyclass._topk import TopK
from manyclass._training_config import training_config
from manyclass._validation import Ids, check_count
from manyclass.config import HashConfig
from manyclass.errors import FileError, InputError
from manyclass.index import ClassIndex
from manyclass.torch.approximation_meter import ApproximationWarning
from manyclass.torch.build_progress import bar_if_slow
from manyclass.torch.recent_inputs import RecentInputs
from manyclass.torch.refresh_schedule import RefreshSchedule
from manyclass.torch.removed_classes import RemovedClasses
from manyclass.torch.row_arrays import array, as_tensor, marked_rows
from manyclass.torch.weight_watch import WeightWatch

MANY_CHANGES = 10  # from outside, each of which costs a build
KEPT_QUERIES = 2000  # of a sample that a head was given: enough for a balance whenever the index is built anew
MANY_MOVED = 4  # one in so many rows: from there on all are hashed anew, which costs no more and balances again
UNIT_SLICE = 65_536  # rows that are brought to length one at a time


class HeadIndex:
    """An index over a head's rows that lags a little behind them: `schedule` says which entries are renewed when.

    Training steps look things up in it as it is; whoever wants answers calls `catch_up` first.

    config: how classes are retrieved; None: what suits the sizes. candidates: how many a search will ask for, about.
    unit_rows: cosine logits: the index sees rows of length one, in an array of its own.
    removed: classes that no search returns.
    """

    def __init__(
        self, config: HashConfig | None, schedule: RefreshSchedule, *, candidates: int, unit_rows: bool
    ) -> None:
        self.config = config
        self.schedule = schedule
        self.candidates = candidates
        self.unit_rows = unit_rows
        self.queries: npt.NDArray[np.float32] | None = None  # that a balance is fitted to; None: recent inputs
        self.inputs: RecentInputs | None = None  # of training
        self.built: ClassIndex | None = None
        self.watch: WeightWatch | None = None  # over the weight that it was built from
        self.outside_changes = 0
        self.moved: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)  # which rows are not as they were hashed
        self.fresh = False  # whether none is
        self.built_for = 0  # classes that there were when it was built
        self.builds = 0
        self.rehashed = 0  # rows, since it was built
        self.removed = RemovedClasses()
        self.changing = threading.RLock()  # one thread builds or adds, others wait for what comes of it

    def __deepcopy__(self, memo: Any) -> Self:
        return self.unbuilt()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "built": None, "watch": None, "changing": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "changing": threading.RLock()}

    def unbuilt(self) -> Self:
        """Return an index of the same settings that is yet to be built."""
        new = type(self)(self.config, self.schedule.fresh(), candidates=self.candidates, unit_rows=self.unit_rows)
        new.queries, new.inputs, new.removed = self.queries, copy.deepcopy(self.inputs), self.removed
        return new

    def config_for(self, classes: int, features: int) -> HashConfig:
        """Return the config that was given, or one that suits these sizes."""
        return self.config or training_config(classes, features, self.candidates)

    def forget(self) -> None:
        """Forget what was built: the weights were replaced; the next use builds it anew."""
        self.built = self.watch = None

    def over(self, weight: Tensor, bias: Tensor | None) -> ClassIndex:
        """Return the index over these rows: built if there is none, anew if anything but a gradient changed them."""
        built, watch = self.built, self.watch
        if built is not None and watch is not None and watch.in_step(weight, bias):
            return built
        with self.changing:
            if self.watch is not watch and self.watch is not None:  # another thread has just seen to it
                return self.over(weight, bias)
            if self.built is not None:
                self._count_outside_change()
            return self.build(weight, bias)

    def _count_outside_change(self) -> None:
        self.outside_changes += 1
        if self.outside_changes == MANY_CHANGES:
            warnings.warn(
                f"the head's weights were changed from outside {MANY_CHANGES} times, and each time all classes "
                "are hashed again; after changing a few rows yourself, call head.rebuild(ids)",
                ApproximationWarning,
                stacklevel=2,
            )

    def build(self, weight: Tensor, bias: Tensor | None, progress: Progress | None = None) -> ClassIndex:
        """Hash every row as it is now. progress: as for ClassIndex.build; None: a bar where somebody watches."""
        rows = self._hashed(weight)
        config, queries = self.config_for(*rows.shape), self.queries
        if self.config is None and self.inputs is not None:
            sample, balanced = self.inputs.sample(), with_balance(config, rows.shape[1])
            if sample is not None and balanced is not None:
                config, queries = balanced, sample
        threads = torch.get_num_threads()
        with bar_if_slow() as bar:
            shown = bar if progress is None else progress
            built = ClassIndex.build(
                rows, bias=_floats(bias), queries=queries, config=config, threads=threads, progress=shown
            )
        self._take(built, weight, bias)
        return built

    def note_inputs(self, x: Tensor, step: int) -> None:
        """Keep some inputs of a training step, as rows are multiplied with them: the next build is balanced with those.

        Not where a config was given or learned, which says how to balance.
        """
        if self.config is None:
            if self.inputs is None:
                self.inputs = RecentInputs(x.shape[1])
            self.inputs.note(x, step)

    def forget_if_changed(self, weight: Tensor, bias: Tensor | None) -> None:
        """Forget what was built if anything but a known gradient has changed these rows since."""
        if self.watch is None or not self.watch.in_step(weight, bias):
            self.forget()

    def append(self, weight: Tensor, bias: Tensor | None) -> None:
        """Hash rows that have come behind those that are hashed already; these may be in another place now.

        Where the config follows the size and the classes have doubled since it was chosen, all are hashed anew when
        they are next needed, and so they are where there is no memory for more.
        """
        if self.built is None or (self.config is None and len(weight) >= 2 * self.built_for):
            self.forget()
            return
        first, threads = self.built.classes, torch.get_num_threads()
        values = None if bias is None else _floats(bias.detach()[first:])
        try:
            if self.unit_rows:
                self.built.append(self._hashed(weight.detach()[first:]), bias=values, threads=threads)
            else:
                self.built.lengthen(self._hashed(weight), bias=values, threads=threads)
        except MemoryError:
            self.forget()
            return
        self.schedule.more_hashed(len(weight) - first)
        self.moved = np.concatenate([self.moved, np.zeros(len(weight) - first, np.bool_)])
        self._start_watching(weight, bias)

    def remove(self, ids: Ids) -> None:
        """Take these classes out of what is built."""
        if self.built is not None:
            self.built.remove(ids)

    def learn(self, queries: npt.NDArray[np.float32], weight: Tensor, bias: Tensor | None) -> int:
        """Choose a config by a sample of queries, as the rows see them; return the candidates that it found enough."""
        rows = self._hashed(weight)
        built = ClassIndex.build(rows, bias=_floats(bias), queries=queries, threads=torch.get_num_threads())
        self.config = built.config
        self.queries = queries[:KEPT_QUERIES].copy() if built.config.balance != "none" else None
        self._take(built, weight, bias)
        return built.config.candidates

    def _take(self, built: ClassIndex, weight: Tensor, bias: Tensor | None) -> None:
        """Go on with an index that has just been built over these rows."""
        if len(self.removed):
            built.remove(self.removed.ids.numpy())
        self.built, self.built_for = built, built.classes
        self.builds, self.rehashed = self.builds + 1, 0
        self.schedule.all_hashed(built.classes)
        self.moved, self.fresh = np.zeros(built.classes, np.bool_), True
        self._start_watching(weight, bias)

    def rebuild(self, ids: Ids, weight: Tensor, bias: Tensor | None) -> None:
        """Re-hash these classes, whose rows were changed by hand; all, where there is no index over this memory."""
        if self.built is None or self.watch is None or not self.watch.same_memory(weight, bias):
            self.build(weight, bias)
            return
        self.rehash(ids, weight, bias)
        self._start_watching(weight, bias)

    def refresh(self, weight: Tensor, bias: Tensor | None) -> int:
        """Re-hash this step's share and return its size. Call once per training step, before the search.

        Cells are those of the rows when the index was built. Once as many rows as there are were re-hashed one by one,
        and then twice and four times as many, it is built anew: that costs no more than they did.
        """
        index = self.over(weight, bias)
        if index.config.cells and self.rehashed >= index.classes << (self.builds - 1):
            index = self.build(weight, bias)
        ids = self.schedule.next_step(index.classes)
        if len(ids):
            self.rehash(ids, weight, bias)
        return len(ids)

    def catch_up(self, weight: Tensor, bias: Tensor | None) -> None:
        """Re-hash every row that has moved since it was hashed: steps that look nothing up leave that to others."""
        if self.fresh:
            return
        with self.changing:
            index = self.over(weight, bias)
            waiting = np.flatnonzero(self.moved)
            if len(waiting) * MANY_MOVED > index.classes:
                self.build(weight, bias)
            elif len(waiting):
                self.rehash(waiting, weight, bias)
            self.fresh = True

    def rehash(self, ids: Ids, weight: Tensor, bias: Tensor | None) -> None:
        """Re-hash these classes of an index that is built."""
        assert self.built is not None
        values = None if bias is None else _floats(bias.detach()[torch.from_numpy(ids)])
        rows = self._hashed(weight.detach()[torch.from_numpy(ids)]) if self.unit_rows else None
        self.built.refresh(ids, rows, bias=values, threads=torch.get_num_threads())
        self.schedule.hashed(ids)
        self.moved[ids] = False
        self.rehashed += len(ids)

    def shortlist(self, x: Tensor, count: int, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ids of `count` candidates per example, likeliest first, from the index as it is."""
        index = self.over(weight, bias)
        return torch.from_numpy(index.shortlist(array(x.float()), count, threads=torch.get_num_threads()))

    def answer(self, x: Tensor, k: int, candidates: int, weight: Tensor, bias: Tensor | None) -> TopK[Tensor] | None:
        """Return the best classes by the index alone; None where it cannot tell.

        It has the biases as they were when classes were last hashed, so not while rows have moved since; its logits are
        float32; and inputs that are not finite are for others to refuse.
        """
        index = self.over(weight, bias)
        if not self.fresh or weight.dtype == torch.float64 or k > index.classes:
            return None
        try:
            found = index.search(x.numpy(), k, candidates=candidates, threads=torch.get_num_threads())
        except InputError:
            return None
        assert found.logits is not None
        return TopK(
            classes=torch.from_numpy(found.classes),
            log_probs=torch.from_numpy(found.log_probs),
            logits=torch.from_numpy(found.logits),
        )

    def rows_about_to_move(self, parameter: Tensor) -> None:
        """Look for a change from outside before a known gradient writes over its traces."""
        if self.watch is not None:
            self.watch.look_before_move(parameter)

    def rows_moved(self, parameter: Tensor, ids: Tensor | None) -> None:
        """Take note that a known gradient has just moved these rows; None: any of them."""
        if self.watch is not None and self.watch.holds(parameter):
            self.watch.expect_moved(parameter, ids)
            self.schedule.moved(ids)
            self.moved[slice(None) if ids is None else ids.numpy()] = True
            self.fresh = False

    def _start_watching(self, weight: Tensor, bias: Tensor | None) -> None:
        self.watch = WeightWatch(weight, bias)
        self.watch.announce_to(self)

    def age(self) -> tuple[float, int]:
        """Return mean and largest age of the entries, in steps."""
        return self.schedule.age()

    def settings(self) -> dict[str, Any]:
        """Return where the refresh stands, as plain numbers; `tensors` has the rest."""
        meta = None if self.built is None else index_settings(self.built)
        return {
            "inputs": 0 if self.inputs is None else self.inputs.count,
            "cursor": self.schedule.cursor,
            "step": self.schedule.step,
            "moves_wait": self.schedule.moves_wait,
            "built_for": self.built_for,
            "builds": self.builds,
            "rehashed": self.rehashed,
            "fresh": self.fresh,
            "index": meta,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the index itself, and the ages of its entries; nothing where it is not built."""
        if self.built is None:
            return {}
        arrays = index_arrays(self.built)
        if self.watch is not None and self.watch.is_copied_by(self.built.rows):
            arrays["rows"] = self.built.rows
        arrays |= {"hashed_at": self.schedule.hashed_at, "touched": self.schedule.touched}
        arrays["moved"] = np.packbits(self.moved)
        return {name: as_tensor(np.ascontiguousarray(part)) for name, part in arrays.items()}

    def check_saved(self, settings: dict[str, Any], tensors: dict[str, Tensor], weight: Tensor) -> None:
        """Raise a FileError if the saved index is over other rows, or hashed in another way; change nothing."""
        if not tensors:
            return
        saved = settings["index"]
        config = HashConfig(**saved["config"])
        # A config that follows the size is that of the size when the index was built, before classes were added.
        expected = self.config_for(settings.get("built_for", len(weight)), weight.shape[1])
        balanced = with_balance(expected, weight.shape[1]) if self.config is None else None
        if (saved["classes"], saved["features"]) != tuple(weight.shape) or config not in (expected, balanced):
            way_out = "make the head with the same config, or load with index=False"
            raise FileError(f"the saved index is hashed in another way than the head's; {way_out}")

    def restored(
        self, settings: dict[str, Any], tensors: dict[str, Tensor], weight: Tensor, bias: Tensor | None
    ) -> Self:
        """Return the index as it was saved; without tensors, one yet to be built. Raises where things do not fit."""
        new = self.unbuilt()
        new.schedule.cursor = check_count("cursor", settings["cursor"], low=0)
        new.schedule.step = check_count("step", settings["step"], low=0)
        new.schedule.moves_wait = bool(settings.get("moves_wait", False))
        if not tensors:
            return new
        arrays = {name: marked_rows(tensor) for name, tensor in tensors.items()}
        new.schedule.hashed_at = arrays.pop("hashed_at").copy()
        new.schedule.touched = arrays.pop("touched").copy()
        moved = arrays.pop("moved", None)
        own = arrays.pop("rows", None)  # older files have some for every head of bfloat16
        rows = own.copy() if self.unit_rows and own is not None else self._hashed(weight)
        if new.schedule.hashed_at.shape != (len(rows),) or rows.shape != tuple(weight.shape):
            raise InputError(f"the saved index is for {rows.shape} rows; the head has {tuple(weight.shape)}")
        size = sum(part.nbytes for part in arrays.values()) + rows.nbytes
        arrays["rows"] = rows
        new.built = restore_index(ClassIndex, settings["index"], arrays, size, torch.get_num_threads())
        new.fresh = bool(settings.get("fresh", False))
        # Files from before do not say which rows have moved: all of them may have.
        unsaid = np.full(len(rows), not new.fresh)
        new.moved = unsaid if moved is None else np.unpackbits(moved, count=len(rows)).astype(np.bool_)
        new.built_for = check_count("built_for", settings.get("built_for", len(rows)))
        new.builds = check_count("builds", settings.get("builds", 1))
        new.rehashed = check_count("rehashed", settings.get("rehashed", 0), low=0)
        new._start_watching(weight, bias)
        return new

    def _hashed(self, rows: Tensor) -> npt.NDArray[Any]:
        """Return rows as the index sees them, in their own type: a view, or a copy where they get unit length."""
        values = marked_rows(rows)
        if not self.unit_rows:
            return values
        scaled = np.empty_like(values)
        for begin in range(0, len(values), UNIT_SLICE):
            part = slice(begin, begin + UNIT_SLICE)
            wide = as_floats(values[part], np.float64 if values.dtype == np.float64 else np.float32)
            scaled[part] = as_rows(unit(wide), values.dtype)
        return scaled


def unit(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return rows of length one; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: npt.NDArray[Any] = rows / np.where(lengths > 0, lengths, 1)
    return scaled.astype(rows.dtype, copy=False)


def _floats(bias: Tensor | None) -> Any:
    return None if bias is None else array(bias.float())
