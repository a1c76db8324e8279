"""Settings that are worth trying at a size."""

import math
from collections.abc import Iterator

from manyclass.config import (
    CLASSES_PER_CELL,
    EXACT_CLASSES,
    FLAT_SCAN_CLASSES,
    MAX_BALANCED_FEATURES,
    MAX_CELLS,
    HashConfig,
)

LADDER = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300)  # candidates that are tried
MOST_CANDIDATES = LADDER[-1]
BITS = (128, 256, 512, 1024, 2048, 4096)
FEW_BITS = (32, 64)  # where memory is short
CELLS_PER_ROOT = 4  # cells at most, in square roots of the classes: the limit from a million classes on
CELLS_FROM = 20_000  # classes; below that a scan takes little more than the exact logits behind it
MOST_CELLS_SCANNED, LEAST_CELLS_MISSED = 0.75, 0.01  # a tenth of the cells for a target of .9, a third for .97
MOST_DIRECTIONS = 1024  # features up to which a query is turned into directions; above, features are scaled


def scans(features: int, few_bits: bool = False) -> Iterator[HashConfig]:
    """Yield scans of every class to try, shortest first: with a balance that suits the width, and without one."""
    width = 1 << (features - 1).bit_length()
    for bits in (*FEW_BITS, *BITS) if few_bits else BITS:
        if bits > 128 and bits > 4 * width:
            return
        plain = HashConfig.flat_sketch(bits)
        balanced = with_balance(plain, features)
        if balanced is not None:
            yield balanced
        yield plain


def with_balance(config: HashConfig, features: int) -> HashConfig | None:
    """Return a scan with the balance that suits its width; None where there is none, or nothing is scanned."""
    if not config.scan_bits or features > MAX_BALANCED_FEATURES:
        return None
    if features > MOST_DIRECTIONS:
        return config.with_(balance="features")
    # Signs tell most of as many leading directions as there are bits.
    return config.with_(balance="directions", coordinates=config.scan_bits if config.scan_bits < features else 0)


def tables(classes: int, features: int) -> Iterator[HashConfig]:
    """Yield tables to try, for very many classes."""
    if classes > FLAT_SCAN_CLASSES and features >= 16:
        yield HashConfig.probed_tables(classes, features)
        yield HashConfig.probed_tables(classes, features, bands=64)
        yield HashConfig.paper(rescore=True, always=64, breadth=4)


def with_cells(config: HashConfig, classes: int) -> HashConfig:
    """Return a scan that is parted into cells where there are enough classes, and the config itself where not."""
    if classes < CELLS_FROM or not config.scan_bits:
        return config
    # Every row is compared with every centre when it is filed: one cell for so many classes would make a build of
    # ten million a hundred times that of a million.
    cells = min(MAX_CELLS, classes // CLASSES_PER_CELL, CELLS_PER_ROOT * math.isqrt(classes))
    return config.with_(cells=cells)


def usual_share(target: float) -> float:
    """Return the share of cells by which scans are compared before there are any: what is missed falls with it."""
    return min(MOST_CELLS_SCANNED, LEAST_CELLS_MISSED / max(1e-9, 1 - target))


def scanning(config: HashConfig, candidates: int, cells: int) -> HashConfig:
    """Return the config that looks at so many cells for so many candidates; with all of them, one without cells."""
    if not config.cells or cells >= config.cells:
        return config.with_(candidates=candidates, cells=0, cell_reach=400)
    return config.with_(candidates=candidates, cell_reach=max(1, candidates * config.cells**2 // cells**2))


def exhaustive_suffices(classes: int) -> bool:
    return classes <= EXACT_CLASSES
