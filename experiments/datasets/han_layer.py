"""The trained layer of the experiment imagenet21k: 20,976 Han characters × 4096 features, with held-out pictures.

That experiment trains it; here its folder of results is opened.
"""

from pathlib import Path

import numpy as np

from experiments.datasets.missing import MissingDataError
from experiments.frame.needs import Need
from experiments.peers.problem import Problem

CHARACTERS, WIDTH, QUERIES = 20_976, 4096, 16_000
USUAL = Path("imagenet21k-out")
MAKE = (
    "make it by `python -m experiments imagenet21k`, stages data to softmax_layer (half an hour or more), and give its "
    "folder of results as --data"
)


def han_layer(folder: Path | None = None) -> Problem:
    """Return the layer with 16,000 held-out pictures' features as queries, in random order.

    folder: results of imagenet21k; None takes `imagenet21k-out`. Raises MissingDataError where it holds no such layer.
    """
    folder = folder or USUAL
    kept = {name: folder / "cache" / f"{name}.npy" for name in ("layer/rows", "layer/bias", "features/test",
                                                               "features/test_labels")}  # fmt: skip
    absent = [file for file in kept.values() if not file.is_file()]
    if absent:
        raise MissingDataError(f"no trained layer in {folder} ({absent[0].relative_to(folder)} is not there)", MAKE)
    rows, bias, features, labels = (np.load(file, mmap_mode="r") for file in kept.values())
    drawn = np.random.default_rng(0).permutation(len(features))[:QUERIES]  # pictures of a font follow each other
    return Problem(rows, bias, np.asarray(features[drawn], np.float32), labels[drawn])


def needs() -> list[Need]:
    """Return where the layer is looked for, for `python -m experiments doctor`."""
    found = str(USUAL) if (USUAL / "cache" / "layer").is_dir() else None
    return [
        Need(
            "the trained Han layer", found, "stages of `index` and `heads` on it; not for --quick", MAKE, optional=True
        )
    ]
