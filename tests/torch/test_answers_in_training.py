"""Answers between training steps: what the steps have moved is found by the next question, whatever moved it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from manyclass import HashConfig
from manyclass.torch import CandidateSoftmax, RowAdagrad, RowSGD, load_checkpoint, save_checkpoint

CLASSES, FEATURES, EXAMPLES = 12_000, 32, 256
CENTRES = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "fused": {"row_update": "fused", "row_optimizer": lambda rows: RowSGD(rows, lr=0.5)},
    "at the step": {"row_update": "at_step", "row_optimizer": lambda rows: RowAdagrad(rows, lr=0.1)},
    "own candidates": {"shared": False, "candidates": 30},
    "mined": {"mined_examples": 8},
    "cosine": {"normalize": True, "temperature": 0.1},
    "bfloat16": {"dtype": torch.bfloat16},
    "votes": {"config": HashConfig.paper(candidates=30)},
    "logistic": {"output": "logistic"},
}


def batch(step: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(step)
    labels = torch.randint(CLASSES, (EXAMPLES,), generator=random)
    return CENTRES[labels] + 0.3 * torch.randn(EXAMPLES, FEATURES, generator=random), labels


def train(head: CandidateSoftmax, steps: range) -> None:
    rest = [parameter for parameter in head.parameters() if head.row_optimizer is None]
    optimizer = RowSGD(rest, lr=0.5, momentum=0.9) if rest else RowSGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    head.train()
    for step in steps:
        optimizer.zero_grad()
        head(*batch(step)).backward()
        optimizer.step()
        if head.row_update == "at_step":
            head.row_optimizer.step()
    head.eval()


def agreement(head: CandidateSoftmax, candidates: int = 200) -> float:
    """Return how often the best class is that of all classes."""
    x, _ = batch(10_000)
    with torch.no_grad():
        found = head.topk(x, 1, candidates=candidates).classes
        with head.exact():
            return float((head.topk(x, 1).classes == found).float().mean())


@pytest.mark.parametrize("way", WAYS)
def test_every_question_is_answered_by_the_rows_as_they_are(way: str) -> None:
    torch.manual_seed(0)
    head = CandidateSoftmax(FEATURES, CLASSES, meter_every=0, **WAYS[way])
    head.eval()
    for start in range(0, 160, 40):
        train(head, range(start, start + 40))
        found = agreement(head)
        head.rebuild()
        assert found >= agreement(head) - 0.05  # of the winners that a new index finds


def test_a_few_rows_that_moved_are_hashed_and_no_others() -> None:
    torch.manual_seed(0)
    head = CandidateSoftmax(FEATURES, CLASSES, tail=8, meter_every=0).eval()
    optimizer = RowSGD(head.parameters(), lr=0.5)
    agreement(head)
    built = head.index.built
    head.train()
    x, labels = batch(0)
    head(x[:16], labels[:16]).backward()
    optimizer.step()
    waiting = set(head.index.moved.nonzero()[0].tolist())
    assert set(labels[:16].tolist()) <= waiting
    assert len(waiting) <= 16 + 8
    head.eval()
    agreement(head)
    assert head.index.built is built
    assert head.index.rehashed == len(waiting)
    assert not head.index.moved.any()
    agreement(head)
    assert head.index.rehashed == len(waiting)  # asked again, nothing is left to do


def test_what_waits_to_be_hashed_is_part_of_a_checkpoint(tmp_path: Any) -> None:
    torch.manual_seed(0)
    head = CandidateSoftmax(FEATURES, CLASSES, meter_every=0).eval()
    agreement(head)
    train(head, range(60))
    optimizer = RowSGD(head.parameters(), lr=0.5)
    save_checkpoint(tmp_path / "kept", head, optimizer, step=60)
    other = CandidateSoftmax(FEATURES, CLASSES, meter_every=0)
    load_checkpoint(tmp_path / "kept", other, RowSGD(other.parameters(), lr=0.5))
    assert (other.index.moved == head.index.moved).all()
    assert head.index.moved.any()
    found = agreement(other.eval())
    other.rebuild()
    assert found >= agreement(other) - 0.05


def test_a_training_step_looks_things_up_as_they_are() -> None:
    """Whoever mines re-hashes the step's share; catching up would cost a build in every step."""
    torch.manual_seed(0)
    head = CandidateSoftmax(FEATURES, CLASSES, shared=False, candidates=30, refresh_limit=4, meter_every=0)
    train(head, range(20))
    assert head.index.builds == 1
    assert head.index.moved.sum() > CLASSES / 4
