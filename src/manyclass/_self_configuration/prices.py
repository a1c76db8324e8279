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
