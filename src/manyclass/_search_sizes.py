"""How much of an index one search looks at."""

from typing import NamedTuple

from manyclass.config import HashConfig


class SearchSizes(NamedTuple):
    """How much of the index one search looks at."""

    candidates: int  # classes that get an exact logit
    keep: int  # classes that tables or scan hand on to the re-ranking
    probes: int  # of tables: buckets read per band
    cells: int  # of a scan with cells: how many of them are scanned


def search_sizes(config: HashConfig, classes: int, candidates: int) -> SearchSizes:
    """Return how much a search for so many candidates looks at, among so many classes."""
    if not config.bands and not config.scan_bits:
        everything = max(1, classes)
        return SearchSizes(everything, everything, config.probes, 0)
    wanted = max(1, min(candidates, classes))
    keep = wanted
    if config.sketch_bits or config.rescore or config.probes > 1:
        keep = min(wanted * config.breadth, max(1, classes * config.probes))
    return SearchSizes(wanted, keep, config.probes, config.cells_scanned(wanted) if config.cells else 0)
