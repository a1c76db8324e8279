"""The index as the specification has it: the native class's methods, each stage from its own module.

Longer than our usual file because it has every method of the native index, most of them a line or two.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from manyclass._balance import Balance
from manyclass._cell_centres import Centres
from manyclass._reference import cells as partition
from manyclass._reference.balance import query_coordinates, row_coordinates
from manyclass._reference.exact_logits import exact_logits, log_probabilities
from manyclass._reference.probes import probe_order, read_probes
from manyclass._reference.scan import SUNK, Flags, ScanStore, choose_scales
from manyclass._reference.sketch import SketchRecords, resized
from manyclass._reference.vector_math import LARGEST, Floats, Ints, nearest_float, norm
from manyclass._reference.votes import best_by_score, count_votes, rescored
from manyclass._reference.winner_codes import (
    ABSENT,
    bucket_numbers,
    ordered_keys,
    row_buckets,
    window_elements,
    winners,
)

SLICE = 1024  # classes that change under one lock; then the scan's scales are looked at


class SearchStatus(NamedTuple):
    """What is wrong with a search's numbers: nothing, or a problem and the first query that has it.

    With a problem the outputs mean nothing.
    """

    problem: Literal["query not finite", "logits overflow"] | None = None
    query: int = 0


class Index:
    """Same methods and the same integers as the native index; one thread, no tables but the codes themselves."""

    def __init__(
        self,
        *,
        features: int,
        width: int,
        skip_silent: bool,
        rescore: bool,
        blocked: bool,
        permutations: npt.NDArray[np.uint32] | None,
        offsets: npt.NDArray[np.uint32] | None,
        bands: int,
        exact_keys: bool,
        scan_bits: int,
        sketch_bits: int,
        signs: Floats | None,
        cells: int,
    ) -> None:
        self.features, self.skip_silent, self.rescore, self.exact_keys = features, skip_silent, rescore, exact_keys
        self.scan = ScanStore(scan_bits, signs) if scan_bits and signs is not None else None
        self.sketch = SketchRecords(sketch_bits, signs) if sketch_bits and signs is not None else None
        self.elements: Ints | None = None
        self.table: Ints = np.zeros((0, 0), np.int64)
        if permutations is not None and offsets is not None:
            self.elements = window_elements(permutations, offsets, bands)
            self.code_bits = offsets.shape[2].bit_length() - 1
        self.width = width
        self.balance: Balance | None = None
        self._bias = self._norms = self._leads = np.zeros(0, np.float32)
        self._removed = np.zeros(0, np.uint8)
        self._always: dict[int, float] = {}  # more than are wanted, so that the next ones are known: id and reach
        self._always_wanted, self._always_rule = 0, (0.0, np.inf)
        self.vote_weights: Floats = np.zeros(1, np.float32)
        self.cells, self.cell_of, self.distances = cells, np.zeros(0, np.int64), np.zeros(0, np.float32)
        self.classes = 0

    # Rows

    def bind_rows(self, rows: npt.NDArray[Any], kind: int) -> None:
        self.rows, self.kind = rows, kind

    def _row(self, row: npt.NDArray[Any]) -> Floats:
        if self.kind == 3:  # bfloat16: the upper half of a float32
            return (row.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return (row.view(np.float16) if self.kind == 2 else row).astype(np.float32)

    def first_bad_row(self, ids: Ints, threads: int) -> int:
        bad = [not np.isfinite(norm(self._row(self.rows[i]))) for i in ids]
        return bad.index(True) if True in bad else len(ids)

    # Building

    def start_build(self, count: int, bias: Floats | None, centre: Floats | None) -> None:
        none = np.zeros(count, np.float32)
        self.set_state(none if bias is None else bias, none, None, None)
        for sketch in self._sketches():
            assert centre is not None
            sketch.centre = centre

    def set_balance(self, *parts: Any) -> None:
        """Take a Balance's fields, in their order."""
        self.balance = Balance(*parts)

    def map_queries(self, queries: Floats, threads: int, out: Floats) -> None:
        """Write the coordinates of queries."""
        for q, query in enumerate(queries):
            out[q] = self._coordinates(query)

    def map_rows(self, ids: Ints, threads: int, out: Floats, mean_logits: Floats) -> None:
        """Write the coordinates of rows, and their mean logits without the bias."""
        assert self.balance is not None
        for i, row_id in enumerate(ids):
            out[i], mean_logit = row_coordinates(self._row(self.rows[row_id]), self.balance)
            mean_logits[i] = nearest_float(mean_logit)

    def _coordinates(self, query: Floats) -> Floats:
        """Return what all stages but the exact logits look at."""
        return query if self.balance is None else query_coordinates(query, self.balance)

    def set_cells(self, centres: npt.NDArray[np.int8], biases: Floats, scale: float) -> None:
        self.centres = Centres(centres, biases, scale)

    def nearest_cells(self, residuals: Floats, bias: Floats, threads: int, cells: npt.NDArray[np.uint16]) -> None:
        cells[:] = partition.nearest(residuals, bias, self.centres)[0]

    def encode(self, begin: int, end: int, threads: int) -> int:
        for i in range(begin, end):
            row = self._row(self.rows[i])
            if not np.isfinite(norm(row)):
                return i
            self._encode(i, row)
        return end

    def _encode(self, i: int, row: Floats) -> None:
        """Store all that is kept of a class."""
        self._leads[i] = self._bias[i]
        self._norms[i] = norm(row)
        if self.balance is not None:
            row, mean_logit = row_coordinates(row, self.balance)
            if self._bias[i] != -np.inf:
                self._leads[i] = nearest_float(mean_logit + float(self._bias[i]))
            self._norms[i] = min(norm(row), np.float32(LARGEST))
        if self.elements is not None:
            buckets = row_buckets(row, self.elements, self.code_bits, self.exact_keys)
            self.table[i] = buckets if self._visible()[i] else ABSENT
        for sketch in self._sketches():
            sketch.set_row(i, row)
        if self.cells:
            assert self.scan is not None
            residual = row - self.scan.centre
            (cell,), (dot,) = partition.nearest(residual[None], self._leads[i : i + 1], self.centres)
            self.cell_of[i] = cell
            self.distances[i] = partition.distance(residual, int(cell), float(dot), self.centres)

    def finish_build(self, threads: int) -> None:
        if self.scan:
            visible = self._visible()
            self.scan.scales = choose_scales(self.scan.factors[visible], self._leads[visible], self.scan.bits)

    def _sketches(self) -> list[SketchRecords]:
        return [sketch for sketch in (self.scan, self.sketch) if sketch]

    def _visible(self) -> Flags:
        """Tell which classes may be found: those that are neither removed nor masked by a bias of -inf."""
        visible: Flags = self._bias != -np.inf
        return visible & (self._removed == 0) if len(self._removed) else visible

    # Updates

    def refresh(self, ids: Ints, bias: Floats | None, new_rows: npt.NDArray[np.uint8] | None, threads: int) -> None:
        for begin in range(0, len(ids), SLICE):
            for at in range(begin, min(len(ids), begin + SLICE)):
                i = int(ids[at])
                if new_rows is not None:
                    self.rows[i] = new_rows[at].view(self.rows.dtype)
                if bias is not None:
                    self._bias[i] = bias[at]
                self._replace(i)
            self._settle()

    def _replace(self, i: int) -> None:
        """Encode a class anew, and see whether it belongs to those that are always looked at."""
        self._encode(i, self._row(self.rows[i]))
        scale, floor = self._always_rule
        was_known = self._always.pop(i, None) is not None
        reach = self._reach(i)
        if self._visible()[i] and (reach > floor or (was_known and reach == floor)):
            self._always[i] = reach
        if len(self._always) > 4 * self._always_wanted:
            self._always = dict(self._by_reach()[: 2 * self._always_wanted])
            self._always_rule = scale, min(self._always.values())

    def _reach(self, i: int) -> float:
        return float(self._norms[i]) * self._always_rule[0] + float(self._leads[i])

    def _by_reach(self) -> list[tuple[int, float]]:
        return sorted(self._always.items(), key=lambda known: (-known[1], known[0]))

    def _settle(self) -> None:
        if self.scan:
            self.scan.settle(self._leads, self._visible())

    def append(self, count: int, bias: Floats | None, threads: int) -> None:
        first = self.classes
        for begin in range(first, first + count, SLICE):
            end = min(first + count, begin + SLICE)
            self._grow(end)
            self._bias[begin:] = 0 if bias is None else bias[begin - first : end - first]
            for i in range(begin, end):
                self._replace(i)
            self._settle()

    def _grow(self, count: int) -> None:
        self._bias, self._norms = resized(self._bias, count), resized(self._norms, count)
        self._leads = resized(self._leads, count)
        if len(self._removed):
            self._removed = resized(self._removed, count)
        if self.elements is not None:
            self.table = resized(self.table, count, ABSENT)
        for sketch in self._sketches():
            sketch.resize(count)
        self.cell_of, self.distances = resized(self.cell_of, count), resized(self.distances, count)
        self.classes = count

    def remove(self, ids: Ints) -> None:
        if not len(self._removed):
            self._removed = np.zeros(self.classes, np.uint8)
        self._removed[ids] = 1
        if self.elements is not None:
            self.table[ids] = ABSENT
        self._always = {i: reach for i, reach in self._always.items() if not self._removed[i]}
        self._settle()

    def set_always(self, ids: Ints, wanted: int, scale: float, floor: float) -> None:
        """Set the classes that join whatever the tables found: the `wanted` best by |w| · scale + bias.

        ids: all classes that reach more than `floor`. Later ones enter, others leave; too many raise the floor.
        """
        self._always_wanted, self._always_rule = wanted, (scale, floor)
        self._always = {int(i): self._reach(i) for i in ids[self._visible()[ids]]}

    def always(self) -> npt.NDArray[np.uint32]:
        return np.sort([i for i, _ in self._by_reach()[: self._always_wanted]]).astype(np.uint32)

    def always_known(self) -> npt.NDArray[np.uint32]:
        return np.sort(list(self._always)).astype(np.uint32)

    def always_rule(self) -> tuple[float, float]:
        return self._always_rule

    def set_vote_weights(self, weights: Floats) -> None:
        self.vote_weights = weights

    # Searching

    def search(
        self,
        queries: Floats,
        candidates: int,
        keep: int,
        probes: int,
        cells: int,
        threads: int,
        logistic: bool,
        classes: Ints,
        logits: Floats,
        log_probs: Floats,
        ids: Ints | None,
        id_logits: Floats | None,
        excluded: Ints | None,
    ) -> SearchStatus:
        """Write the best classes of each query; `ids` and `id_logits`, where given, get all candidates.

        candidates: classes that get an exact logit. keep: classes the tables or the scan hand on to a re-ranking.
        probes: of tables, buckets read per band. cells: of a scan with cells, how many of them are scanned.
        excluded: classes that each query must not find, padded with -1.
        """
        if status := self._not_finite(queries):
            return status
        for q, query in enumerate(queries):
            found = np.sort(self.retrieve(query, candidates, keep, probes, cells, _left_out(excluded, q)))
            rows = np.array([self._row(self.rows[i]) for i in found], np.float32).reshape(-1, self.features)
            exact = exact_logits(query, rows, self._bias[found])
            if not np.isfinite(exact).all():
                return SearchStatus("logits overflow", q)
            order = np.lexsort((found, -exact.astype(np.float64)))[: classes.shape[1]]
            classes[q], logits[q], log_probs[q] = -1, -np.inf, -np.inf
            classes[q, : len(order)], logits[q, : len(order)] = found[order], exact[order]
            log_probs[q, : len(order)] = log_probabilities(exact, logistic)[order]
            if ids is not None:
                ids[q] = -1
                ids[q, : len(found)] = found
            if id_logits is not None:
                id_logits[q] = -np.inf
                id_logits[q, : len(found)] = exact
        return SearchStatus()

    def shortlist(
        self,
        queries: Floats,
        keep: int,
        probes: int,
        cells: int,
        threads: int,
        ids: Ints,
        excluded: Ints | None,
        scanned: Ints | None = None,
    ) -> SearchStatus:
        """Write the candidates alone, likeliest first, then -1; and how many classes the scanned cells hold."""
        if status := self._not_finite(queries):
            return status
        ids[...] = -1
        for q, query in enumerate(queries):
            found = self.retrieve(query, ids.shape[1], keep, probes, cells, _left_out(excluded, q))
            ids[q, : len(found)] = found
            if scanned is not None:
                limit = (keep if self.sketch else ids.shape[1]) + len(_left_out(excluded, q))
                scanned[q] = self._scanned_in_cells(self._coordinates(query), cells, limit)
        return SearchStatus()

    def _not_finite(self, queries: Floats) -> SearchStatus | None:
        """Return the first query whose norm is not finite, if there is one."""
        for q, query in enumerate(queries):
            if not np.isfinite(norm(query)):
                return SearchStatus("query not finite", q)
        return None

    def retrieve(self, query: Floats, candidates: int, keep: int, probes: int, cells: int, excluded: Ints) -> Ints:
        """Return the candidate ids of one query, best first: every stage finds as many more as are left out."""

        def kept(ids: Ints, count: int) -> Ints:
            return ids[~np.isin(ids, excluded)][:count]

        more, query = len(excluded), self._coordinates(query)
        if self.scan:
            scanned = self._scanned(query, cells, (keep if self.sketch else candidates) + more)
            if not self.sketch:
                return kept(self.scan.best(query, scanned, self._leads, candidates + more), candidates)
            found = kept(self.scan.best(query, scanned, self._leads, keep + more), keep)
            return self.sketch.best(query, found, self._leads, candidates)
        if self.elements is None:
            return kept(np.flatnonzero(self._visible()), self.classes)
        hits, votes = self._hits(query, keep + more, probes)
        if self.sketch:
            hits = np.union1d(hits, self.always()).astype(np.int64)
            return kept(self.sketch.best(query, hits, self._leads, candidates + more), candidates)
        if self.rescore:
            extra = np.setdiff1d(self.always(), hits).astype(np.int64)
            hits, votes = (
                np.concatenate([hits, extra]),
                np.concatenate([votes, np.zeros(len(extra), np.int64)]),
            )
            scores = rescored(query, self._norms[hits], self._leads[hits], votes, self.vote_weights)
            return kept(best_by_score(hits, scores, candidates + more), candidates)
        return kept(best_by_score(hits, votes, candidates + more), candidates)

    def _scanned(self, query: Floats, cells: int, limit: int) -> Ints:
        """Return the classes that a scan looks at: all that are visible or, with cells, those of some and outliers."""
        visible = self._visible()
        if not self.cells:
            return np.flatnonzero(visible)
        assert self.scan is not None
        inside = visible & ~self.scan.outside(self._leads)
        sizes = np.bincount(self.cell_of[inside], minlength=self.cells)
        highest = np.full(self.cells, SUNK, np.int64)
        np.maximum.at(highest, self.cell_of[inside], self.scan.weights(self._leads)[1][inside])
        tops = (highest * (self.scan.scales[1] / 32768)).astype(np.float64)
        looked_at = partition.chosen(query, self.centres, self.cell_radii(), tops, sizes, cells, limit)
        return np.flatnonzero(visible & (~inside | np.isin(self.cell_of, looked_at)))

    def _scanned_in_cells(self, query: Floats, cells: int, limit: int) -> int:
        """Return how many classes the scanned cells hold, outliers not counted; all classes where no cell is left."""
        if not self.scan or cells >= self.cells:
            return self.classes
        looked_at = self._scanned(query, cells, limit)
        return int((~self.scan.outside(self._leads))[looked_at].sum())

    def _hits(self, query: Floats, keep: int, probes: int) -> tuple[Ints, Ints]:
        """Return the classes that tables hand on, ascending, and their votes."""
        assert self.elements is not None
        keys = ordered_keys(query, self.exact_keys)
        if keys.min() == keys.max():
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        best, second, margin, silent = winners(keys, self.elements)
        silent &= self.skip_silent
        if probes > 1:
            order = probe_order(best, second, margin, silent, self.code_bits, probes * len(best))
            hits, votes = np.unique(read_probes(order, self.table, keep), return_counts=True)
        else:
            counts = count_votes(bucket_numbers(best, self.code_bits), silent, self.table)
            hits = np.flatnonzero(counts)
            votes = counts[hits]
        kept = np.sort(best_by_score(hits, votes, keep))
        return kept, votes[np.searchsorted(hits, kept)]

    def votes(self, query: Floats, counts: npt.NDArray[np.uint16]) -> None:
        assert self.elements is not None
        keys = ordered_keys(self._coordinates(query), self.exact_keys)
        counts[:] = 0
        if keys.min() != keys.max():
            best, _, _, silent = winners(keys, self.elements)
            buckets = bucket_numbers(best, self.code_bits)
            counts[:] = count_votes(buckets, silent & self.skip_silent, self.table)

    # State

    def set_state(
        self, bias: Floats, norms: Floats, removed: npt.NDArray[np.uint8] | None, mean_logits: Floats | None
    ) -> None:
        self.classes = len(bias)
        self._bias, self._norms = bias.copy(), norms.copy()
        self._leads = (bias if mean_logits is None else mean_logits).copy()
        self._removed = np.zeros(0, np.uint8) if removed is None else removed.copy()
        if self.elements is not None:
            self.table = np.full((self.classes, len(self.elements)), ABSENT, np.int64)
        for sketch in self._sketches():
            sketch.start(self.classes)
        self.cell_of, self.distances = np.zeros(self.classes, np.int64), np.zeros(self.classes, np.float32)

    def export_codes(self, codes: npt.NDArray[np.uint32]) -> None:
        codes[:] = self.table

    def import_codes(self, codes: npt.NDArray[np.uint32], threads: int) -> None:
        self.table[:] = codes

    def export_scan(self, codes: npt.NDArray[np.uint8], factors: Floats) -> None:
        assert self.scan is not None
        codes[:], factors[:] = self.scan.codes, self.scan.factors

    def export_sketch(self, codes: npt.NDArray[np.uint8], factors: Floats) -> None:
        assert self.sketch is not None
        codes[:], factors[:] = self.sketch.codes, self.sketch.factors

    def export_weights(self, factors: npt.NDArray[np.int16], biases: npt.NDArray[np.int16]) -> None:
        assert self.scan is not None
        factors[:], biases[:] = self.scan.weights(self._leads)

    def import_scan(
        self,
        codes: npt.NDArray[np.uint8],
        factors: Floats,
        factor_scale: float,
        bias_scale: float,
        centre: Floats,
        cells: npt.NDArray[np.uint16] | None,
        distances: Floats | None,
    ) -> None:
        assert self.scan is not None
        self.scan.codes[:], self.scan.factors[:], self.scan.centre = codes, factors, centre
        self.scan.scales = factor_scale, bias_scale
        if cells is not None and distances is not None:
            self.cell_of[:], self.distances[:] = cells, distances

    def import_sketch(self, codes: npt.NDArray[np.uint8], factors: Floats, centre: Floats) -> None:
        assert self.sketch is not None
        self.sketch.codes[:], self.sketch.factors[:], self.sketch.centre = codes, factors, centre

    def outliers(self) -> npt.NDArray[np.uint32]:
        assert self.scan is not None
        return np.flatnonzero(self._visible() & self.scan.outside(self._leads)).astype(np.uint32)

    def cell_radii(self) -> Floats:
        """Return how far the farthest class of each cell is from its centre, of those that the scan finds there."""
        assert self.scan is not None
        inside = self._visible() & ~self.scan.outside(self._leads)
        radii = np.zeros(self.cells, np.float32)
        np.maximum.at(radii, self.cell_of[inside], self.distances[inside])
        return radii

    def export_cells(self, cells: npt.NDArray[np.uint16], distances: Floats) -> None:
        cells[:], distances[:] = self.cell_of, self.distances

    def bias(self) -> Floats:
        return self._bias.copy()

    def mean_logits(self) -> Floats:
        return self._leads.copy()

    def norms(self) -> Floats:
        return self._norms.copy()

    def removed(self) -> npt.NDArray[np.uint8]:
        return self._removed.copy()

    def centre(self) -> Floats:
        return self._sketches()[0].centre

    def scan_scales(self) -> tuple[float, float]:
        assert self.scan is not None
        return self.scan.scales

    def bytes(self) -> dict[str, int]:
        codes = self.table.nbytes if self.elements is not None else 0
        sizes = {"tables": 0, "codes": codes, "norms and biases": self._bias.nbytes + self._norms.nbytes}
        for kind, sketch in (("scan", self.scan), ("sketch", self.sketch)):
            sizes[kind] = sketch.codes.nbytes + sketch.factors.nbytes if sketch else 0
        return sizes


def _left_out(excluded: Ints | None, query: int) -> Ints:
    """Return the classes that a query must not find, each once."""
    ids = np.zeros(0, np.int64) if excluded is None else np.unique(excluded[query])
    return ids[ids >= 0]
