"""What a search costs, by a count of its work.

Counted, not timed: an index must come out the same on every machine and in every run. One unit is about a nanosecond
of one core; only ratios matter.
"""

from dataclasses import dataclass
from typing import Literal

from manyclass._search_sizes import search_sizes
from manyclass.config import HashConfig

Optimize = Literal["batch", "single"]


@dataclass(frozen=True)
class Prices:
    """What each kind of work costs: fitted to the times of some hundred searches, rounded, and between what it takes
    with AVX-512 and with AVX2.
    """

    balance_product: float = 0.012  # a feature times a coordinate
    query_bit: float = 4.0  # a bit of the query's own sketch
    cell: float = 5.0  # a cell that may be chosen,
    cell_product: float = 0.02  # and a feature of its centre
    cell_scanned: float = 30.0  # a cell that is chosen,
    scan_class: float = 0.1  # a class in it,
    scan_bit: float = 0.003  # and a bit of that
    kept_class: float = 40.0  # a class whose longer sketch is looked up
    kept_bit: float = 0.16
    exact_class: float = 140.0  # a class that gets an exact logit: above all, its row is waited for
    exact_feature: float = 0.27
    bucket: float = 40.0
    vote: float = 0.6


PRICES = {
    "batch": Prices(),
    # A lone query has nobody to share a centre or a cell with that is in the cache by now, and waits for each bucket.
    "single": Prices(
        balance_product=0.022, cell=8.0, cell_product=0.035, cell_scanned=60.0, scan_class=0.2, bucket=80.0
    ),
}


def work(
    config: HashConfig,
    classes: int,
    features: int,
    candidates: int,
    optimize: Optimize = "batch",
    scanned: float | None = None,
) -> int:
    """Return what a search for so many candidates costs, in units of about a nanosecond.

    scanned: classes in the cells that a query scans, where that was counted; else cells are taken to be of one size.
    """
    price, sizes = PRICES[optimize], search_sizes(config, classes, candidates)
    width = config.width(features)
    total = sizes.candidates * (price.exact_class + price.exact_feature * features)
    if config.balance != "none":
        total += price.balance_product * features * (width if config.balance == "directions" else 1)
    if config.scan_bits:
        total += price.query_bit * config.scan_bits
        if config.cells:
            total += config.cells * (price.cell + price.cell_product * width) + sizes.cells * price.cell_scanned
        if scanned is None:
            scanned = classes * sizes.cells / config.cells if config.cells else classes
        total += scanned * (price.scan_class + price.scan_bit * config.scan_bits)
    if config.bands:
        total += config.bands * config.probes * price.bucket
        if config.probes == 1:
            total += config.bands * classes / 2**config.bucket_bits * price.vote
    if config.sketch_bits:
        total += sizes.keep * (price.kept_class + price.kept_bit * config.sketch_bits)
    return round(total)
