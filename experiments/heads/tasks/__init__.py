"""The tasks on which output layers are compared, from the demo's points to articles of Wikipedia.

task.py says what a task is; `open_task` returns one. Sizes, budgets and learning rates stand in ../sizes.py.
"""

from dataclasses import dataclass
from pathlib import Path

from experiments.heads.sizes import TaskSizes
from experiments.heads.tasks import articles, han, places, points
from experiments.heads.tasks.task import Examples, Task

__all__ = ["Examples", "Task", "Where", "open_task"]

FAMILY = 50  # classes in a family


@dataclass(frozen=True)
class Where:
    """Where the data of a task comes from. quick: it is made on the spot; data: the folder of a run of imagenet21k."""

    quick: bool = False
    data: Path | None = None


def open_task(name: str, sizes: TaskSizes, where: Where, seed: int, tuning: bool = False) -> Task:
    """Return a task. tuning: what settings are chosen by is not trained on, where it otherwise would be.

    Raises MissingDataError where its data is not on this machine.
    """
    classes, quick = sizes.classes, where.quick
    if name == "demo":
        return points.demo(classes, seed)
    if name == "families":
        return points.families(classes, max(1, classes // FAMILY), seed)
    if name == "wordnet":
        return points.made_glosses(classes, seed) if quick else points.glosses(classes, seed)
    if name == "han":
        return han.made_features(classes, 64, seed) if quick else han.han(where.data, seed)
    if name == "places":
        return places.made_places(classes, classes, seed) if quick else places.places(tuning, seed)
    assert name == "articles", f"there is no task {name}"
    return articles.made_articles(classes, 2 * classes, seed) if quick else articles.articles(seed)
