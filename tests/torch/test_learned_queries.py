"""`from_linear(queries=...)`: a head whose index is balanced with a sample of its inputs, measured once."""

import copy

import numpy as np
import pytest
import torch

import manyclass as mc
import manyclass.torch as mct
from manyclass.config import HashConfig
from manyclass.torch.recent_inputs import RecentInputs

CLASSES, FEATURES = 3000, 32


def layer_and_inputs() -> tuple[torch.nn.Linear, torch.Tensor]:
    """Return a layer whose rows hardly differ in some directions, and inputs with a large mean just there."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(FEATURES, CLASSES)
    spread = torch.logspace(0, -1.5, FEATURES)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(CLASSES, FEATURES) * spread)
    inputs = torch.randn(1200, FEATURES) / spread.sqrt()
    inputs[:, -8:] += 10
    return linear, inputs


def agreement(head: mct.CandidateSoftmax, linear: torch.nn.Linear, x: torch.Tensor) -> float:
    with torch.no_grad():
        found = head.eval().topk(x, 1).classes[:, 0]
        return float((found == linear(x).argmax(1)).float().mean())


@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_a_head_learns_its_settings_from_a_sample(kind: str) -> None:
    linear, inputs = layer_and_inputs()
    sample = inputs[:1000] if kind == "tensor" else inputs[:1000].numpy()
    head = mct.CandidateSoftmax.from_linear(linear, queries=sample)
    assert head.weight is linear.weight
    assert head.index.config is not None
    assert head.candidates == head.index.config.candidates
    assert head.index.built is not None
    assert head.index.built.report().met is not None
    assert agreement(head, linear, inputs[1000:]) >= 0.97


def test_later_builds_keep_settings_and_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    linear, inputs = layer_and_inputs()
    head = mct.CandidateSoftmax.from_linear(linear, queries=inputs, candidates=50)
    assert head.candidates == 50
    config, queries = head.index.config, head.index.queries
    monkeypatch.setattr("manyclass.index.build_and_choose", lambda *_: pytest.fail("a rebuild measures nothing"))
    copied = copy.deepcopy(head)
    for each in (head, copied):
        each.rebuild()
        assert each.index.config == config
        assert each.index.queries is queries
        assert each.index.built is not None
        assert each.index.built.config == config


def test_a_head_without_a_sample_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyclass.index.build_and_choose", lambda *_: pytest.fail("heads follow rules of thumb"))
    linear, inputs = layer_and_inputs()
    head = mct.CandidateSoftmax.from_linear(linear)
    assert head.topk(inputs[:3], 1).classes.shape == (3, 1)


def test_cosine_heads_learn_from_inputs_of_length_one() -> None:
    linear, inputs = layer_and_inputs()
    linear.bias = None  # type: ignore[assignment]
    head = mct.CandidateSoftmax.from_linear(linear, queries=inputs[:1000], normalize=True)
    assert head.index.built is not None
    np.testing.assert_allclose(np.linalg.norm(head.index.built.rows, axis=1), 1, rtol=1e-5)


def test_bad_samples_are_refused() -> None:
    linear, inputs = layer_and_inputs()
    with pytest.raises(mc.InputError, match="at least"):
        mct.CandidateSoftmax.from_linear(linear, queries=inputs[:10])
    with pytest.raises(mc.InputError, match="expected"):
        mct.CandidateSoftmax.from_linear(linear, queries=inputs[:, :-1])
    with pytest.raises(mc.InputError, match="leave one"):
        mct.CandidateSoftmax.from_linear(linear, queries=inputs, config=HashConfig.flat_sketch(64))
    with pytest.raises(mc.InputError, match="no index"):
        mct.FullSoftmax.from_linear(linear, queries=inputs)


def trained(inputs: torch.Tensor, linear: torch.nn.Linear, steps: int = 40) -> mct.CandidateSoftmax:
    """Return a head over the layer that has met the inputs in training; nothing has moved."""
    head = mct.CandidateSoftmax.from_linear(linear, candidates=50)
    for step in range(steps):
        some = inputs[(step * 32) % 1000 :][:32]
        head(some, torch.zeros(len(some), dtype=torch.int64)).backward()
    return head


@pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")
def test_a_head_balances_its_index_with_its_own_inputs() -> None:
    linear, inputs = layer_and_inputs()
    unaware = mct.CandidateSoftmax.from_linear(linear, candidates=50)
    assert agreement(unaware, linear, inputs[1000:]) < 0.9
    head = trained(inputs, linear)
    head.rebuild()
    assert head.index.built is not None
    assert head.index.built.config.balance == "directions"
    assert agreement(head, linear, inputs[1000:]) >= 0.97


@pytest.mark.filterwarnings("ignore::manyclass.torch.ApproximationWarning")
def test_a_checkpoint_keeps_the_inputs() -> None:
    linear, inputs = layer_and_inputs()
    head = trained(inputs, linear)
    other = mct.CandidateSoftmax.from_linear(linear, candidates=50)
    tensors, settings = head.extra_tensors(), head.extra_settings()
    other.check_restore(tensors, settings)
    other.restore(tensors, settings)
    copied = copy.deepcopy(head)
    for each in (head, other, copied):
        each.rebuild()
    found = [each.eval().topk(inputs[1000:], 5).classes for each in (head, other, copied)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    damaged = tensors | {"inputs.inputs": tensors["inputs.inputs"][1:]}
    with pytest.raises(mc.FileError, match="expected"):
        other.restore(damaged, settings)


def test_too_few_or_equal_inputs_teach_nothing() -> None:
    _, inputs = layer_and_inputs()
    for some in (inputs[:5], inputs[:1].expand(600, -1), inputs[:600] * torch.nan):
        recent = RecentInputs(FEATURES)
        for begin in range(0, len(some), 8):
            recent.note(some[begin : begin + 8], 0)
        assert recent.sample() is None
