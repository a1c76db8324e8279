"""How many random classes a step draws: as many as their noise is worth.

The classes of a step stand for all the rest, and by which of them it has, its normaliser varies. With v the relative
variance of that, and q the square of what is left for an example to learn, 1 minus the probability of its target, the
noise of a step is v / q in the mean of its examples. It is near nothing at the start of training, when all classes are
alike; it grows as the few that an example may be mistaken for hold most of the probability, and are rarely among those
drawn. Noise falls as 1 / classes while the time of a step grows with them, so what a second of training is worth,

    1 / ((ELSE + classes) · (1 + noise · classes now / classes)),

is most at classes = √(ELSE · noise · classes now), where ELSE is what all else in a step takes, in classes.
"""

import math
from typing import Any

import numpy as np
from torch import Tensor

USUAL_TAIL = 128  # random classes where nothing tells how many are worth it
LEAST, MOST = 32, 1024
LARGEST_SHARE = 1 / 16  # of all classes
ELSE = (
    2000  # 1300 by the clock, with a network of one hidden layer below; more, as the log of what varies is also biased
)
RATE = 0.02  # of a step in the running means


class TailSize:
    """How many classes the next step draws, `draws`, by what the last steps showed."""

    def __init__(self) -> None:
        self.draws = LEAST
        self.variance, self.unlearned, self.classes = 0.0, 1.0, 0.0  # running means: v, q, and classes of a step

    def note(self, losses: Tensor, variance: Tensor, classes: int, of_all: int) -> None:
        """Take in a step over so many classes, of so many in all.

        losses: (examples,), the log of 1 / the probability of each target. variance: (examples,), v of each.
        """
        unlearned = float(np.square(1 - np.exp(-losses.detach().double().numpy())).mean())
        now = float(variance.double().numpy().mean()), unlearned, float(classes)
        if not all(map(math.isfinite, now)):
            return
        if not self.classes:
            self.variance, self.unlearned, self.classes = now
        self.variance += RATE * (now[0] - self.variance)
        self.unlearned += RATE * (now[1] - self.unlearned)
        self.classes += RATE * (now[2] - self.classes)
        best = math.sqrt(ELSE * self.noise * self.classes)
        most = max(LEAST, min(MOST, int(LARGEST_SHARE * of_all)))
        self.draws = int(min(most, max(LEAST, best - (classes - self.draws))))

    @property
    def noise(self) -> float:
        """How much of a step is noise of its draws: 0 none, 1 as much as what it learns."""
        return min(1.0, self.variance / max(self.unlearned, 1e-12))

    def settings(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, as JSON would."""
        return {name: getattr(self, name) for name in ("draws", "variance", "unlearned", "classes")}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take over what `settings` gave."""
        self.draws = int(settings["draws"])
        self.variance, self.unlearned = float(settings["variance"]), float(settings["unlearned"])
        self.classes = float(settings["classes"])
