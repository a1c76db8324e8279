"""How a layer in training finds candidates unless it is told."""

from manyclass.config import HashConfig, uses_tables

CELLS = 1024  # of a layer with so many classes that it does not scan them all: what a re-hash compares a row with
SCANNED_CLASSES = 1 << 16  # per example, where there are cells


def training_config(classes: int, features: int, candidates: int) -> HashConfig:
    """Return how a head finds so many candidates unless told: as an index does, with less effort if it is large.

    Training forgives a miss, which the next example makes up for, and it re-hashes rows at every step; serving does
    neither. So the scan of a large head passes over the same number of classes however many there are.
    """
    if not uses_tables(classes, features):
        return HashConfig.for_problem(classes, features)
    reach = candidates * classes**2 // SCANNED_CLASSES**2
    return HashConfig.flat_sketch(256, cells=CELLS, cell_reach=min(reach, 2**31 - 1), candidates=candidates)
