"""Gowalla: 29,858 people and the places that each has visited, 40,981 in all, in the split that LightGCN is tested on.

A file has a line for each user: `user place place …`. Its training set is train.txt and valid.txt together.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.datasets.missing import MissingDataError
from experiments.datasets.opened_text import find_text, opened_text
from experiments.frame.needs import Need

VARIABLE = "MANYCLASS_GOWALLA"  # with the folder of the three files
GET = (
    f"set {VARIABLE} to a folder with train.txt, valid.txt and test.txt (or .txt.xz), as the repository "
    "geon0325/LightGCNpp on GitHub has them for gowalla"
)
PARTS = ("train", "valid", "test")
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Visits:
    """Sets of places, one for each user: those of user u are places[starts[u] : starts[u + 1]]."""

    places: Ids
    starts: Ids

    @classmethod
    def of(cls, sets: list[Ids]) -> "Visits":
        """Return these sets in one array."""
        return cls(np.concatenate(sets), np.cumsum([0, *map(len, sets)]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, user: int) -> Ids:
        return self.places[self.starts[user] : self.starts[user + 1]]

    def padded(self, users: Ids, fill: int = -1) -> Ids:
        """Return the sets of some users as rows, padded at the right."""
        sizes = self.starts[users + 1] - self.starts[users]
        rows = np.full((len(users), max(1, int(sizes.max(initial=0)))), fill, np.int64)
        present = np.arange(rows.shape[1]) < sizes[:, None]
        rows[present] = np.concatenate([self[user] for user in users]) if len(users) else []
        return rows


def together(first: Visits, second: Visits) -> Visits:
    """Return for each user the places of both."""
    return Visits.of([np.concatenate([first[user], second[user]]) for user in range(len(first))])


def gowalla() -> dict[str, Visits]:
    """Return `train`, `valid` and `test`; raises MissingDataError where the variable names no such folder."""
    folder = data_folder()
    return {name: read_visits(part) for name, part in parts_of(folder).items()}


def read_visits(file: Path) -> Visits:
    """Return the places of all users; users are numbered as their lines."""
    with opened_text(file) as lines:
        return Visits.of([np.array(line.split()[1:], np.int64) for line in lines])


def data_folder() -> Path:
    """Return the folder that the variable names."""
    named = os.environ.get(VARIABLE)
    if not named or not parts_of(Path(named)):
        raise MissingDataError("no Gowalla" if not named else f"{named} lacks train.txt, valid.txt or test.txt", GET)
    return Path(named)


def parts_of(folder: Path) -> dict[str, Path]:
    """Return the three files by name; none where one is absent."""
    found = {name: file for name in PARTS if (file := find_text(folder, name))}
    return found if len(found) == len(PARTS) else {}


def needs() -> list[Need]:
    """Return where it is looked for, for `python -m experiments doctor`."""
    named = os.environ.get(VARIABLE)
    found = named if named and parts_of(Path(named)) else None
    return [Need("Gowalla", found, "the task on next places; not for --quick", GET, optional=True)]
