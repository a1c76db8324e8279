"""What every golden file is made from and keeps beside it; its makers differ in the config and in what happens next."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manyclass import ClassIndex

FOLDER = Path(__file__).parent
NAMES = [f"Größe {i} 木" for i in range(30)]


def made() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return rows and biases: whole numbers over a power of two, the same whatever NumPy makes them."""
    number = np.arange(30 * 20, dtype=np.int64)
    rows = (((number * 7919 + 13) % 257 - 128) / 64).astype(np.float32).reshape(30, 20)
    return rows, (((np.arange(30) * 31) % 17 - 8) / 8).astype(np.float32)


def store(index: ClassIndex, rows: npt.NDArray[Any], version: int) -> None:
    """Write the file of a format version, and what it answers."""
    index.save(FOLDER / f"index-v{version}.mc")
    queries = rows[[1, 2, 8, 17]] + np.float32(0.25)
    found = index.search(queries, 5)
    stored = {
        "queries": queries.tolist(),
        "candidates": index.retrieve(queries)[0].tolist(),
        "classes": found.classes.tolist(),
        "logits": [[round(float(logit), 4) for logit in row] for row in found.logits],
    }
    (FOLDER / f"index-v{version}.json").write_text(json.dumps(stored, indent=1) + "\n")
