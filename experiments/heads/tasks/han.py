"""Han characters: the kept 4096 features of a trained network, and an output layer directly on them."""

from pathlib import Path

import numpy as np
from torch import Tensor, nn

from experiments.datasets.han_layer import MAKE, USUAL
from experiments.datasets.kept_features import NAMES, Features, Halves, Ids, read_features
from experiments.datasets.missing import MissingDataError
from experiments.heads.tasks.task import Examples, Task

VALIDATED = 5  # every fifth held-out picture is not tested on: settings are chosen by it


class HanTask(Task):
    """Pictures of characters as features; the test pictures are of fonts that were not trained on."""

    def __init__(self, kept: Features, seed: int) -> None:
        self.kept, self.seed = kept, seed
        self.classes, self.features = int(kept.train_labels.max()) + 1, kept.train.shape[1]
        self.order = np.random.default_rng(0).permutation(len(kept.test))  # pictures of a font follow each other

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        drawn = np.random.default_rng((self.seed, step)).integers(len(self.kept.train), size=size)
        return self.kept.examples("train", np.sort(drawn))  # reads the file from front to back

    def validation(self, count: int) -> Examples:
        return Examples(*self.kept.examples("test", np.sort(self.order[::VALIDATED][:count])))

    def test(self, count: int) -> Examples:
        rest = self.order[np.arange(len(self.order)) % VALIDATED != 0]
        return Examples(*self.kept.examples("test", np.sort(rest[:count])))

    def trunk(self) -> nn.Module:
        return nn.Identity()


def han(folder: Path | None, seed: int) -> HanTask:
    """Return the task on the features that a run of imagenet21k kept in its folder of results."""
    kept = (folder or USUAL) / "cache" / "features"
    absent = [name for name in NAMES if not (kept / f"{name}.npy").is_file()]
    if absent:
        raise MissingDataError(f"no features in {folder or USUAL} (cache/features/{absent[0]}.npy is not there)", MAKE)
    return HanTask(read_features(kept), seed)


def made_features(classes: int, features: int, seed: int) -> HanTask:
    """Return noisy rectified points."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(classes, features))

    def pictures(count: int) -> tuple[Halves, Ids]:
        labels = random.integers(classes, size=count)
        noisy = centres[labels] + random.normal(size=(count, features))
        return np.maximum(noisy, 0).astype(np.float16), labels

    train, labels = pictures(20 * classes)
    labels[0] = classes - 1  # the number of classes is told by the last of them
    read = train.astype(np.float32)
    mean, scale = read.mean(0), 1 / (read.std(0) + 1e-3)
    return HanTask(Features(train, labels, *pictures(2000), mean, scale), seed)
