"""The index: build it over the rows of an output layer, search it, keep it up to date.

Longer than our usual file because it is the whole public face of the library, most of it signatures and docstrings.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from manyclass._backend import default_threads
from manyclass._index_file import load_index, save_index
from manyclass._index_state import IndexState, Progress
from manyclass._row_types import as_floats, as_rows
from manyclass._search_sizes import SearchSizes, search_sizes
from manyclass._self_configuration.building import adapted, build_and_choose, build_as_told
from manyclass._self_configuration.chooser import Layer
from manyclass._self_configuration.query_sample import checked_sample
from manyclass._self_configuration.wishes import checked_wishes
from manyclass._topk import TopK
from manyclass._validation import (
    Floats,
    Ids,
    check_biases,
    check_count,
    check_excluded,
    check_finite,
    check_ids,
    check_names,
    check_rows,
    check_vectors,
    not_finite,
)
from manyclass.config import MAX_THREADS, HashConfig
from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.quality import Quality, compare, exact_answer
from manyclass.report import Measured, Report

_Method = TypeVar("_Method", bound=Callable[..., Any])
MOST_K = 65_536  # best classes a search may ask for where there are fewer classes than that


_ALL: weakref.WeakSet[ClassIndex] = weakref.WeakSet()


def _new_locks() -> None:
    """A forked child may inherit locks held by threads it does not have."""
    for index in _ALL:
        index._changing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_locks)


def _one_at_a_time(method: _Method) -> _Method:
    """Run a method under the index's own lock."""

    @functools.wraps(method)
    def locked(self: ClassIndex, *args: Any, **kwargs: Any) -> Any:
        with self._changing:
            return method(self, *args, **kwargs)

    return cast(_Method, locked)


class ClassIndex:
    """Index over the class rows of an output layer: finds the classes with the largest logits of a query.

    Make one with `build` or `load`. Searches may run from many threads, also while another thread refreshes: each class
    is seen entirely before or entirely after a change.

    config: HashConfig. Sizes and stages, as given to `build` or chosen by it.
    features: int. Width of rows and queries.
    names: list[str] | None. Names of the classes, kept with the index and saved with it.
    measured: Measured. What was measured when it was built; `report` puts it into words.
    state: IndexState. What the index is made of, for those who store it; to change it is to go behind the index's back.
    """

    def __init__(self, state: IndexState, names: list[str] | None = None) -> None:
        self.state = state
        self.config = state.config
        self.features = state.features
        self.names = names
        self.measured = Measured()
        self._seconds: dict[str, float] = {}
        self._owned = state.rows[:0]  # room for appended rows; empty while the rows are the caller's
        self._changing = threading.RLock()  # one change, or one look at the whole index, at a time
        _ALL.add(self)

    @classmethod
    def build(
        cls,
        rows: npt.NDArray[Any],
        *,
        bias: npt.ArrayLike | None = None,
        queries: npt.ArrayLike | None = None,
        target: float = 0.99,
        metric: Literal["top1", "recall"] = "top1",
        k: int = 10,
        optimize: Literal["batch", "single"] = "batch",
        memory: int | None = None,
        config: HashConfig | None = None,
        names: Sequence[str] | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Return an index over the rows of an output layer. Keeps a view: change rows in place and call `refresh`.

        rows: array (classes, features) of float32, float64, float16 or bfloat16; may be a memory map.
        bias: floats (classes,) = None. Give the layer's bias: without it classes are ranked as if it were zero. -inf
            masks a class: no search returns it until `refresh` gives it another bias.
        queries: floats (count, features) = None. A sample of real queries, best a few thousand: the index balances rows
            with them, tries a short list of settings on one half and reports on the other. None: it makes do with
            stand-ins from the rows, and leaves more room for error.
        target: float = 0.99. Share of the exact answer to keep with `config.candidates` candidates.
        metric: "top1" or "recall" = "top1". What the target is about: the best class, or the best k.
        k: int = 10. Of "recall", and of the report.
        optimize: "batch" or "single" = "batch". Whether queries come many at a time, or one by one.
        memory: int = None. Bytes the index may take beside the rows; None sets no limit.
        config: HashConfig = None. Settings to use as they are; nothing is tried or measured then, and the five
            arguments above are not used, but for queries, which a config with a balance is fitted to.
        names: strings, one per class = None. Kept and saved with the index; searches return ids all the same.
        threads: int = None. None uses all cores; fewer where other work runs beside.
        progress: function = None. Called with (rows done, rows in all); for builds that take minutes. While settings
            are tried it is called with (0, rows) after each, and a second build may start over.

        Cost: rows × (codes × window comparisons, or a rotation per sketch); to choose takes about twice as long again.
        The same arguments give the same index: quality is measured, but work is counted, not timed.
        """
        check_rows("rows", rows)
        count, features = rows.shape
        if config is not None and not isinstance(config, HashConfig):
            raise InputTypeError(f"config is a {type(config).__name__}; pass a HashConfig")
        wishes = checked_wishes(target, metric, k, optimize, memory)
        sample = None if queries is None else checked_sample("queries", queries, features)
        checked_bias = None if bias is None else check_biases("bias", bias, count)
        checked_names = None if names is None else check_names("names", names, count)
        if progress is not None and not callable(progress):
            raise InputTypeError(f"progress={progress!r} cannot be called; give a function of (done, total)")
        layer = Layer(rows, checked_bias, _threads(threads), progress)
        made = build_and_choose(layer, sample, wishes) if config is None else build_as_told(config, layer, sample)
        index = cls(made.state, checked_names)
        index.measured, index._seconds = made.measured, made.seconds
        return index

    @property
    def classes(self) -> int:
        """Number of class ids, removed ones included."""
        return self.state.classes

    @property
    def rows(self) -> npt.NDArray[Any]:
        """The rows the index looks at: the caller's own array until `append` made a longer one."""
        return self.state.rows

    def search(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        exclude: npt.ArrayLike | None = None,
        threads: int | None = None,
    ) -> TopK[npt.NDArray[Any]]:
        """Return the k best classes of each query, best first, with logits and log probabilities.

        queries: floats (features,) or (count, features). Batches are faster per query than single ones.
        k: int = 10. Classes to return per query; at most `candidates`.
        candidates: int = None. Classes that get an exact logit; None takes the config's. More of them come closer to
            the exact answer and cost more time: the one knob to turn.
        exclude: whole numbers (m,) for one query, or (count, m) = None. Classes not to return, padded with -1: what a
            user has seen. They take nobody's place: each stage looks for as many more, so that all `candidates` are
            other classes, and k of them are returned, wherever that many others are among what the stage can see (all
            classes for a scan, the cells scanned for cells, the buckets read for tables).
        threads: int = None. None uses all cores.
        """
        k = check_count("k", k)
        sizes = self._sizes(candidates)
        if k > max(self.classes, MOST_K):
            raise InputError(f"k={k} is more than there are classes ({self.classes}); ask for fewer")
        if k > (self.config.candidates if candidates is None else candidates):
            raise InputError(f"k={k} is more than candidates={candidates or self.config.candidates}; raise candidates")
        vectors, single = check_vectors("queries", queries, self.features)
        left_out = self._excluded(exclude, len(vectors), single)
        classes, logits, log_probs = self._search(vectors, k, sizes, left_out, _threads(threads))
        if single:
            return TopK(classes=classes[0], log_probs=log_probs[0], logits=logits[0])
        return TopK(classes=classes, log_probs=log_probs, logits=logits)

    def retrieve(
        self,
        queries: npt.ArrayLike,
        candidates: int | None = None,
        *,
        exclude: npt.ArrayLike | None = None,
        threads: int | None = None,
    ) -> tuple[Ids, Floats]:
        """Return the candidates themselves, ids ascending then -1, and their exact logits (-inf where absent).

        queries: floats (features,) or (count, features).
        candidates: int = None. As in `search`; both results have that many columns, or as many as there are classes.
        exclude: whole numbers = None. As in `search`.
        threads: int = None. None uses all cores.
        """
        sizes = self._sizes(candidates)
        vectors, single = check_vectors("queries", queries, self.features)
        ids = np.empty((len(vectors), sizes.candidates), np.int64)
        logits = np.empty((len(vectors), sizes.candidates), np.float32)
        left_out = self._excluded(exclude, len(vectors), single)
        self._search(vectors, 1, sizes, left_out, _threads(threads), ids, logits)
        return (ids[0], logits[0]) if single else (ids, logits)

    def shortlist(
        self,
        queries: npt.ArrayLike,
        candidates: int | None = None,
        *,
        exclude: npt.ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ids:
        """Return candidate ids alone, likeliest first by the index's own ranking, then -1; no exact logits.

        What training needs: logits of the chosen classes are computed there, with their gradients.

        queries: floats (features,) or (count, features).
        candidates: int = None. As in `search`; the result has that many columns, or as many as there are classes.
        exclude: whole numbers = None. As in `search`.
        threads: int = None. None uses all cores.
        """
        sizes = self._sizes(candidates)
        vectors, single = check_vectors("queries", queries, self.features)
        ids = np.empty((len(vectors), sizes.candidates), np.int64)
        core, left_out = self.state.core, self._excluded(exclude, len(vectors), single)
        _raise_problem(core.shortlist(vectors, sizes.keep, sizes.probes, sizes.cells, _threads(threads), ids, left_out))
        return ids[0] if single else ids

    def votes(self, query: npt.ArrayLike) -> npt.NDArray[np.uint16]:
        """Return in how many bands each class shares the query's bucket: the paper's counts, uint16 (classes,).

        query: floats (features,). Needs a config with tables.
        """
        if not self.config.bands:
            raise ConfigError("bands=0: this index has no tables and so no votes; build with HashConfig.paper()")
        vectors, single = check_vectors("query", query, self.features)
        if not single:
            raise InputError(f"query has shape {vectors.shape}; votes are for one query: ({self.features},)")
        check_finite("query", vectors)
        return self.state.votes(vectors[0])

    @_one_at_a_time
    def refresh(
        self,
        ids: npt.ArrayLike | slice,
        rows: npt.NDArray[Any] | None = None,
        *,
        bias: npt.ArrayLike | None = None,
        threads: int | None = None,
    ) -> None:
        """Re-hash classes whose rows changed; with `rows` (or `bias`), store the new values first.

        ids: whole numbers or a slice. Classes that changed; each once where `rows` or `bias` are given.
        rows: floats (ids, features) = None. New rows, written into the array the index looks at; None where that array
            was changed in place.
        bias: floats (ids,) = None. New biases; None keeps the old ones. -inf masks a class, any other bias unmasks it.
        threads: int = None. None uses all cores.

        Only bands whose bucket changed are touched. All is checked before anything changes.
        """
        workers = _threads(threads)
        wanted = check_ids("ids", ids, self.classes)
        checked_bias = None if bias is None else check_biases("bias", bias, len(wanted))
        if (rows is not None or bias is not None) and len(wanted) > 1 and len(np.unique(wanted)) != len(wanted):
            raise InputError("ids repeat a class, so its new values are ambiguous; give each id once")
        new_bytes = None
        if rows is not None:
            new_bytes = self._new_rows("rows", rows, len(wanted))
            if not self.rows.flags.writeable:
                raise InputError("the index's rows are read-only (a memory map?); load with mmap=False or rebuild")
        else:
            bad = self.state.core.first_bad_row(wanted, workers)
            if bad < len(wanted):
                raise not_finite("rows", int(wanted[bad]))
        self.state.core.refresh(wanted, checked_bias, new_bytes, workers)
        self.state.settle()

    @_one_at_a_time
    def append(
        self,
        rows: npt.NDArray[Any],
        *,
        bias: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> range:
        """Add classes and return their ids. From then on the index owns a copy of all rows, with room to grow.

        rows: floats (count, features). Converted to the type of the rows that are there.
        bias: floats (count,) = None. None means zero; -inf masks a class.
        names: strings, one per new class = None. Needed if the index has names, refused if it has none.
        threads: int = None. None uses all cores.

        Searches may go on meanwhile, and find the new classes as they come. Where memory runs out, none is added.
        """
        workers = _threads(threads)
        vectors, single = check_vectors("rows", rows, self.features)
        if single:
            raise InputError(f"rows has shape {vectors.shape[1:]}; expected (count, {self.features})")
        count = len(vectors)
        checked_bias = None if bias is None else check_biases("bias", bias, count)
        if (names is None) != (self.names is None) and self.classes:
            raise InputError(f"names is {'missing' if names is None else 'given'}, unlike for the first classes")
        checked_names = None if names is None else check_names("names", names, count)
        added = self._new_rows("rows", rows, count).view(self.rows.dtype)
        first = self.classes
        grown = self._owned
        if len(grown) < first + count:
            grown = np.empty((first + count + first // 2, self.features), self.rows.dtype)
            grown[:first] = self.rows[:first]
            self._owned = grown
        grown[first : first + count] = added
        new_ids = self._append_bound(grown[: first + count], checked_bias, workers)
        if checked_names is not None:
            self.names = [*(self.names or []), *checked_names]
        return new_ids

    @_one_at_a_time
    def lengthen(
        self, rows: npt.NDArray[Any], *, bias: npt.ArrayLike | None = None, threads: int | None = None
    ) -> range:
        """Look at a longer array of your own from now on, whose rows beyond the classes there are become new ones.

        `append` without a copy of the rows: for a layer that grows in place. Returns the new ids.

        rows: array (more classes, features), as for `build`; it begins with the rows there are.
        bias: floats, one per new class = None. None means zero; -inf masks a class.
        threads: int = None. None uses all cores.
        """
        workers = _threads(threads)
        check_rows("rows", rows)
        first = self.classes
        if rows.shape[1] != self.features or len(rows) < first:
            raise InputError(f"rows has shape {rows.shape}; expected ({first} or more, {self.features})")
        if self.names is not None:
            raise InputError("the index has names, and new classes would have none; use append")
        checked_bias = None if bias is None else check_biases("bias", bias, len(rows) - first)
        check_finite("rows", as_floats(rows[first:]))
        self._owned = self.rows[:0]
        return self._append_bound(rows, checked_bias, workers)

    def _append_bound(self, rows: npt.NDArray[Any], bias: Floats | None, threads: int) -> range:
        """Look at longer rows and add those beyond the classes there are; where memory runs out, none is added."""
        first, before = self.classes, self.rows
        self.state.bind(rows)
        try:
            self.state.core.append(len(rows) - first, bias, threads)
        except MemoryError:
            self.state.bind(before)
            raise
        self.state.settle()
        return range(first, len(rows))

    @_one_at_a_time
    def remove(self, ids: npt.ArrayLike | slice) -> None:
        """Take classes out: no search returns them again. Ids of the others stay as they are.

        ids: whole numbers or a slice. Classes to take out; those that are out already may be among them.
        """
        self.state.core.remove(check_ids("ids", ids, self.classes))
        self.state.settle()

    @_one_at_a_time
    def rebind(self, rows: npt.NDArray[Any]) -> None:
        """Look at another array of the same shape (a moved or reloaded weight); call `refresh` for rows that differ.

        rows: array (classes, features), as for `build`.
        """
        check_rows("rows", rows)
        if rows.shape != (self.classes, self.features):
            raise InputError(f"rows has shape {rows.shape}; expected {(self.classes, self.features)}")
        self._owned = self.rows[:0]
        self.state.bind(rows)

    @_one_at_a_time
    def check(
        self,
        queries: npt.ArrayLike,
        labels: npt.ArrayLike | None = None,
        *,
        k: int = 10,
        candidates: int | None = None,
        threads: int | None = None,
    ) -> Quality:
        """Return how much of the exact answer a search keeps on these queries.

        queries: floats (features,) or (count, features). A few hundred from the real distribution.
        labels: class ids, one per query = None. Give them where you have them: accuracy kept is what matters.
        k: int = 10. Classes per query that recall looks at.
        candidates: int = None. As in `search`.
        threads: int = None. None uses all cores.

        Cost: that of the exact layer.
        """
        wanted = self._sizes(candidates).candidates
        vectors, _ = check_vectors("queries", queries, self.features)
        check_finite("queries", vectors)
        checked = None if labels is None else check_ids("labels", labels, self.classes)
        if checked is not None and len(checked) != len(vectors):
            raise InputError(f"labels has {len(checked)} entries for {len(vectors)} queries; give one each")
        k = min(check_count("k", k), wanted)
        found = self.search(vectors, k, candidates=wanted, threads=threads).classes
        _, logits = self.retrieve(vectors, wanted, threads=threads)
        exact = exact_answer(self.rows[: self.classes], self.state.core.bias(), vectors, k, self.state.core.removed())
        return compare(found, logits, exact, wanted, checked)

    def report(self) -> Report:
        """Return what the index chose, what it measured, and what to expect at which candidates: print it."""
        own = sum(size for part, size in self.memory_report().items() if part not in ("rows", "names"))
        return Report(self.config, self.classes, self.features, self.measured, own, dict(self._seconds))

    @_one_at_a_time
    def adapt(self, queries: npt.ArrayLike, *, threads: int | None = None) -> Report:
        """Fit the index to new queries, when those have drifted, and return a new report on them.

        queries: floats (count, features). A sample of queries as they are now, best a few thousand.
        threads: int = None. None uses all cores.

        Balance and cells are found anew; rows, biases, names, removed classes and the config stay. Searches go on
        meanwhile and see all of the old index or all of the new. Without a balance there is nothing to fit, and only
        the report is new. Cost: that of a build, and the exact answer of some queries.
        """
        workers = _threads(threads)
        sample = checked_sample("queries", queries, self.features)
        made = adapted(self.state, sample, self.measured, workers)
        self.state, self.measured, self._seconds = made.state, made.measured, made.seconds
        return self.report()

    @_one_at_a_time
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index with its rows to one file: the old file or the new one, never anything between.

        path: where to. A file that is there is replaced; docs/files.md has the format.
        """
        save_index(self, os.fspath(path))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        mmap: bool = False,
        verify: bool = True,
        threads: int | None = None,
    ) -> Self:
        """Return the index in a file.

        path: a file that `save` wrote.
        mmap: bool = False. True leaves the rows on disk, read-only, and pages them in as needed: for large rows.
        verify: bool = True. False skips the checksums of the data: for files too large to read at start.
        threads: int = None. None uses all cores to rebuild the tables.
        """
        return cast(Self, load_index(cls, os.fspath(path), mmap, verify, _threads(threads)))

    def memory_report(self) -> dict[str, float]:
        """Return bytes per class by part; `rows` is the caller's own array."""
        parts = {name: float(size) for name, size in self.state.core.bytes().items()}
        parts["rows"] = float(self.rows.itemsize * self.features * self.classes)
        if self.names is not None:
            parts["names"] = float(sum(len(name.encode()) for name in self.names))
        return {name: size / max(1, self.classes) for name, size in parts.items()}

    def __repr__(self) -> str:
        return f"ClassIndex({self.classes:,} classes × {self.features} features, {self.config.pipeline})"

    def _new_rows(self, name: str, rows: Any, count: int) -> npt.NDArray[np.uint8]:
        """Return new rows in the index's own type, as bytes."""
        vectors, _ = check_vectors(name, rows, self.features)
        check_finite(name, vectors)
        if np.ndim(rows) != 2 or len(vectors) != count:
            raise InputError(f"{name} has shape {np.shape(rows)}; expected ({count}, {self.features})")
        if self.rows.dtype == np.float32:
            return vectors.view(np.uint8)
        with np.errstate(over="ignore"):
            given = np.asarray(rows)
            stored = np.ascontiguousarray(given if given.dtype == self.rows.dtype else as_rows(given, self.rows.dtype))
        if not np.isfinite(as_floats(stored)).all():
            raise InputError(f"{name} overflows the index's {self.rows.dtype} rows; scale it down")
        return stored.view(np.uint8).reshape(count, self.features * self.rows.itemsize)

    def _sizes(self, candidates: int | None) -> SearchSizes:
        """Return how much a search looks at for so many candidates."""
        wanted = check_count("candidates", self.config.candidates if candidates is None else candidates)
        return search_sizes(self.config, self.classes, wanted)

    def _excluded(self, exclude: npt.ArrayLike | None, queries: int, single: bool) -> Ids | None:
        return None if exclude is None else check_excluded("exclude", exclude, self.classes, queries, single)

    def _search(
        self,
        vectors: Floats,
        k: int,
        sizes: SearchSizes,
        excluded: Ids | None,
        threads: int,
        ids: Ids | None = None,
        id_logits: Floats | None = None,
    ) -> tuple[Ids, Floats, Floats]:
        """Return classes, logits and log probabilities, (count, k); fill `ids` and `id_logits` where given."""
        classes, logits, log_probs, status = self.state.search(vectors, k, sizes, threads, excluded, ids, id_logits)
        _raise_problem(status)
        return classes, logits, log_probs


def _raise_problem(status: Any) -> None:
    """Raise where a search met numbers that it cannot work with; status is a SearchStatus of the backend."""
    if status.problem == "query not finite":
        raise not_finite("queries", status.query)
    if status.problem == "logits overflow":
        raise InputError(f"queries[{status.query}] gives logits beyond float32 with these rows; scale either down")


def _threads(threads: int | None) -> int:
    return default_threads() if threads is None else min(MAX_THREADS, check_count("threads", threads))
