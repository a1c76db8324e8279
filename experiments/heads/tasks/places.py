"""Next places of a user: from a random part of the places that somebody has visited, tell the others.

Recall@20 and NDCG@20 of the held-out places among all that the user is not known to have visited, a mean over users:
as LightGCN is judged (https://arxiv.org/abs/2002.02126).
"""

import numpy as np
import torch
from torch import Tensor, nn

from experiments.datasets.gowalla import Ids, Visits, gowalla, together
from experiments.heads.tasks.task import Examples, Task, embedded_bag
from manyclass.training.metrics import Metrics, NDCGAt, RecallAt

FEATURES, K = 128, 20
MOST_READ, MOST_WANTED = 48, 16  # places of a user in a training example: read, and wanted


class PlacesTask(Task):
    """A bag of embedded places, and several right answers. known: what is trained on, and never an answer."""

    features, optimizer = FEATURES, "adagrad"

    def __init__(self, known: Visits, validated: Visits, tested: Visits, classes: int, seed: int) -> None:
        self.known, self.validated, self.tested, self.classes, self.seed = known, validated, tested, classes, seed
        counts = np.bincount(known.places, minlength=classes).clip(min=1)  # a place without visits may be wanted too
        self.frequencies = torch.from_numpy(counts / counts.sum())
        self.several = np.flatnonzero(np.diff(known.starts) > 1)  # users of whom there is something to tell

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        random = np.random.default_rng((self.seed, step))
        read = np.zeros((size, MOST_READ), np.int64)  # 0 is padding, place p is read as p + 1
        wanted = np.full((size, MOST_WANTED), -1, np.int64)
        for row, user in enumerate(random.choice(self.several, size)):
            places = random.permutation(self.known[user])
            split = random.integers(1, len(places))  # at least one on each side
            inputs, targets = places[:split][:MOST_READ], places[split:][:MOST_WANTED]
            read[row, : len(inputs)], wanted[row, : len(targets)] = inputs + 1, targets
        return torch.from_numpy(read), torch.from_numpy(wanted)

    def validation(self, count: int) -> Examples:
        return self._asked(self.validated, count)

    def test(self, count: int) -> Examples:
        return self._asked(self.tested, count)

    def tests_at_the_end(self) -> dict[str, Examples]:
        return {"all users": self._asked(self.tested, len(self.tested))}

    def _asked(self, held_out: Visits, count: int) -> Examples:
        """Return users from all over, with all that is known of them, and what was held out."""
        users: Ids = np.random.default_rng(0).permutation(np.flatnonzero(np.diff(held_out.starts)))[:count]
        known = self.known.padded(users)
        return Examples(torch.from_numpy(known + 1), torch.from_numpy(held_out.padded(users)), torch.from_numpy(known))

    def trunk(self) -> nn.Module:
        return embedded_bag(self.classes + 1, FEATURES)

    def metrics(self) -> Metrics:
        return Metrics([RecallAt(K), NDCGAt(K)])


def places(tuning: bool, seed: int) -> PlacesTask:
    """Return the task on Gowalla. tuning: what settings are chosen by is not trained on; else it is, as is usual."""
    visits = gowalla()
    classes = 1 + max(int(part.places.max()) for part in visits.values())
    known = visits["train"] if tuning else together(visits["train"], visits["valid"])
    return PlacesTask(known, visits["valid"], visits["test"], classes, seed)


def made_places(users: int, classes: int, seed: int) -> PlacesTask:
    """Return users that roam about a home on a circle of places."""
    random = np.random.default_rng(seed)
    sets = []
    for home in random.integers(classes, size=users):
        away = np.rint(random.normal(scale=classes / 50, size=24)).astype(np.int64)
        sets.append(np.unique((home + away) % classes))
        sets[-1] = random.permutation(sets[-1])
    validated, tested, known = (
        Visits.of([one[part] for one in sets]) for part in (slice(2), slice(2, 4), slice(4, None))
    )
    return PlacesTask(known, validated, tested, classes, seed)
