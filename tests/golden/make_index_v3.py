"""How index-v3.mc and index-v3.json were made: `PYTHONPATH=src python tests/golden/make_index_v3.py`.

Run it only to add a file for a new format version, under a new name: files that were released must keep loading.
"""

import json
from pathlib import Path

import numpy as np

from manyclass import ClassIndex, HashConfig

FOLDER = Path(__file__).parent
CONFIG = HashConfig.flat_sketch(
    64, 96, cells=3, cell_reach=30, breadth=2, candidates=8, seed=20, balance="directions", coordinates=12
)


def main() -> None:
    # Whole numbers over eight: exact in float32 whatever makes them, so that this file does not depend on NumPy.
    number = np.arange(30 * 20, dtype=np.int64)
    rows = (((number * 7919 + 13) % 257 - 128) / 64).astype(np.float32).reshape(30, 20)
    bias = (((np.arange(30) * 31) % 17 - 8) / 8).astype(np.float32)
    bias[11] = -np.inf
    names = [f"Größe {i} 木" for i in range(30)]
    sample = (((np.arange(64 * 20, dtype=np.int64) * 104729 + 7) % 129 - 32) / 32).astype(np.float32).reshape(64, 20)
    index = ClassIndex.build(rows, bias=bias, config=CONFIG, names=names, queries=sample)
    index.remove([4, 17])
    index.refresh([2, 9], rows=rows[[9, 2]] * np.array([[2], [1024]], np.float32))
    index.save(FOLDER / "index-v3.mc")
    queries = rows[[1, 2, 8, 17]] + np.float32(0.25)
    ids, _ = index.retrieve(queries)
    found = index.search(queries, 5)
    stored = {
        "queries": queries.tolist(),
        "candidates": ids.tolist(),
        "classes": found.classes.tolist(),
        "logits": [[round(float(logit), 4) for logit in row] for row in found.logits],
    }
    (FOLDER / "index-v3.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
