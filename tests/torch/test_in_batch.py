"""In-batch negatives: corrected so that the normaliser is, in the mean over batches, that of all classes."""

import math

import pytest
import torch
from torch import Tensor

from manyclass.torch import SampledSoftmax
from manyclass.torch.in_batch import InBatch
from manyclass.torch.target_counts import TargetCounts

CLASSES, BATCH, TRIALS = 12, 16, 4000
PROBABILITIES = torch.softmax(torch.linspace(0, -3, CLASSES), 0).double()


def batches(generator: torch.Generator, own: int) -> Tensor:
    """Return many batches (trials, examples) of targets, the first of each the same."""
    drawn = torch.multinomial(PROBABILITIES.float(), TRIALS * BATCH, replacement=True, generator=generator)
    drawn = drawn.reshape(TRIALS, BATCH)
    drawn[:, 0] = own
    return drawn


@pytest.mark.parametrize("own", [0, CLASSES - 1])
def test_the_normaliser_of_an_example_is_estimated_without_bias(own: int) -> None:
    torch.manual_seed(2)
    head = SampledSoftmax(4, CLASSES, sampler="in_batch", frequencies=PROBABILITIES * 1000, reduction="none").double()
    x = torch.randn(BATCH, 4, dtype=torch.float64)
    logits = x[0] @ head.weight.T + head.bias
    sums, as_yi = [], []
    with torch.no_grad():
        for some in batches(torch.Generator().manual_seed(0), own):
            loss = head(x, some)[0]
            sums.append((loss + logits[own]).exp())
            # The same, the own positive corrected as well and expected among all examples.
            as_yi.append((logits[some] - (BATCH * PROBABILITIES[some]).log()).exp().sum())
    found, exact = torch.stack(sums), logits.exp().sum()
    error = found.std() / TRIALS**0.5
    assert (found.mean() - exact).abs() <= 4 * error
    assert 4 * error < 0.05 * exact  # it can tell
    if own == CLASSES - 1:
        assert torch.stack(as_yi).mean() > 1.06 * exact  # a rare positive that is there for certain counts too much


def test_examples_with_several_positives_are_estimated_without_bias() -> None:
    """Each class is a positive of an example or not, by chance; the first example's own are fixed."""
    generator = torch.Generator().manual_seed(0)
    rates = 3 * PROBABILITIES
    in_batch = InBatch(None, PROBABILITIES)
    weights = torch.zeros(TRIALS, CLASSES, dtype=torch.float64)
    for row in weights:
        met = torch.rand(BATCH, CLASSES, generator=generator, dtype=torch.float64) < rates
        met[0] = False
        met[0, :3] = True  # as many as others have in the mean
        drawn = in_batch.negatives(torch.where(met, torch.arange(CLASSES), -1))
        row[drawn.classes] = drawn.log_weights.exp()
    others = weights[:, 3:]
    error = others.std(0) / TRIALS**0.5
    # A batch's number of targets is chance too: the estimate is a ratio, off by a few in a thousand.
    assert ((others.mean(0) - 1).abs() <= 4 * error + 0.02).all()
    assert (error < 0.03).all()


def test_counted_weights_are_off_by_the_chance_that_a_class_was_met_before() -> None:
    generator = torch.Generator().manual_seed(0)
    before = 40
    weights = torch.zeros(TRIALS, CLASSES, dtype=torch.float64)
    for row, some in zip(weights, batches(generator, 0), strict=True):
        counts = TargetCounts(CLASSES, remembered=1000)
        counts.add(torch.multinomial(PROBABILITIES.float(), before, replacement=True, generator=generator)[:, None])
        counts.add(some[:, None])
        drawn = InBatch(counts).negatives(some[:, None])
        row[drawn.classes] = drawn.log_weights.exp()
    found, error = weights.mean(0)[1:], weights.std(0)[1:] / TRIALS**0.5
    met = 1 - (1 - PROBABILITIES[1:]) ** (before + 1)  # of n binomial, (before + 1) · p · E[1 / (n + 1)]
    assert met.min() < 0.6
    assert ((found - met).abs() <= 4 * error).all()
    assert (error < 0.03).all()


def test_a_batch_of_one_has_no_negatives() -> None:
    head = SampledSoftmax(4, CLASSES, sampler="in_batch")
    loss = head(torch.randn(1, 4), torch.tensor([3]))
    assert loss.item() == pytest.approx(0)
    loss.backward()


def test_an_own_positive_is_no_negative_and_counts_plainly() -> None:
    head = SampledSoftmax(4, CLASSES, sampler="in_batch", frequencies=torch.ones(CLASSES), bias=False)
    x = torch.randn(3, 4)
    target = torch.tensor([2, 2, 7])
    logits = (x @ head.weight.T).detach()
    weight = {2: 2 / (3 * 2 / 3 / CLASSES), 7: 1 / (3 * 2 / 3 / CLASSES)}  # times there / times expected
    expected = []
    for row, own in zip(logits, target.tolist(), strict=True):
        other = 7 if own == 2 else 2
        expected.append(math.log(row[own].exp() + weight[other] * row[other].exp()) - row[own].item())
    assert head(x, target).item() == pytest.approx(sum(expected) / 3, rel=1e-5)
