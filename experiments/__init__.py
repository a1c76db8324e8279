"""Whatever measures the library: each experiment a package of its own, all of them in one frame.

`python -m experiments` runs them, docs/experiments.md says what they are, docs/add_an_experiment.md how to add one.
"""

import importlib
from typing import TYPE_CHECKING

from manyclass.errors import ConfigError

if TYPE_CHECKING:
    from experiments.frame.stages import Experiment

EXPERIMENTS = {  # name → module with an `EXPERIMENT`, loaded when it is asked for
    "demo": "experiments.demo",
    "imagenet21k": "experiments.imagenet21k",
    "video_id": "experiments.video_id",
    "skipgram": "experiments.skipgram",
    "index": "experiments.index",
    "heads": "experiments.heads",
    "distributed": "experiments.distributed",
}


def find(name: str) -> "Experiment":
    """Return the experiment of that name."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"experiment {name!r} is unknown; choose from: {', '.join(EXPERIMENTS)}")
    experiment: Experiment = importlib.import_module(EXPERIMENTS[name]).EXPERIMENT
    return experiment
