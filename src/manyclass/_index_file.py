"""What an index file holds: settings in the header, arrays and names in sections; tables are rebuilt on loading.

Rebuilding from the bucket numbers costs a counting sort, and leaves no offsets or ids in the file that could be wrong.
"""

import os
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from manyclass._balance import Balance
from manyclass._cell_centres import Centres
from manyclass._index_state import IndexState, likeliest_by_norm_and_bias
from manyclass._row_types import BF16, ROW_TYPES, row_type
from manyclass._section_file import read_sections, write_sections
from manyclass.config import MAX_CLASSES, MAX_FEATURES, HashConfig
from manyclass.errors import CorruptFileError, ManyclassError
from manyclass.report import Measured

if TYPE_CHECKING:
    from manyclass.index import ClassIndex

KIND = "manyclass index"
BUCKET_BYTES = 12
SMALL_TABLES = 256 << 20  # bytes of empty buckets that any file may ask for: the paper's 1000 bands need 49 MB
TABLES_PER_FILE_BYTE = 1024
ABSENT_NARROW = 0xFFFF
ABSENT = 0xFFFFFFFF
Arrays = dict[str, npt.NDArray[Any]]


def save_index(index: "ClassIndex", path: str) -> None:
    """Write the index and its rows to one file, atomically."""
    arrays = {"rows": _storable(index.rows[: index.classes]), **index_arrays(index)}
    write_sections(path, KIND, index_settings(index), arrays)


def index_settings(index: "ClassIndex") -> dict[str, Any]:
    """Return the few numbers an index is made of beside its arrays."""
    state, config = index.state, index.config
    meta: dict[str, Any] = {"config": asdict(config), "features": index.features, "classes": index.classes}
    if index.measured.queries != "none":
        meta["measured"] = index.measured.as_dict()
    if config.scan_bits:
        meta["scan_scales"] = list(state.core.scan_scales())
    if state.centres is not None:
        meta["cell_scale"] = state.centres.scale
    return meta


def index_arrays(index: "ClassIndex") -> Arrays:
    """Return all arrays of an index but its rows, by name."""
    state, core, config, count = index.state, index.state.core, index.config, index.classes
    arrays: Arrays = {"bias": core.bias(), "norms": core.norms()}
    if state.balance is not None:
        arrays["mean_logits"] = core.mean_logits()
        arrays |= {f"balance_{field.name}": getattr(state.balance, field.name) for field in fields(Balance)}
    if len(core.removed()):
        arrays["removed"] = core.removed()
    if config.bands:
        codes = np.empty((count, config.bands), np.uint32)
        core.export_codes(codes)
        arrays["codes"] = codes.astype(np.uint16) if config.bucket_bits < 16 else codes
    for kind, bits in _sketches(config):
        codes, factors = np.empty((count, bits // 8), np.uint8), np.empty(count, np.float32)
        (core.export_scan if kind == "scan" else core.export_sketch)(codes, factors)
        arrays |= {kind: codes, f"{kind}_factors": factors, "centre": core.centre()}
    if state.centres is not None:
        cells, distances = np.empty(count, np.uint16), np.empty(count, np.float32)
        core.export_cells(cells, distances)
        arrays |= {"cells": cells, "cell_distances": distances}
        arrays |= {"cell_centres": state.centres.levels, "cell_biases": state.centres.biases}
    if config.always:
        arrays |= {"always": core.always_known().astype(np.int64), "always_rule": np.array(core.always_rule())}
    if config.rescore:
        arrays["vote_weights"] = state.vote_weights
    if index.names is not None:
        encoded = [name.encode("utf-8", "surrogatepass") for name in index.names]
        arrays["names"] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays["name_ends"] = np.cumsum([len(name) for name in encoded], dtype=np.uint64)
    return arrays


def load_index(cls: "type[ClassIndex]", path: str, mmap: bool, verify: bool, threads: int) -> "ClassIndex":
    """Return the index in a file; anything that does not fit together is a CorruptFileError."""
    meta, arrays = read_sections(path, KIND, mmap=mmap, verify=verify)
    try:
        return restore_index(cls, meta, arrays, os.path.getsize(path), threads)
    except (ManyclassError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptFileError(f"{path} does not describe an index ({error}); restore it from a copy") from error


def restore_index(
    cls: "type[ClassIndex]", meta: dict[str, Any], arrays: Arrays, stored_bytes: int, threads: int
) -> "ClassIndex":
    """Return the index of these settings and arrays, which must include its rows. Raises where things do not fit."""
    config = _config(meta["config"])
    _check_size(config, stored_bytes)
    state = _restored_state(config, meta, arrays, threads)
    index = cls(state, _names(arrays, state.classes) if "names" in arrays else None)
    if "measured" in meta:
        index.measured = Measured.from_dict(meta["measured"])
    return index


def _config(settings: dict[str, Any]) -> HashConfig:
    """Return the saved config; settings that were added after a file was written take their defaults."""
    unknown = set(settings) - {field.name for field in fields(HashConfig)}
    if unknown:
        raise ValueError(f"unknown settings {sorted(unknown)}")
    return HashConfig(**settings)


def _check_size(config: HashConfig, file_bytes: int) -> None:
    """Raise where empty buckets alone would take memory out of all proportion to the file."""
    buckets = config.bands * 2**config.bucket_bits if config.bands else 0
    if buckets * BUCKET_BYTES > SMALL_TABLES + TABLES_PER_FILE_BYTE * file_bytes:
        raise ValueError(f"{buckets} buckets in a file of {file_bytes} bytes")


def _restored_state(config: HashConfig, meta: dict[str, Any], arrays: Arrays, threads: int) -> IndexState:
    count, features = meta["classes"], meta["features"]
    if not (
        isinstance(count, int)
        and isinstance(features, int)
        and 0 < features <= MAX_FEATURES
        and 0 <= count <= MAX_CLASSES
    ):
        raise ValueError("impossible sizes")
    rows = arrays["rows"]
    rows = rows["bf16"] if rows.dtype == BF16 else rows
    if rows.shape != (count, features):
        raise ValueError(f"rows have shape {rows.shape}, expected {(count, features)}")
    if config.cells:  # before memory is taken for them
        _array(arrays, "cell_centres", np.int8, (config.cells, config.width(features)))
    state = IndexState(config, features)
    if config.balance != "none":
        state.set_balance(_balance(config, features, arrays))
    state.bind(_loaded(rows, arrays["rows"].dtype))
    bias, norms = _array(arrays, "bias", np.float32, (count,)), _array(arrays, "norms", np.float32, (count,))
    removed = _array(arrays, "removed", np.uint8, (count,)) if "removed" in arrays else None
    if not ((np.isfinite(bias) | (bias == -np.inf)).all() and np.isfinite(norms).all()):
        raise ValueError("biases or norms are not finite")
    mean_logits = _mean_logits(arrays, bias) if config.balance != "none" else None
    state.core.set_state(bias, norms, removed, mean_logits)
    if config.bands:
        hidden = bias == -np.inf if removed is None else (bias == -np.inf) | (removed != 0)
        _restore_tables(state, arrays, hidden, threads)
    if config.scan_bits:
        _restore_scan(state, meta, arrays)
    if config.sketch_bits:
        codes, factors = _sketch_arrays(state, "sketch", config.sketch_bits, meta, arrays)
        state.core.import_sketch(codes, factors, _centre(state, arrays))
    return state


def _balance(config: HashConfig, features: int, arrays: Arrays) -> Balance:
    """Return the change of coordinates of a file, each number of it within what the core computes with."""
    directions = config.width(features) if config.balance == "directions" else 0
    balance = Balance(
        mean=_array(arrays, "balance_mean", np.float32, (features,)),
        centre=_array(arrays, "balance_centre", np.float32, (features,)),
        scales=_array(arrays, "balance_scales", np.float64, (features,)),
        query_levels=_array(arrays, "balance_query_levels", np.int8, (directions, features)),
        query_units=_array(arrays, "balance_query_units", np.float64, (directions,)),
        row_levels=_array(arrays, "balance_row_levels", np.int16, (directions + 1, features)),
        row_units=_array(arrays, "balance_row_units", np.float64, (directions + 1,)),
    )
    units = np.concatenate([balance.scales, balance.query_units, balance.row_units])
    means = np.concatenate([balance.mean, balance.centre])
    if not (((units > 0) & (units < np.inf)).all() and np.isfinite(means).all()):
        raise ValueError("impossible balance")
    return balance


def _mean_logits(arrays: Arrays, bias: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    mean_logits = _array(arrays, "mean_logits", np.float32, bias.shape)
    if not (np.isfinite(mean_logits) | (bias == -np.inf)).all() or (mean_logits == np.inf).any():
        raise ValueError("mean logits are not finite")
    return mean_logits


def _restore_tables(state: IndexState, arrays: Arrays, hidden: npt.NDArray[np.bool_], threads: int) -> None:
    """Fill the tables from the bucket numbers, and set what ranks the classes they give."""
    config = state.config
    narrow = config.bucket_bits < 16
    shape = (state.classes, config.bands)
    codes = _array(arrays, "codes", np.uint16 if narrow else np.uint32, shape).astype(np.uint32)
    if narrow:
        codes[codes == ABSENT_NARROW] = ABSENT
    codes[hidden] = ABSENT
    state.core.import_codes(codes, threads)
    if config.always:
        always = _array(arrays, "always", np.int64, (len(arrays["always"]),))
        if (np.diff(always) <= 0).any():
            raise ValueError("always-candidates are not in order")
        state.set_always(always, *_always_rule(state, arrays, always))
    if config.rescore:
        weights = _array(arrays, "vote_weights", np.float32, (config.bands + 1,))
        if not np.isfinite(weights).all():
            raise ValueError("vote weights are not finite")
        state.set_vote_weights(weights)


def _sketches(config: HashConfig) -> list[tuple[str, int]]:
    return [(kind, bits) for kind, bits in (("scan", config.scan_bits), ("sketch", config.sketch_bits)) if bits]


def _always_rule(state: IndexState, arrays: Arrays, always: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return the scale and the floor by which classes join the always-candidates and leave them."""
    if "always_rule" not in arrays:  # format 1
        scale = likeliest_by_norm_and_bias(state)[1]
        reach = state.core.norms()[always].astype(np.float64) * scale + state.core.bias()[always]
        return scale, float(reach.min(initial=np.finfo(np.float64).max))
    scale, floor = _array(arrays, "always_rule", np.float64, (2,)).tolist()
    if not (0 <= scale < np.inf and not np.isnan(floor)):
        raise ValueError("impossible rule for always-candidates")
    return scale, floor


def _centre(state: IndexState, arrays: Arrays) -> npt.NDArray[np.float32]:
    centre = _array(arrays, "centre", np.float32, (state.config.width(state.features),))
    if not np.isfinite(centre).all():
        raise ValueError("the centre is not finite")
    return centre


def _sketch_arrays(
    state: IndexState, kind: str, bits: int, meta: dict[str, Any], arrays: Arrays
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Return the codes and the factors of a sketch."""
    count = state.classes
    if f"{kind}_biases" in arrays:  # format 1: factors and biases were fractions of two scales
        fractions = _array(arrays, f"{kind}_factors", np.int16, (count,))
        factors = (fractions * (_scales(kind, meta)[0] / 32768)).astype(np.float32)
    else:
        factors = _array(arrays, f"{kind}_factors", np.float32, (count,))
    if not ((factors >= 0) & (factors < np.inf)).all():
        raise ValueError("impossible factors of sketches")
    return _array(arrays, kind, np.uint8, (count, bits // 8)), factors


def _scales(kind: str, meta: dict[str, Any]) -> tuple[float, float]:
    factor_scale, bias_scale = (float(scale) for scale in meta[f"{kind}_scales"])
    if not (0 <= factor_scale < 1e40 and 0 <= bias_scale < 1e40):
        raise ValueError("impossible sketch scales")
    return factor_scale, bias_scale


def _restore_scan(state: IndexState, meta: dict[str, Any], arrays: Arrays) -> None:
    codes, factors = _sketch_arrays(state, "scan", state.config.scan_bits, meta, arrays)
    cells = _restore_cells(state, meta, arrays) if state.config.cells else (None, None)
    state.core.import_scan(codes, factors, *_scales("scan", meta), _centre(state, arrays), *cells)


def _restore_cells(
    state: IndexState, meta: dict[str, Any], arrays: Arrays
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.float32]]:
    """Set the centres; return the cell of each class and its distance from the centre."""
    count, scale = state.config.cells, float(meta["cell_scale"])
    centres = _array(arrays, "cell_centres", np.int8, (count, state.config.width(state.features)))
    biases = _array(arrays, "cell_biases", np.float32, (count,))
    cells = _array(arrays, "cells", np.uint16, (state.classes,))
    if not (0 <= scale < 1e40 and np.isfinite(biases).all() and (centres > -128).all()):
        raise ValueError("impossible centres of cells")
    if (cells >= count).any():
        raise ValueError("a class is in a cell that is not there")
    if "cell_radii" in arrays:  # format 1: only how far the farthest class is
        distances = _array(arrays, "cell_radii", np.float64, (count,)).astype(np.float32)[cells]
    else:
        distances = _array(arrays, "cell_distances", np.float32, (state.classes,))
    if not ((distances >= 0) & (distances < np.inf)).all():
        raise ValueError("impossible distances from the centres of cells")
    state.set_centres(Centres(centres, biases, scale))
    return cells, distances


def _array(arrays: Arrays, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    array = arrays[name]
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(f"{name} is {array.dtype}{array.shape}, expected {np.dtype(dtype)}{shape}")
    return np.ascontiguousarray(array)


def _names(arrays: Arrays, count: int) -> list[str]:
    blob = _array(arrays, "names", np.uint8, (len(arrays["names"]),)).tobytes()
    ends = [int(end) for end in _array(arrays, "name_ends", np.uint64, (count,))]
    starts = [0, *ends[:-1]] if ends else []
    if any(a > b for a, b in zip(starts, ends, strict=True)) or (ends[-1] if ends else 0) != len(blob):
        raise ValueError("names do not add up")
    return [blob[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=True)]


def _storable(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return rows.view(np.uint16).view(BF16) if row_type(rows.dtype) == ROW_TYPES["bfloat16"] else rows


def _loaded(rows: npt.NDArray[Any], stored: np.dtype[Any]) -> npt.NDArray[Any]:
    if stored != BF16:
        return rows
    try:
        import ml_dtypes
    except ImportError:
        return rows.view(BF16)
    return rows.view(ml_dtypes.bfloat16)
