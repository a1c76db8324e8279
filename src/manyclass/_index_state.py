"""What an index is made of: the core's object, the rows it looks at, and what was fitted to them.

`ClassIndex` is the face that users see; files and checkpoints read and restore this.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass._backend import core
from manyclass._balance import Balance
from manyclass._cell_centres import SAMPLE_PER_CELL, Centres, find_centres, typical_sample
from manyclass._row_types import as_floats
from manyclass._search_sizes import SearchSizes
from manyclass._typical import typical_rows
from manyclass._validation import Floats, Ids, check_ids, check_rows, not_finite
from manyclass._windows_and_signs import draw_signs, draw_windows
from manyclass.config import HashConfig

Progress = Callable[[int, int], None]
BUILD_SLICE = 65_536  # rows between two calls of a progress callback
SAMPLE = 20_000  # rows from which the mean row is estimated


class IndexState:
    """The state of one index. Not checked and not locked: `ClassIndex` does both.

    core: the native index or its NumPy twin; see `_reference.Index` for its methods.
    rows: what the core looks at. balance: the change of coordinates, with a config that has one. vote_weights:
    f(votes), a guess at the cosine. centres: of the cells, where there are any.
    """

    def __init__(self, config: HashConfig, features: int) -> None:
        config.check_features(features)
        width = config.width(features)
        windows = draw_windows(config, width) if config.bands else None
        self.config = config
        self.features = features
        self.rows: npt.NDArray[Any] = np.empty((0, features), np.float32)
        self.vote_weights: Floats = np.zeros(1, np.float32)
        self.balance: Balance | None = None
        self.centres: Centres | None = None
        self.core = core().Index(
            features=features,
            width=width,
            skip_silent=config.skip_silent,
            rescore=config.rescore,
            blocked=config.probes == 1,
            permutations=windows.permutations if windows else None,
            offsets=windows.offsets if windows else None,
            bands=config.bands,
            exact_keys=config.keys == "exact",
            scan_bits=config.scan_bits,
            sketch_bits=config.sketch_bits,
            signs=draw_signs(config, width) if config.scan_bits or config.sketch_bits else None,
            cells=config.cells,
        )

    @property
    def classes(self) -> int:
        return int(self.core.classes)

    def bind(self, rows: npt.NDArray[Any]) -> None:
        """Look at these rows from now on; says nothing about their codes."""
        viewed, kind = check_rows("rows", rows)
        self.core.bind_rows(viewed, kind)
        self.rows = rows

    def build(
        self,
        rows: npt.NDArray[Any],
        bias: Floats | None,
        threads: int,
        progress: Progress | None,
        balance: Balance | None = None,
    ) -> None:
        """Encode all rows, slice by slice, and fit what is fitted. A config with a balance needs one."""
        count = len(rows)
        self.bind(rows)
        if balance is not None:
            self.set_balance(balance)
        centre = self._centre() if self.config.scan_bits or self.config.sketch_bits else None
        self.core.start_build(count, bias, centre)
        if self.config.cells and centre is not None:
            nearest = functools.partial(self._nearest_cells, threads=threads)
            self.set_centres(find_centres(*self._sample_for_cells(bias, centre, threads), self.config, nearest))
        for begin in range(0, count, BUILD_SLICE):
            end = min(count, begin + BUILD_SLICE)
            bad = self.core.encode(begin, end, threads)
            if bad < end:
                raise not_finite("rows", bad)
            if progress:
                progress(end, count)
        self.core.finish_build(threads)
        self.settle()
        if self.config.rescore:
            self.set_vote_weights(fit_vote_weights(self))

    def _centre(self) -> Floats:
        """Return what is taken off every row before it is sketched; balanced rows have lost their mean already."""
        return mean_row(self.rows) if self.balance is None else np.zeros(self.balance.width, np.float32)

    def _sample_for_cells(self, bias: Floats | None, centre: Floats, threads: int) -> tuple[Floats, Floats]:
        """Return what cells are found from: rows minus the centre, or coordinates, and biases, or mean logits."""
        ids = sample_ids(len(self.rows), SAMPLE_PER_CELL * self.config.cells)
        leads = np.zeros(len(ids), np.float32) if bias is None else bias[ids]
        if self.balance is None:
            with np.errstate(invalid="ignore", over="ignore"):
                return typical_sample(as_floats(self.rows[ids]) - centre, leads)
        coordinates, mean_logits = self.row_coordinates(ids, threads)
        return typical_sample(coordinates, np.asarray(leads + mean_logits, np.float32))

    def row_coordinates(self, ids: Ids, threads: int = 1) -> tuple[Floats, Floats]:
        """Return balanced coordinates of some rows, (ids, width), and their mean logits without the bias."""
        coordinates = np.empty((len(ids), self.config.width(self.features)), np.float32)
        mean_logits = np.empty(len(ids), np.float32)
        self.core.map_rows(ids, threads, coordinates, mean_logits)
        return coordinates, mean_logits

    def query_coordinates(self, queries: Floats, threads: int = 1) -> Floats:
        """Return balanced coordinates of queries, (queries, width)."""
        coordinates = np.empty((len(queries), self.config.width(self.features)), np.float32)
        self.core.map_queries(queries, threads, coordinates)
        return coordinates

    def search(
        self,
        queries: Floats,
        k: int,
        sizes: SearchSizes,
        threads: int,
        excluded: Ids | None = None,
        ids: Ids | None = None,
        id_logits: Floats | None = None,
    ) -> tuple[Ids, Floats, Floats, Any]:
        """Return classes, logits and log probabilities, (queries, k), and the core's status; fill `ids`, `id_logits`.

        What is returned of a query with a problem, or after it, says nothing.
        """
        shape = (len(queries), k)
        classes, logits, log_probs = np.empty(shape, np.int64), np.empty(shape, np.float32), np.empty(shape, np.float32)
        logistic = self.config.output == "logistic"
        out = (classes, logits, log_probs, ids, id_logits)
        status = self.core.search(queries, *sizes, threads, logistic, *out, excluded)
        return classes, logits, log_probs, status

    def votes(self, query: Floats) -> npt.NDArray[np.uint16]:
        """Return in how many bands each class shares the bucket of one query, (classes,)."""
        counts = np.empty(self.classes, np.uint16)
        self.core.votes(query, counts)
        return counts

    @property
    def always(self) -> Ids:
        """Ids that are looked at for every query, ascending."""
        ids: Ids = self.core.always().astype(np.int64)
        return ids

    def settle(self) -> None:
        """Choose the always-candidates anew where the core no longer knows as many as there should be."""
        wanted = self.config.always
        if wanted and len(self.core.always()) < wanted and self.core.always_rule()[1] > -np.inf:
            self.set_always(*likeliest_by_norm_and_bias(self))

    def set_always(self, ids: Ids, scale: float, floor: float) -> None:
        self.core.set_always(check_ids("always", ids, self.classes), self.config.always, scale, floor)

    def set_balance(self, balance: Balance) -> None:
        """Take the change of coordinates; before anything is encoded or restored."""
        self.balance = balance
        self.core.set_balance(
            balance.mean, balance.centre, balance.scales, balance.query_levels, balance.query_units,
            balance.row_levels, balance.row_units,
        )  # fmt: skip

    def set_vote_weights(self, weights: Floats) -> None:
        self.vote_weights = weights
        self.core.set_vote_weights(weights)

    def set_centres(self, centres: Centres) -> None:
        self.centres = centres
        self.core.set_cells(centres.levels, centres.biases, centres.scale)

    def _nearest_cells(self, residuals: Floats, bias: Floats, centres: Centres, threads: int) -> npt.NDArray[np.uint16]:
        self.set_centres(centres)
        cells = np.empty(len(residuals), np.uint16)
        self.core.nearest_cells(residuals, bias, threads, cells)
        return cells


def sample_ids(count: int, size: int) -> Ids:
    """Return about `size` of the ids below count, evenly spread."""
    return np.arange(0, count, max(1, count // size), dtype=np.int64)


def mean_row(rows: npt.NDArray[Any]) -> Floats:
    """Return the mean of (a sample of) the rows: subtracting it changes no ranking and sharpens the sketch.

    Rows that are far longer than nearly all others are left out.
    """
    step = max(1, len(rows) // SAMPLE)
    with np.errstate(invalid="ignore", over="ignore"):
        sample = as_floats(rows[::step], np.float64)
        kept = typical_rows(sample)
        if not kept.any():
            return np.zeros(rows.shape[1], np.float32)
        centre = (sample if kept.all() else sample[kept]).mean(axis=0).astype(np.float32)
    return np.where(np.isfinite(centre), centre, np.float32(0))


def likeliest_by_norm_and_bias(state: IndexState) -> tuple[Ids, float, float]:
    """Return the classes that reach the largest logits whatever the query, ascending: twice as many as are wanted.

    With them come the scale by which reach is measured, |w| · scale + bias, and the least reach among them.
    """
    norms, bias, removed = state.core.norms().astype(np.float64), state.core.bias(), state.core.removed()
    leads = bias if state.balance is None else state.core.mean_logits()
    visible = np.flatnonzero((bias != -np.inf) & (removed == 0 if len(removed) else True))
    if not len(norms):
        return visible, 0.0, -np.inf
    # A class unrelated to the query reaches about |x||w| 4/sqrt(features); take |x| to be a typical row's.
    typical = float(np.median(norms[visible] if len(visible) else norms))
    scale = typical * 4 / float(np.sqrt(state.config.width(state.features)))
    reach = norms[visible] * scale + leads[visible]
    best = np.argsort(-reach, kind="stable")[: 2 * state.config.always]
    floor = float(reach[best[-1]]) if len(best) == 2 * state.config.always else -np.inf
    return np.sort(visible[best]).astype(np.int64), scale, floor


def fit_vote_weights(state: IndexState) -> Floats:
    """Return f(votes), a guess at the cosine: a + b·cbrt(votes), fitted on sums of two rows as queries."""
    bands, visible = state.config.bands, np.flatnonzero(state.core.bias() != -np.inf)
    count = len(visible)
    if not count:
        return np.cbrt(np.arange(bands + 1)).astype(np.float32)
    chosen = visible[np.linspace(0, count - 1, 64).astype(np.int64)]
    cosines, roots = [], []
    for first, second in zip(chosen, np.roll(chosen, 1), strict=True):
        query: Floats = np.asarray(as_floats(state.rows[first]) / 2 + as_floats(state.rows[second]) / 2, np.float32)
        if state.balance is not None:
            query = query - state.balance.centre + state.balance.mean  # about where queries are
        votes = state.votes(query)[visible]
        seen = np.argsort(-votes.astype(np.int32), kind="stable")[:: max(1, count // 256)][:256]
        part, wide = as_floats(state.rows[visible[seen]], np.float64), query.astype(np.float64)
        if state.balance is not None:
            part = state.row_coordinates(visible[seen])[0].astype(np.float64)
            wide = state.query_coordinates(query[None])[0].astype(np.float64)
        scales = np.linalg.norm(part, axis=1) * np.linalg.norm(wide)
        cosines.append((part @ wide) / np.where(scales > 0, scales, 1))
        roots.append(np.cbrt(votes[seen].astype(np.float32)))
    x, y = np.concatenate(roots).astype(np.float64), np.concatenate(cosines).astype(np.float64)
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0 else 1.0
    slope = max(slope, 1e-6)  # more votes never mean less
    weights: Floats = (y.mean() + slope * (np.cbrt(np.arange(bands + 1)) - x.mean())).astype(np.float32)
    return weights
