"""How index-v3.mc and index-v3.json were made: `PYTHONPATH=src python tests/golden/make_index_v3.py`.

Run it only to add a file for a new format version, under a new name: files that were released must keep loading.
"""

import numpy as np
from stored_answer import NAMES, made, store

from manyclass import ClassIndex, HashConfig

CONFIG = HashConfig.flat_sketch(
    64, 96, cells=3, cell_reach=30, breadth=2, candidates=8, seed=20, balance="directions", coordinates=12
)


def main() -> None:
    rows, bias = made()
    bias[11] = -np.inf
    sample = (((np.arange(64 * 20, dtype=np.int64) * 104729 + 7) % 129 - 32) / 32).astype(np.float32).reshape(64, 20)
    index = ClassIndex.build(rows, bias=bias, config=CONFIG, names=NAMES, queries=sample)
    index.remove([4, 17])
    index.refresh([2, 9], rows=rows[[9, 2]] * np.array([[2], [1024]], np.float32))
    store(index, rows, 3)


if __name__ == "__main__":
    main()
