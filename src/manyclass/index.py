"""The index: build it over the rows of an output layer, search it, keep it up to date.

Longer than our usual file because it is the whole public face of the library, most of it signatures and docstrings.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from manyclass._backend import default_threads, index_class
from manyclass._index_file import load_index, save_index
from manyclass._reference.cells import Centres, find_centres
from manyclass._validation import (
    Floats,
    Ids,
    check_count,
    check_finite,
    check_floats,
    check_ids,
    check_names,
    check_rows,
    check_vectors,
    not_finite,
)
from manyclass._windows_and_signs import draw_signs, draw_windows
from manyclass.config import HashConfig
from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.quality import Quality, compare, exact_answer

Progress = Callable[[int, int], None]
_Method = TypeVar("_Method", bound=Callable[..., Any])
BUILD_SLICE = 65_536  # rows between two calls of a progress callback
MOST_THREADS = 255
MOST_K = 65_536  # best classes a search may ask for where there are fewer classes than that
SAMPLE = 20_000  # rows from which centre and vote weights are estimated


@dataclass(frozen=True)
class TopK:
    """The best classes of each query, best first; -1 (logit and log_prob -inf) where fewer were found.

    log_probs are over the candidates, as in the paper: softmax normalised over them, or log sigmoid of each logit.
    """

    classes: Ids  # (n, k), or (k,) for a single query
    logits: Floats
    log_probs: Floats


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
    """Winner-take-all index over the class rows of an output layer. Make one with `build` or `load`.

    Searches may run from many threads, also while another thread refreshes: each class is seen entirely before or
    entirely after a change.
    """

    def __init__(self, config: HashConfig, features: int) -> None:
        config.check_features(features)
        windows = draw_windows(config, features) if config.bands else None
        self.config = config
        self.features = features
        self.names: list[str] | None = None
        self._changing = threading.RLock()  # one change, or one look at the whole index, at a time
        _ALL.add(self)
        self._rows: npt.NDArray[Any] = np.empty((0, features), np.float32)
        self._owned = self._rows[:0]  # room for appended rows; empty while the rows are the caller's
        self._always: Ids = np.empty(0, np.int64)
        self._vote_weights: Floats = np.zeros(1, np.float32)
        self._centres: Centres | None = None  # of the cells, where there are any
        self._state = index_class()(
            features=features,
            skip_silent=config.skip_silent,
            rescore=config.rescore,
            blocked=config.probes == 1,
            permutations=windows.permutations if windows else None,
            offsets=windows.offsets if windows else None,
            bands=config.bands,
            exact_keys=config.keys == "exact",
            scan_bits=config.scan_bits,
            sketch_bits=config.sketch_bits,
            signs=draw_signs(config, features) if config.scan_bits or config.sketch_bits else None,
            cells=config.cells,
        )

    @classmethod
    def build(
        cls,
        rows: npt.NDArray[Any],
        *,
        bias: npt.ArrayLike | None = None,
        config: HashConfig | None = None,
        names: Sequence[str] | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Return an index over rows (classes, features) of any float type.

        Keeps a view of the rows, which may be a memory map: change them in place and call `refresh`.
        progress: called with (rows done, rows in all).
        """
        check_rows("rows", rows)
        count, features = rows.shape
        if config is None:
            config = HashConfig.for_problem(count, features)
        if not isinstance(config, HashConfig):
            raise InputTypeError(f"config is a {type(config).__name__}; pass a HashConfig")
        checked_bias = None if bias is None else check_floats("bias", bias, count)
        checked_names = None if names is None else check_names("names", names, count)
        if progress is not None and not callable(progress):
            raise InputTypeError(f"progress={progress!r} cannot be called; give a function of (done, total)")
        workers = _threads(threads)
        index = cls(config, features)
        index.names = checked_names
        index._bind(rows)
        centre = _centre(rows) if config.scan_bits or config.sketch_bits else None
        index._state.start_build(count, checked_bias, centre)
        if config.cells and centre is not None:
            file = functools.partial(index._nearest_cells, threads=workers)
            index._set_centres(find_centres(rows, checked_bias, centre, config, file))
        for begin in range(0, count, BUILD_SLICE):
            end = min(count, begin + BUILD_SLICE)
            bad = index._state.encode(begin, end, workers)
            if bad < end:
                raise not_finite("rows", bad)
            if progress:
                progress(end, count)
        index._state.finish_build(workers)
        index._fit_ranking()
        return index

    @property
    def classes(self) -> int:
        """Number of class ids, removed ones included."""
        return int(self._state.classes)

    @property
    def rows(self) -> npt.NDArray[Any]:
        """The rows the index looks at: the caller's own array until `append` made a longer one."""
        return self._rows

    def search(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        threads: int | None = None,
    ) -> TopK:
        """Return the k best classes of each query among `candidates` retrieved ones.

        queries: (features,) or (count, features). More candidates, closer to the exact answer: it is the one knob.
        """
        k = check_count("k", k)
        wanted, keep = self._breadth(candidates)
        if k > max(self.classes, MOST_K):
            raise InputError(f"k={k} is more than there are classes ({self.classes}); ask for fewer")
        if k > (self.config.candidates if candidates is None else candidates):
            raise InputError(f"k={k} is more than candidates={candidates or self.config.candidates}; raise candidates")
        vectors, single = check_vectors("queries", queries, self.features)
        top = self._search(vectors, k, wanted, keep, _threads(threads))
        return TopK(top.classes[0], top.logits[0], top.log_probs[0]) if single else top

    def retrieve(
        self, queries: npt.ArrayLike, candidates: int | None = None, *, threads: int | None = None
    ) -> tuple[Ids, Floats]:
        """Return the candidates themselves, ids ascending then -1, and their exact logits (-inf where absent)."""
        wanted, keep = self._breadth(candidates)
        vectors, single = check_vectors("queries", queries, self.features)
        ids = np.empty((len(vectors), wanted), np.int64)
        logits = np.empty((len(vectors), wanted), np.float32)
        self._search(vectors, 1, wanted, keep, _threads(threads), ids, logits)
        return (ids[0], logits[0]) if single else (ids, logits)

    def shortlist(self, queries: npt.ArrayLike, candidates: int | None = None, *, threads: int | None = None) -> Ids:
        """Return candidate ids alone, likeliest first by the index's own ranking, then -1; no exact logits.

        What training needs: logits of the chosen classes are computed there, with their gradients.
        """
        wanted, keep = self._breadth(candidates)
        vectors, single = check_vectors("queries", queries, self.features)
        ids = np.empty((len(vectors), wanted), np.int64)
        bad = self._state.shortlist(vectors, keep, self._parts(wanted), _threads(threads), ids)
        if bad >= 0:
            raise not_finite("queries", bad)
        return ids[0] if single else ids

    def votes(self, query: npt.ArrayLike) -> npt.NDArray[np.uint16]:
        """Return in how many bands each class shares the query's bucket: the paper's counts, (classes,)."""
        if not self.config.bands:
            raise ConfigError("bands=0: this index has no tables and so no votes; build with HashConfig.paper()")
        vectors, single = check_vectors("query", query, self.features)
        if not single:
            raise InputError(f"query has shape {vectors.shape}; votes are for one query: ({self.features},)")
        check_finite("query", vectors)
        counts = np.empty(self.classes, np.uint16)
        self._state.votes(vectors[0], counts)
        return counts

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

        Only bands whose bucket changed are touched. All is checked before anything changes.
        """
        workers = _threads(threads)
        wanted = check_ids("ids", ids, self.classes)
        checked_bias = None if bias is None else check_floats("bias", bias, len(wanted))
        if (rows is not None or bias is not None) and len(wanted) > 1 and len(np.unique(wanted)) != len(wanted):
            raise InputError("ids repeat a class, so its new values are ambiguous; give each id once")
        new_bytes = None
        if rows is not None:
            new_bytes = self._new_rows("rows", rows, len(wanted))
            if not self._rows.flags.writeable:
                raise InputError("the index's rows are read-only (a memory map?); load with mmap=False or rebuild")
        else:
            bad = self._state.first_bad_row(wanted, workers)
            if bad < len(wanted):
                raise not_finite("rows", int(wanted[bad]))
        self._state.refresh(wanted, checked_bias, new_bytes, workers)

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

        Searches may go on meanwhile.
        """
        workers = _threads(threads)
        vectors, single = check_vectors("rows", rows, self.features)
        if single:
            raise InputError(f"rows has shape {vectors.shape[1:]}; expected (count, {self.features})")
        count = len(vectors)
        checked_bias = None if bias is None else check_floats("bias", bias, count)
        if (names is None) != (self.names is None) and self.classes:
            raise InputError(f"names is {'missing' if names is None else 'given'}, unlike for the first classes")
        checked_names = None if names is None else check_names("names", names, count)
        added = self._new_rows("rows", rows, count).view(self._rows.dtype)
        first = self.classes
        grown = self._owned
        if len(grown) < first + count:
            grown = np.empty((first + count + first // 2, self.features), self._rows.dtype)
            grown[:first] = self._rows[:first]
            self._owned = grown
        grown[first : first + count] = added
        self._bind(grown[: first + count])
        self._state.append(count, checked_bias, workers)
        if checked_names is not None:
            self.names = [*(self.names or []), *checked_names]
        return range(first, first + count)

    @_one_at_a_time
    def remove(self, ids: npt.ArrayLike | slice) -> None:
        """Take classes out: no search returns them again. Ids of the others stay as they are."""
        gone = check_ids("ids", ids, self.classes)
        self._state.remove(gone)
        self._always = self._always[~np.isin(self._always, gone)]

    @_one_at_a_time
    def rebind(self, rows: npt.NDArray[Any]) -> None:
        """Look at another array of the same shape (a moved or reloaded weight); call `refresh` for rows that differ."""
        check_rows("rows", rows)
        if rows.shape != (self.classes, self.features):
            raise InputError(f"rows has shape {rows.shape}; expected {(self.classes, self.features)}")
        self._owned = self._rows[:0]
        self._bind(rows)

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
        """Return how much of the exact answer a search keeps on these queries. Cost: that of the exact layer."""
        wanted, _ = self._breadth(candidates)
        vectors, _ = check_vectors("queries", queries, self.features)
        check_finite("queries", vectors)
        checked = None if labels is None else check_ids("labels", labels, self.classes)
        if checked is not None and len(checked) != len(vectors):
            raise InputError(f"labels has {len(checked)} entries for {len(vectors)} queries; give one each")
        k = min(check_count("k", k), wanted)
        found = self.search(vectors, k, candidates=wanted, threads=threads).classes
        _, logits = self.retrieve(vectors, wanted, threads=threads)
        exact = exact_answer(self._rows[: self.classes], self._state.bias(), vectors, k, self._state.removed())
        return compare(found, logits, exact, wanted, checked)

    @_one_at_a_time
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index with its rows to one file: the old file or the new one, never anything between."""
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
        """Return the index in a file. mmap: leave the rows on disk (read-only) and page them in as needed.

        verify=False skips the checksums of the data, for files too large to read at start.
        """
        return cast(Self, load_index(cls, os.fspath(path), mmap, verify, _threads(threads)))

    def memory_report(self) -> dict[str, float]:
        """Return bytes per class by part; `rows` is the caller's own array."""
        parts = {name: float(size) for name, size in self._state.bytes().items()}
        parts["rows"] = float(self._rows.itemsize * self.features * self.classes)
        if self.names is not None:
            parts["names"] = float(sum(len(name.encode()) for name in self.names))
        return {name: size / max(1, self.classes) for name, size in parts.items()}

    def __repr__(self) -> str:
        return f"ClassIndex({self.classes:,} classes × {self.features} features, {self.config.pipeline})"

    def _bind(self, rows: npt.NDArray[Any]) -> None:
        viewed, kind = check_rows("rows", rows)
        self._state.bind_rows(viewed, kind)
        self._rows = rows

    def _new_rows(self, name: str, rows: Any, count: int) -> npt.NDArray[np.uint8]:
        """Return new rows in the index's own type, as bytes."""
        vectors, _ = check_vectors(name, rows, self.features)
        check_finite(name, vectors)
        if np.ndim(rows) != 2 or len(vectors) != count:
            raise InputError(f"{name} has shape {np.shape(rows)}; expected ({count}, {self.features})")
        if self._rows.dtype == np.float32:
            return vectors.view(np.uint8)
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(np.asarray(rows).astype(self._rows.dtype, copy=False))
        if not np.isfinite(stored.astype(np.float32)).all():
            raise InputError(f"{name} overflows the index's {self._rows.dtype} rows; scale it down")
        return stored.view(np.uint8).reshape(count, self.features * self._rows.itemsize)

    def _breadth(self, candidates: int | None) -> tuple[int, int]:
        """Return how many classes get exact logits, and how many the tables hand on."""
        wanted = check_count("candidates", self.config.candidates if candidates is None else candidates)
        if not self.config.bands and not self.config.scan_bits:
            return max(1, self.classes), max(1, self.classes)
        wanted = max(1, min(wanted, self.classes))
        if self.config.sketch_bits or self.config.rescore or self.config.probes > 1:
            return wanted, min(wanted * self.config.breadth, max(1, self.classes * self.config.probes))
        return wanted, wanted

    def _parts(self, candidates: int) -> int:
        """Return how many cells a search scans, or how many buckets of a band it reads."""
        return self.config.cells_scanned(candidates) if self.config.cells else self.config.probes

    def _search(
        self,
        vectors: Floats,
        k: int,
        candidates: int,
        keep: int,
        threads: int,
        ids: Ids | None = None,
        id_logits: Floats | None = None,
    ) -> TopK:
        shape = (len(vectors), k)
        top = TopK(np.empty(shape, np.int64), np.empty(shape, np.float32), np.empty(shape, np.float32))
        status = self._state.search(
            vectors,
            candidates,
            keep,
            self._parts(candidates),
            threads,
            self.config.output == "logistic",
            top.classes,
            top.logits,
            top.log_probs,
            ids,
            id_logits,
        )
        if status >= 0:
            raise not_finite("queries", status)
        if status < -1:
            raise InputError(f"queries[{-2 - status}] gives logits beyond float32 with these rows; scale either down")
        return top

    def _fit_ranking(self) -> None:
        """Choose always-candidates and vote weights from the rows themselves."""
        count = self.classes
        if self.config.always and count:
            norms, bias = self._state.norms(), self._state.bias()
            # A class unrelated to the query reaches about |x||w| 4/sqrt(features); take |x| to be a typical row's.
            reach = norms * (float(norms.mean()) * 4 / np.sqrt(self.features)) + bias
            best = np.argsort(-reach, kind="stable")[: self.config.always]
            self._set_always(np.sort(best).astype(np.int64))
        if self.config.rescore:
            self._set_vote_weights(fit_vote_weights(self))

    def _set_always(self, ids: Ids) -> None:
        self._always = check_ids("always", ids, self.classes)
        self._state.set_always(self._always)

    def _set_centres(self, centres: Centres) -> None:
        self._centres = centres
        self._state.set_cells(centres.levels, centres.biases, centres.scale)

    def _nearest_cells(self, residuals: Floats, bias: Floats, centres: Centres, threads: int) -> npt.NDArray[np.uint16]:
        self._set_centres(centres)
        cells = np.empty(len(residuals), np.uint16)
        self._state.nearest_cells(residuals, bias, threads, cells)
        return cells

    def _set_vote_weights(self, weights: Floats) -> None:
        self._vote_weights = weights
        self._state.set_vote_weights(weights)


def _threads(threads: int | None) -> int:
    return default_threads() if threads is None else min(MOST_THREADS, check_count("threads", threads))


def _centre(rows: npt.NDArray[Any]) -> Floats:
    """Return the mean of (a sample of) the rows: subtracting it changes no ranking and sharpens the sketch."""
    if not len(rows):
        return np.zeros(rows.shape[1], np.float32)
    step = max(1, len(rows) // SAMPLE)
    with np.errstate(invalid="ignore", over="ignore"):
        centre = rows[::step].astype(np.float64).mean(axis=0).astype(np.float32)
    return np.where(np.isfinite(centre), centre, np.float32(0))


def fit_vote_weights(index: ClassIndex) -> Floats:
    """Return f(votes), a guess at the cosine: a + b·cbrt(votes), fitted on sums of two rows as queries."""
    count, bands = index.classes, index.config.bands
    if not count:
        return np.cbrt(np.arange(bands + 1)).astype(np.float32)
    pairs = np.linspace(0, count - 1, 64).astype(np.int64)
    rows = index._rows
    cosines, roots = [], []
    for first, second in zip(pairs, np.roll(pairs, 1), strict=True):
        query = rows[first].astype(np.float32) + rows[second].astype(np.float32)
        votes = index.votes(query)
        seen = np.argsort(-votes.astype(np.int32), kind="stable")[:: max(1, count // 256)][:256]
        part = rows[seen].astype(np.float32)
        lengths = np.linalg.norm(part, axis=1) * np.linalg.norm(query)
        cosines.append((part @ query) / np.where(lengths > 0, lengths, 1))
        roots.append(np.cbrt(votes[seen].astype(np.float32)))
    x, y = np.concatenate(roots).astype(np.float64), np.concatenate(cosines).astype(np.float64)
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0 else 1.0
    slope = max(slope, 1e-6)  # more votes never mean less
    weights: Floats = (y.mean() + slope * (np.cbrt(np.arange(bands + 1)) - x.mean())).astype(np.float32)
    return weights
