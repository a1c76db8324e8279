"""The paper's layer, literally: who is a candidate, who gets a gradient, who is re-hashed."""

import numpy as np
import pytest
import torch
from head_cases import CLASSES, EXAMPLES, FEATURES, random_tensor, rehashed

from manyclass import ConfigError, HashConfig
from manyclass.torch import CandidateSoftmax, WTASoftmax, make_head

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")
X = random_tensor(EXAMPLES, FEATURES)
TARGET = torch.tensor([3, 0, 59, 3, 7])


def test_it_is_the_literal_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    head = WTASoftmax(FEATURES, CLASSES, candidates=2, refresh_steps=60, meter_every=0)
    assert head.pipeline == "tables → votes → exact"
    assert head.index.config == HashConfig.paper()
    seen = rehashed(head, monkeypatch)
    x = X[:1].clone().requires_grad_()
    for _ in range(3):
        head.zero_grad()
        head(x, TARGET[:1]).backward()
    assert seen == [[0], [1], [2]]  # in turn, and nobody else
    votes = head.index.over(head.weight, head.bias).votes(X[0].numpy()).astype(int)
    best = np.lexsort((np.arange(CLASSES), -votes))[:2].tolist()
    assert head.weight.grad is not None
    assert head.weight.grad.coalesce().indices()[0].tolist() == sorted({*best, 3})


def test_it_is_our_layer_with_the_papers_choices() -> None:
    torch.manual_seed(0)
    literal = WTASoftmax(FEATURES, CLASSES, candidates=5, meter_every=0)
    ours = CandidateSoftmax(
        FEATURES, CLASSES, candidates=5, shared=False, tail=0, touched_first=False, config=HashConfig.paper(),
        meter_every=0,
    )  # fmt: skip
    ours.load_state_dict(literal.state_dict())
    assert torch.equal(literal(X, TARGET), ours(X, TARGET))


@pytest.mark.parametrize("name", ["shared", "tail", "touched_first"])
def test_what_the_paper_does_not_have_cannot_be_asked_for(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        WTASoftmax(FEATURES, CLASSES, **{name: 1})


def test_too_few_features_are_refused_and_another_config_is_taken() -> None:
    with pytest.raises(ConfigError, match="window=16 is wider than features=9"):
        WTASoftmax(9, CLASSES)
    head = make_head("wta", 9, CLASSES, config=HashConfig.paper(window=4))
    assert isinstance(head, WTASoftmax)
    assert head.index.config == HashConfig.paper(window=4)


def test_as_many_candidates_as_classes_are_all_classes() -> None:
    """Tables leave a class without votes out; of few classes that may be all."""
    torch.manual_seed(0)
    head = WTASoftmax(16, 40).eval()
    head.remove_classes([3])
    x = random_tensor(200, 16, seed=1)
    best = head.topk(x, 39)
    with head.exact():
        exact = head.topk(x, 39)
    assert torch.equal(best.classes, exact.classes)
    torch.testing.assert_close(best.log_probs, exact.log_probs)
    assert (head.predict(x) >= 0).all()
