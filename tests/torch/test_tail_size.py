"""How long the random tail is by default: what its noise is worth, within limits, and the same after a restart."""

import copy
import math

import pytest
import torch
from head_cases import FEATURES, random_tensor, small_head
from torch import Tensor

from manyclass.torch import CandidateSoftmax, RowSGD
from manyclass.torch.tail_size import ELSE, LEAST, MOST, USUAL_TAIL, TailSize

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")  # heads of few classes
MANY, TARGETS = 10**6, 100


def settled(variance: float, probability: float, of_all: int = MANY, steps: int = 2000) -> TailSize:
    """Return it after steps of a head whose variance is this at 500 classes, and less with more of them."""
    size = TailSize()
    losses = torch.full((8,), -math.log(probability))
    for _ in range(steps):
        classes = TARGETS + size.draws
        size.note(losses, torch.full((8,), variance * 500 / classes), classes, of_all)
    return size


@pytest.mark.parametrize(("variance", "probability"), [(0.1, 0.5), (0.05, 0.3), (0.02, 0.7)])
def test_as_many_classes_as_make_a_second_worth_most(variance: float, probability: float) -> None:
    noise = variance * 500 / (1 - probability) ** 2  # of one class
    worth = {classes: 1 / ((ELSE + classes) * (1 + noise / classes)) for classes in range(TARGETS + LEAST, 2000)}
    best = max(worth, key=lambda classes: worth[classes])
    assert settled(variance, probability).draws == pytest.approx(best - TARGETS, abs=3)


def test_few_while_all_classes_are_alike_and_more_for_few_likely_ones() -> None:
    assert settled(1 / 500, 1 / MANY).draws == LEAST
    assert settled(0.4, 0.6).draws > settled(0.1, 0.6).draws > LEAST
    assert settled(0.1, 0.9).draws > settled(0.1, 0.1).draws, "noise weighs more once little is left to learn"


@pytest.mark.parametrize("of_all", [1, 100, 3000, MANY])
@pytest.mark.parametrize("variance", [0.0, 1e-30, 0.5, 1.0, 1e30])
@pytest.mark.parametrize("probability", [1e-30, 0.5, 1.0])
def test_within_limits_whatever_is_read(variance: float, probability: float, of_all: int) -> None:
    draws = settled(variance, probability, of_all, 50).draws
    assert LEAST <= draws <= max(LEAST, min(MOST, of_all // 16))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_step_that_is_not_finite_tells_nothing(value: float) -> None:
    size = settled(0.1, 0.5)
    before = size.settings()
    wrong, right = torch.tensor([value, 0.5]), torch.tensor([0.5, 0.5])
    size.note(right, wrong, 200, MANY)
    if value != math.inf:  # an infinite loss is a probability of 0
        size.note(wrong, right, 200, MANY)
    assert size.settings() == before


def trained(head: CandidateSoftmax, x: Tensor, steps: int) -> list[int]:
    """Return how many classes each step drew; the examples are those of the first classes, one each."""
    optimizer, drawn = RowSGD(head.parameters(), lr=0.5), []
    for step in range(steps):
        chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(step))[:32]
        drawn.append(head.tail)
        optimizer.zero_grad()
        head(x[chosen], chosen).backward()
        optimizer.step()
    return drawn


def test_it_grows_while_a_head_learns_classes_that_are_alike() -> None:
    torch.manual_seed(0)
    classes = 8000
    close = torch.randn(classes // 4, 16).repeat_interleave(4, 0) + 0.5 * torch.randn(classes, 16)
    drawn = trained(CandidateSoftmax(16, classes, meter_every=0), 3 * close, 1500)
    assert drawn[0] == LEAST
    assert drawn[-1] > 2 * LEAST


def test_the_same_for_any_number_of_threads() -> None:
    threads, draws = torch.get_num_threads(), []
    for count in (1, 3):
        torch.set_num_threads(count)
        torch.manual_seed(0)
        draws.append(trained(CandidateSoftmax(16, 2000, meter_every=0), 3 * random_tensor(2000, 16), 300))
    torch.set_num_threads(threads)
    assert draws[0] == draws[1]


def test_a_restored_head_goes_on_with_the_same_bits() -> None:
    x = 3 * random_tensor(2000, 16)
    head = CandidateSoftmax(16, 2000, meter_every=0)
    trained(head, x, 300)
    other = CandidateSoftmax(16, 2000, meter_every=0)
    other.load_state_dict(head.state_dict())
    other.restore(head.extra_tensors(), head.extra_settings())
    copied = copy.deepcopy(head)
    assert trained(head, x, 50) == trained(other, x, 50) == trained(copied, x, 50)
    assert torch.equal(head.weight, other.weight)
    assert torch.equal(head.weight, copied.weight)


def test_a_checkpoint_from_before_begins_anew() -> None:
    head = small_head()
    settings = head.extra_settings()
    del settings["tail_size"]
    head.restore(head.extra_tensors(), settings)
    assert head.tail == LEAST


def test_a_number_stays_and_so_does_the_usual_one_where_nothing_tells() -> None:
    assert small_head().eval().tail == USUAL_TAIL
    for settings in (
        {"shared": False},
        {"output": "logistic"},
        {"targets_for_all": False},
        {"tail_sampler": "uniform"},
    ):
        assert small_head(**settings).tail == USUAL_TAIL, settings
    head = small_head(tail=7)
    for step in range(3):
        head(random_tensor(4, FEATURES, seed=step), torch.arange(4)).backward()
    assert head.tail == 7
