"""How index-v1.mc and index-v1.json were made: `PYTHONPATH=src python tests/golden/make_index_v1.py`.

Run it only to add a file for a new format version, under a new name: files that were released must keep loading.
"""

import numpy as np
from stored_answer import NAMES, made, store

from manyclass import ClassIndex, HashConfig

CONFIG = HashConfig(
    window=4,
    codes=16,
    bands=8,
    keys="fast",
    probes=2,
    skip_silent=True,
    breadth=6,
    always=3,
    sketch_bits=64,
    candidates=12,
    seed=20,
)


def main() -> None:
    rows, bias = made()
    index = ClassIndex.build(rows, bias=bias, config=CONFIG, names=NAMES)
    index.remove([4, 17])
    index.refresh([2, 9], rows=rows[[9, 2]] * np.float32(2))
    store(index, rows, 1)


if __name__ == "__main__":
    main()
