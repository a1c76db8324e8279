"""Settings that are worth trying at a size, and what a search with each of them costs by a count of its work.

Counted, not timed: an index must come out the same on every machine and in every run. One unit is about a nanosecond
of one core; only ratios matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from manyclass._search_sizes import search_sizes
from manyclass.config import (
    CLASSES_PER_CELL,
    EXACT_CLASSES,
    FLAT_SCAN_CLASSES,
    MAX_BALANCED_FEATURES,
    MAX_CELLS,
    HashConfig,
)

Optimize = Literal["batch", "single"]
LADDER = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300)  # candidates that are tried
MOST_CANDIDATES = LADDER[-1]
BITS = (128, 256, 512, 1024, 2048, 4096)
FEW_BITS = (32, 64)  # where memory is short
CELLS_FROM = 20_000  # classes; below that a scan takes little more than the exact logits behind it
MOST_DIRECTIONS = 1024  # features up to which a query is turned into directions; above, features are scaled


@dataclass(frozen=True)
class Prices:
    """What each kind of work costs. Measured once on a core with AVX2, rounded."""

    scan_class: float = 0.3  # a class that is scanned, whatever its bits
    scan_bit: float = 0.0032
    cell_product: float = 0.05  # a feature of a cell's centre
    balance_product: float = 0.025  # a feature times a coordinate
    kept_class: float = 10.0  # a class whose longer sketch is looked up
    kept_bit: float = 0.16
    exact_class: float = 60.0  # a class that gets an exact logit
    exact_feature: float = 0.3
    bucket: float = 40.0
    vote: float = 0.6


PRICES = {
    "batch": Prices(),
    # A lone query waits for memory where a batch finds much of it in the cache, and for each bucket in turn.
    "single": Prices(balance_product=0.035, exact_class=80.0, exact_feature=0.35, kept_class=15.0, bucket=80.0),
}


def work(config: HashConfig, classes: int, features: int, candidates: int, optimize: Optimize = "batch") -> int:
    """Return what a search for so many candidates costs, in units of about a nanosecond."""
    price, sizes = PRICES[optimize], search_sizes(config, classes, candidates)
    width = config.width(features)
    total = sizes.candidates * (price.exact_class + price.exact_feature * features)
    if config.balance != "none":
        total += price.balance_product * features * (width if config.balance == "directions" else 1)
    if config.scan_bits:
        share = 1.0
        if config.cells:
            share = sizes.cells / config.cells
            total += price.cell_product * config.cells * width
        total += share * classes * (price.scan_class + price.scan_bit * config.scan_bits)
    if config.bands:
        total += config.bands * config.probes * price.bucket
        if config.probes == 1:
            total += config.bands * classes / 2**config.bucket_bits * price.vote
    if config.sketch_bits:
        total += sizes.keep * (price.kept_class + price.kept_bit * config.sketch_bits)
    return round(total)


def scans(features: int, few_bits: bool = False) -> Iterator[HashConfig]:
    """Yield scans of every class to try, shortest first: with a balance that suits the width, and without one."""
    width = 1 << (features - 1).bit_length()
    for bits in (*FEW_BITS, *BITS) if few_bits else BITS:
        if bits > 128 and bits > 4 * width:
            return
        if features <= MOST_DIRECTIONS:
            kept = bits if bits < features else 0  # signs tell most of as many leading directions as there are bits
            yield HashConfig.flat_sketch(bits, balance="directions", coordinates=kept)
        elif features <= MAX_BALANCED_FEATURES:
            yield HashConfig.flat_sketch(bits, balance="features")
        yield HashConfig.flat_sketch(bits)


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
    cells = min(MAX_CELLS, classes // CLASSES_PER_CELL)
    return config.with_(cells=cells)


def scanning(config: HashConfig, candidates: int, cells: int) -> HashConfig:
    """Return the config that looks at so many cells for so many candidates; with all of them, one without cells."""
    if not config.cells or cells >= config.cells:
        return config.with_(candidates=candidates, cells=0, cell_reach=400)
    return config.with_(candidates=candidates, cell_reach=max(1, candidates * config.cells**2 // cells**2))


def exhaustive_suffices(classes: int) -> bool:
    return classes <= EXACT_CLASSES
