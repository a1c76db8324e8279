"""Ids by the row, beside the definitions; and the empty lists that users have."""

from typing import Any

import pytest
import torch
from head_cases import random_tensor
from torch import Tensor

from manyclass import InputError
from manyclass.torch import CandidateSoftmax, FullSoftmax, HierarchicalSoftmax, SampledSoftmax, WTASoftmax
from manyclass.torch.class_ids import among, first_places

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")  # classes are few
FEATURES, CLASSES = 16, 30
HEADS: list[Any] = [CandidateSoftmax, FullSoftmax, HierarchicalSoftmax, SampledSoftmax, WTASoftmax]


def ids(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randint(-1, 12, (rows, columns), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("columns", [0, 1, 2, 33])
@pytest.mark.parametrize("others", [0, 1, 9])
def test_they_are_what_comparing_each_with_each_gives(rows: int, columns: int, others: int) -> None:
    some, among_them = ids(rows, columns, 0), ids(rows, others, 1)
    compared = (some[:, :, None] == among_them[:, None, :]).any(2)
    assert torch.equal(among(some, among_them), compared)
    alike = some[:, :, None] == some[:, None, :]
    first = alike.int().argmax(2) if columns else torch.zeros(rows, 0, dtype=torch.int64)
    assert torch.equal(first_places(some), first)


@pytest.mark.parametrize("make", HEADS)
def test_nobody_is_excluded_asked_for_or_right(make: Any) -> None:
    head, x = make(FEATURES, CLASSES), random_tensor(5, FEATURES)
    nothing = torch.empty(5, 0, dtype=torch.int64)
    assert head(x, nothing).item() == 0
    head.eval()
    plain, none_left_out = head.topk(x, 3), head.topk(x, 3, exclude=nothing)
    assert torch.equal(plain.classes, none_left_out.classes)
    assert head.log_prob(x, nothing).shape == (5, 0)
    assert head.log_prob(x[:0], nothing[:0]).shape == (0, 0)
    assert head.log_prob(x[:0], torch.empty(0, 4, dtype=torch.int64)).shape == (0, 4)


@pytest.mark.parametrize("make", HEADS)
def test_a_batch_without_targets_can_be_learned_on_frozen_features(make: Any) -> None:
    head = make(FEATURES, CLASSES)
    before = {name: part.detach().clone() for name, part in head.named_parameters()}
    loss = head(1e37 * random_tensor(5, FEATURES), torch.full((5,), -100))
    assert loss.item() == 0
    loss.backward()
    for name, part in head.named_parameters():
        assert torch.equal(part, before[name])


def test_a_refused_batch_leaves_the_running_mean_as_it_was() -> None:
    head = CandidateSoftmax(FEATURES, CLASSES, subtract_mean=True)
    with torch.no_grad():
        head.weight.fill_(1)  # so that every logit is beyond float32, whatever rows are drawn
    with pytest.raises(InputError, match="beyond float32"):
        head(torch.full((5, FEATURES), 8e37), torch.arange(5))
    assert not head.input_mean.any()
    assert head(random_tensor(5, FEATURES), torch.arange(5)).isfinite()
