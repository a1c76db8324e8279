"""The job of `manyclass train --quick`, and a model for your own: the demo's task, tell incomplete pictures apart.

Every class is a point, and an example is its point with half of the features missing, and noise. Classes are met as
unequally often as words are.
"""

import torch
from torch import Tensor, nn

from manyclass.distributed import HeadSettings, Job, ServerRule

FEATURES, HIDDEN, BATCH = 64, 128, 256


def job(quick: bool = False) -> Job:
    """Return the job: 100,000 classes, or 20,000 for a first try."""
    classes = 20_000 if quick else 100_000
    centres = torch.randn(classes, FEATURES, generator=torch.Generator().manual_seed(0))
    shares = 1 / (torch.arange(classes, dtype=torch.float64) + 10)
    cumulated = (shares / shares.sum()).cumsum(0)

    def draw(seed: int, count: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        places = torch.rand(count, generator=generator, dtype=torch.float64)
        labels = torch.searchsorted(cumulated, places).clamp_(max=classes - 1)
        seen = torch.rand(count, FEATURES, generator=generator) < 0.5
        return centres[labels] * seen + 0.5 * torch.randn(count, FEATURES, generator=generator), labels

    def trunk() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.BatchNorm1d(HIDDEN))

    rule = ServerRule(lr=0.3, momentum=0.9)
    return Job(
        trunk=trunk,
        batches=lambda number: draw(number + 1, BATCH),
        head=HeadSettings(classes=classes, features=HIDDEN, rule=rule),
        trunk_rule=rule,
        steps=600 if quick else 4000,
        test=lambda: [draw(0, 1000)],
        learned=0.4 if quick else None,
    )
