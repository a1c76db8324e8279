"""The index as the specification has it: the native class's methods, each stage from its own module.

Longer than our usual file because it has every method of the native index, most of them a line or two.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from manyclass._cell_centres import Centres
from manyclass._reference import cells as partition
from manyclass._reference.exact_logits import exact_logits, log_probabilities
from manyclass._reference.probes import probe_order, read_probes
from manyclass._reference.sketch import SketchStore, longer
from manyclass._reference.vector_math import Floats, Ints, lane_sum
from manyclass._reference.votes import best_by_score, count_votes, rescored
from manyclass._reference.winner_codes import (
    ABSENT,
    bucket_numbers,
    ordered_keys,
    row_buckets,
    window_elements,
    winners,
)


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
        sizes = {"scan": scan_bits, "sketch": sketch_bits}
        self.sketches = {kind: SketchStore(bits, signs) for kind, bits in sizes.items() if bits and signs is not None}
        self.elements: Ints | None = None
        self.table: Ints = np.zeros((0, 0), np.int64)
        if permutations is not None and offsets is not None:
            self.elements = window_elements(permutations, offsets, bands)
            self.code_bits = offsets.shape[2].bit_length() - 1
        self._bias = self._norms = np.zeros(0, np.float32)
        self._removed = np.zeros(0, np.uint8)
        self.always: Ints = np.zeros(0, np.int64)
        self.vote_weights: Floats = np.zeros(1, np.float32)
        self.cells, self.cell_of = cells, np.zeros(0, np.int64)
        self.classes = 0

    # Rows

    def bind_rows(self, rows: npt.NDArray[Any], kind: int) -> None:
        self.rows, self.kind = rows, kind

    def _row(self, row: npt.NDArray[Any]) -> Floats:
        if self.kind == 3:  # bfloat16: the upper half of a float32
            return (row.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return (row.view(np.float16) if self.kind == 2 else row).astype(np.float32)

    def first_bad_row(self, ids: Ints, threads: int) -> int:
        bad = [not np.isfinite(lane_sum(np.square(self._row(self.rows[i])))) for i in ids]
        return bad.index(True) if True in bad else len(ids)

    # Building

    def start_build(self, count: int, bias: Floats | None, centre: Floats | None) -> None:
        self.set_state(np.zeros(count, np.float32) if bias is None else bias, np.zeros(count, np.float32), None)
        for sketch in self.sketches.values():
            assert centre is not None
            sketch.centre = centre
        self._factors = {kind: np.zeros(count, np.float32) for kind in self.sketches}

    def set_cells(self, centres: npt.NDArray[np.int8], biases: Floats, scale: float) -> None:
        self.centres = Centres(centres, biases, scale)
        self.radii = np.zeros(self.cells)

    def nearest_cells(self, residuals: Floats, bias: Floats, threads: int, cells: npt.NDArray[np.uint16]) -> None:
        cells[:] = partition.nearest(residuals, bias, self.centres)[0]

    def _file(self, i: int, row: Floats) -> None:
        if self.cells:
            residual = row - self.sketches["scan"].centre
            (cell,), (merit,) = partition.nearest(residual[None], self._bias[i : i + 1], self.centres)
            self.cell_of[i] = cell
            self.radii[cell] = max(self.radii[cell], partition.distance(residual, self._bias[i], merit))

    def encode(self, begin: int, end: int, threads: int) -> int:
        for i in range(begin, end):
            row = self._row(self.rows[i])
            self._norms[i] = np.sqrt(lane_sum(row * row))
            if not np.isfinite(self._norms[i]):
                return i
            if self.elements is not None:
                self.table[i] = row_buckets(row, self.elements, self.code_bits, self.exact_keys)
            for kind, sketch in self.sketches.items():
                sketch.codes[i], self._factors[kind][i] = sketch.encode(row)
            self._file(i, row)
        return end

    def finish_build(self, threads: int) -> None:
        for kind, sketch in self.sketches.items():
            factors = self._factors[kind]
            sketch.reserve(float(factors.max(initial=0)), float(np.abs(self._bias).max(initial=0)))
            for i in range(self.classes):
                sketch.set_weights(i, factors[i], self._bias[i])

    # Updates

    def refresh(self, ids: Ints, bias: Floats | None, new_rows: npt.NDArray[np.uint8] | None, threads: int) -> None:
        for at, i in enumerate(ids):
            if new_rows is not None:
                self.rows[i] = new_rows[at].view(self.rows.dtype)
            if bias is not None:
                self._bias[i] = bias[at]
            self._apply(int(i))

    def _apply(self, i: int) -> None:
        row = self._row(self.rows[i])
        self._norms[i] = np.sqrt(lane_sum(row * row))
        if self.elements is not None:
            gone = len(self._removed) and self._removed[i]
            buckets = row_buckets(row, self.elements, self.code_bits, self.exact_keys)
            self.table[i] = ABSENT if gone else buckets
        for sketch in self.sketches.values():
            sketch.codes[i], factor = sketch.encode(row)
            sketch.reserve(float(factor), abs(float(self._bias[i])))
            sketch.set_weights(i, factor, self._bias[i])
        self._file(i, row)

    def append(self, count: int, bias: Floats | None, threads: int) -> None:
        first = self.classes
        self._bias, self._norms = longer(self._bias, count), longer(self._norms, count)
        if bias is not None:
            self._bias[first:] = bias
        if len(self._removed):
            self._removed = longer(self._removed, count)
        if self.elements is not None:
            self.table = longer(self.table, count, ABSENT)
        for sketch in self.sketches.values():
            sketch.extend(count)
        self.cell_of = longer(self.cell_of, count)
        self.classes = first + count
        for i in range(first, first + count):
            self._apply(i)

    def remove(self, ids: Ints) -> None:
        if not len(self._removed):
            self._removed = np.zeros(self.classes, np.uint8)
        self._removed[ids] = 1
        if self.elements is not None:
            self.table[ids] = ABSENT
        self.always = self.always[self._removed[self.always] == 0]

    def set_always(self, ids: Ints) -> None:
        self.always = ids[self._removed[ids] == 0] if len(self._removed) else ids

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
    ) -> SearchStatus:
        """Write the best classes of each query; `ids` and `id_logits`, where given, get all candidates.

        candidates: classes that get an exact logit. keep: classes the tables or the scan hand on to a re-ranking.
        probes: of tables, buckets read per band. cells: of a scan with cells, how many of them are scanned.
        """
        if status := self._not_finite(queries):
            return status
        for q, query in enumerate(queries):
            found = np.sort(self.retrieve(query, candidates, keep, probes, cells))
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

    def shortlist(self, queries: Floats, keep: int, probes: int, cells: int, threads: int, ids: Ints) -> SearchStatus:
        """Write the candidates alone, likeliest first, then -1."""
        if status := self._not_finite(queries):
            return status
        ids[...] = -1
        for q, query in enumerate(queries):
            found = self.retrieve(query, ids.shape[1], keep, probes, cells)
            ids[q, : len(found)] = found
        return SearchStatus()

    def _not_finite(self, queries: Floats) -> SearchStatus | None:
        """Return the first query whose squared norm is not finite, if there is one."""
        for q, query in enumerate(queries):
            if not np.isfinite(lane_sum(query * query)):
                return SearchStatus("query not finite", q)
        return None

    def retrieve(self, query: Floats, candidates: int, keep: int, probes: int, cells: int) -> Ints:
        """Return the candidate ids of one query, best first."""
        alive = np.flatnonzero(self._removed == 0) if len(self._removed) else np.arange(self.classes)
        if "scan" in self.sketches:
            if self.cells:
                sizes = np.bincount(self.cell_of, minlength=self.cells)
                limit = keep if "sketch" in self.sketches else candidates
                scanned = partition.chosen(query, self.centres, self.radii, sizes, cells, limit)
                alive = alive[np.isin(self.cell_of[alive], scanned)]
            if "sketch" not in self.sketches:
                return self.sketches["scan"].best(query, alive, candidates)
            return self.sketches["sketch"].best(query, self.sketches["scan"].best(query, alive, keep), candidates)
        if self.elements is None:
            return alive
        hits, votes = self._hits(query, keep, probes)
        if "sketch" in self.sketches:
            hits = np.unique(np.concatenate([hits, self.always]))
            return self.sketches["sketch"].best(query, hits, candidates)
        if self.rescore:
            extra = np.setdiff1d(self.always, hits)
            hits, votes = (
                np.concatenate([hits, extra]),
                np.concatenate([votes, np.zeros(len(extra), np.int64)]),
            )
            scores = rescored(query, self._norms[hits], self._bias[hits], votes, self.vote_weights)
            return best_by_score(hits, scores, candidates)
        return best_by_score(hits, votes, candidates)

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
        keys = ordered_keys(query, self.exact_keys)
        counts[:] = 0
        if keys.min() != keys.max():
            best, _, _, silent = winners(keys, self.elements)
            buckets = bucket_numbers(best, self.code_bits)
            counts[:] = count_votes(buckets, silent & self.skip_silent, self.table)

    # State

    def set_state(self, bias: Floats, norms: Floats, removed: npt.NDArray[np.uint8] | None) -> None:
        self.classes = len(bias)
        self._bias, self._norms = bias.copy(), norms.copy()
        self._removed = np.zeros(0, np.uint8) if removed is None else removed.copy()
        if self.elements is not None:
            self.table = np.full((self.classes, len(self.elements)), ABSENT, np.int64)
        for sketch in self.sketches.values():
            sketch.resize(self.classes)
        self.cell_of = np.zeros(self.classes, np.int64)

    def export_codes(self, codes: npt.NDArray[np.uint32]) -> None:
        codes[:] = self.table

    def import_codes(self, codes: npt.NDArray[np.uint32], threads: int) -> None:
        self.table[:] = codes

    def export_sketch(
        self, kind: str, codes: npt.NDArray[np.uint8], factors: npt.NDArray[np.int16], biases: npt.NDArray[np.int16]
    ) -> None:
        sketch = self.sketches[kind]
        codes[:], factors[:], biases[:] = sketch.codes, sketch.factors, sketch.biases

    def import_sketch(
        self,
        kind: str,
        codes: npt.NDArray[np.uint8],
        factors: npt.NDArray[np.int16],
        biases: npt.NDArray[np.int16],
        factor_scale: float,
        bias_scale: float,
        centre: Floats,
    ) -> None:
        sketch = self.sketches[kind]
        sketch.codes[:], sketch.factors[:], sketch.biases[:] = codes, factors, biases
        sketch.scales, sketch.centre = [factor_scale, bias_scale], centre

    def cell_radii(self) -> npt.NDArray[np.float64]:
        return self.radii.copy()

    def set_cell_radii(self, radii: npt.NDArray[np.float64]) -> None:
        self.radii = radii.copy()

    def export_cells(self, cells: npt.NDArray[np.uint16]) -> None:
        cells[:] = self.cell_of

    def import_cells(self, cells: npt.NDArray[np.uint16]) -> None:
        self.cell_of[:] = cells

    def bias(self) -> Floats:
        return self._bias.copy()

    def norms(self) -> Floats:
        return self._norms.copy()

    def removed(self) -> npt.NDArray[np.uint8]:
        return self._removed.copy()

    def centre(self, kind: str) -> Floats:
        return self.sketches[kind].centre

    def sketch_scales(self, kind: str) -> tuple[float, float]:
        first, second = self.sketches[kind].scales
        return first, second

    def bytes(self) -> dict[str, int]:
        codes = self.table.nbytes if self.elements is not None else 0
        sizes = {"tables": 0, "codes": codes, "norms and biases": self._bias.nbytes + self._norms.nbytes}
        for kind in ("scan", "sketch"):
            sketch = self.sketches.get(kind)
            sizes[kind] = sketch.codes.nbytes + sketch.factors.nbytes + sketch.biases.nbytes if sketch else 0
        return sizes
