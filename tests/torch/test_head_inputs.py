"""What the paper's head accepts, what it refuses with a sentence, and that a refusal changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from head_cases import CLASSES, EXAMPLES, FEATURES, RANKED, padded, random_tensor, small_head
from torch import Tensor, nn

from manyclass import ConfigError, HashConfig, InputError, InputTypeError
from manyclass.torch import CandidateSoftmax, RowSGD

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")

TARGET = torch.tensor([3, 0, 59, 3, 7])


def state(head: CandidateSoftmax) -> list[bytes]:
    """Return all that a refused call must leave alone, to the bit."""
    tensors = [*head.state_dict().values(), head.sampler.generator.get_state()]
    numbers = (head.index.schedule.cursor, head.index.schedule.step, head.meter.steps, head.names, head.num_classes)
    return [tensor.numpy().tobytes() for tensor in tensors] + [repr(numbers).encode()]


def spoilt(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
    x = random_tensor(EXAMPLES, FEATURES).to(dtype)
    x[2, 5] = value
    return x


X = random_tensor(EXAMPLES, FEATURES)
Call = Callable[[CandidateSoftmax], Any]
REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    "NaN": (lambda h: h(spoilt(float("nan")), TARGET), InputError, r"input\[2\] has a NaN"),
    "infinity": (lambda h: h(spoilt(float("-inf")), TARGET), InputError, r"input\[2\] has"),
    "norm beyond float32": (lambda h: h(torch.full_like(X, 3e38), TARGET), InputError, r"input\[0\].*norm beyond"),
    "double beyond float32": (
        lambda h: h(spoilt(1e60, torch.float64), TARGET),
        InputError,
        r"input\[2\].*norm beyond",
    ),
    "half infinity": (lambda h: h(spoilt(float("inf"), torch.float16), TARGET), InputError, r"input\[2\] has"),
    "NaN in topk": (lambda h: h.topk(spoilt(float("nan")), 3), InputError, r"input\[2\]"),
    "NaN in log_prob": (lambda h: h.log_prob(spoilt(float("nan"))), InputError, r"input\[2\]"),
    "whole numbers": (lambda h: h(X.long(), TARGET), InputTypeError, r"input is torch\.int64.*input\.float"),
    "no tensor": (lambda h: h(X.numpy(), TARGET), InputTypeError, "input is ndarray"),
    "width": (lambda h: h(X[:, 1:], TARGET), InputError, r"input has shape \(5, 16\); expected \(\.\.\., 17\)"),
    "a number": (lambda h: h(torch.tensor(1.0), TARGET), InputError, r"input has shape \(\)"),
    "input elsewhere": (lambda h: h(X.to("meta"), TARGET), InputError, r"input is on meta.*input\.cpu"),
    "target elsewhere": (lambda h: h(X, TARGET.to("meta")), InputError, r"target is on meta.*target\.cpu"),
    "input elsewhere in topk": (lambda h: h.topk(X.to("meta"), 3), InputError, "input is on meta"),
    "classes elsewhere": (lambda h: h.log_prob(X, TARGET[:, None].to("meta")), InputError, "classes is on meta"),
    "target floats": (lambda h: h(X, TARGET.float()), InputTypeError, r"target is torch\.float32.*target\.long"),
    "target bools": (lambda h: h(X, TARGET > 3), InputTypeError, r"target is torch\.bool"),
    "target list": (lambda h: h(X, TARGET.tolist()), InputTypeError, "target is list"),
    "target length": (
        lambda h: h(X, TARGET[1:]),
        InputError,
        r"target has shape \(4,\); expected \(5,\) or \(5, 'n'\)",
    ),
    "target dimensions": (lambda h: h(X, TARGET[:, None, None]), InputError, r"target has shape \(5, 1, 1\)"),
    "target large": (lambda h: h(X, TARGET + 1), InputError, "target holds 60; class ids are from 0 to 59"),
    "target negative": (lambda h: h(X, TARGET - 4), InputError, "target holds -1"),
    "positives large": (lambda h: h(X, padded([[60]] * 5)), InputError, "target holds 60"),
    "positives negative": (lambda h: h(X, padded([[-2]] * 5)), InputError, "target holds -2"),
    "k zero": (lambda h: h.topk(X, 0), InputError, "k=0"),
    "k a float": (lambda h: h.topk(X, 2.0), InputTypeError, "k=2.0"),
    "k beyond candidates": (lambda h: h.topk(X, 9), InputError, "k=9 is more than candidates=8; raise candidates"),
    "k beyond given": (lambda h: h.topk(X, 4, candidates=3), InputError, "k=4 is more than candidates=3"),
    "k beyond classes": (lambda h: h.topk(X, 61, candidates=99), InputError, "k=61"),
    "candidates zero": (lambda h: h.topk(X, 1, candidates=0), InputError, "candidates=0"),
    "normalizer": (lambda h: h.topk(X, 1, normalizer="all"), ConfigError, "normalizer='all'.*candidates, estimated"),
    "normalizer of log_prob": (lambda h: h.log_prob(X, normalizer=None), ConfigError, "normalizer=None"),
    "classes shape": (lambda h: h.log_prob(X, TARGET), InputError, r"classes has shape \(5,\); expected \(5, 'n'\)"),
    "classes range": (lambda h: h.log_prob(X, TARGET[:, None] - 1), InputError, "classes holds -1"),
    "classes floats": (lambda h: h.log_prob(X, TARGET[:, None] + 0.5), InputTypeError, r"classes is torch\.float32"),
    "classes list": (lambda h: h.log_prob(X, [[1]] * 5), InputTypeError, "classes is list"),
    "weight shape": (lambda h: setattr(h, "weight", X), InputError, r"weight has shape \(5, 17\); expected \(60, 17\)"),
    "weight order": (lambda h: setattr(h, "weight", nn.Parameter(X.new_ones(17, 60).T)), InputError, "contiguous"),
    "bias shape": (lambda h: setattr(h, "bias", X[0]), InputError, r"bias has shape \(17,\); expected \(60,\)"),
    "new candidates": (lambda h: setattr(h, "candidates", -1), InputError, "candidates=-1"),
    "add nothing": (lambda h: h.add_classes(), InputError, "either count"),
    "add twice": (lambda h: h.add_classes(5, rows=X), InputError, "either count"),
    "add zero": (lambda h: h.add_classes(0), InputError, "count=0"),
    "add width": (lambda h: h.add_classes(rows=X[:, 1:]), InputError, r"rows has shape \(5, 16\)"),
    "add list": (lambda h: h.add_classes(rows=X.tolist()), InputTypeError, "rows is not a tensor"),
    "add NaN": (lambda h: h.add_classes(rows=spoilt(float("nan"))), InputError, "NaN"),
    "add norm": (lambda h: h.add_classes(rows=torch.full((1, 17), 3e38)), InputError, r"rows\[0\].*norm beyond"),
    "add beyond float32": (
        lambda h: h.add_classes(rows=torch.full((1, 17), 1e300, dtype=torch.float64)),
        InputError,
        r"rows\[0\] has a NaN, an infinity.*torch\.float32",
    ),
    "add bias beyond float32": (
        lambda h: h.add_classes(rows=X, bias=torch.full((5,), 1e300, dtype=torch.float64)),
        InputError,
        "bias must be 5 finite",
    ),
    "add bias": (lambda h: h.add_classes(rows=X, bias=X[0]), InputError, "bias must be 5"),
    "add bias list": (lambda h: h.add_classes(rows=X, bias=[0.0] * 5), InputTypeError, "bias is not a tensor"),
    "add names": (lambda h: h.add_classes(rows=X, names=list("abcde")), InputError, "names is given"),
    "remove all": (lambda h: h.remove_classes(range(60)), InputError, "all the classes"),
    "remove unknown": (lambda h: h.remove_classes([60]), InputError, "ids holds 60"),
    "remove floats": (lambda h: h.remove_classes([0.5]), InputTypeError, "float"),
}


@pytest.mark.parametrize("built", [False, True], ids=["new", "in use"])
@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_rule_and_change_nothing(name: str, built: bool) -> None:
    call, error, sentence = REFUSED[name]
    head = small_head(candidates=8, subtract_mean=True)
    if built:
        head(X, TARGET).backward()
    before = state(head)
    with pytest.raises(error, match=sentence):
        call(head)
    assert state(head) == before


SETTINGS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "features": ({"in_features": 0}, InputError, "in_features=0"),
    "classes": ({"num_classes": -1}, InputError, "num_classes=-1"),
    "classes type": ({"num_classes": 10.0}, InputTypeError, "num_classes=10.0"),
    "candidates": ({"candidates": 0}, InputError, "candidates=0"),
    "mined_examples": ({"mined_examples": -1}, InputError, "mined_examples=-1"),
    "mined_every": ({"mined_every": 0}, InputError, "mined_every=0"),
    "mined_candidates": ({"mined_candidates": 0}, InputError, "mined_candidates=0"),
    "remembered": ({"remembered": -1}, InputError, "remembered=-1"),
    "tail": ({"tail": -1}, InputError, "tail=-1"),
    "output": ({"output": "hinge"}, ConfigError, "output='hinge'.*softmax"),
    "reduction": ({"reduction": "max"}, ConfigError, "reduction='max'"),
    "ignore_index": ({"ignore_index": 1.5}, InputTypeError, "ignore_index=1.5"),
    "temperature zero": ({"temperature": 0}, ConfigError, "temperature=0"),
    "temperature NaN": ({"temperature": float("nan")}, ConfigError, "temperature=nan"),
    "temperature text": ({"temperature": "1"}, ConfigError, "temperature='1'"),
    "config": ({"config": {"bands": 3}}, InputTypeError, "config is a dict; pass a HashConfig"),
    "config width": ({"in_features": 9, "config": HashConfig.paper()}, ConfigError, "window=16 is wider than"),
    "refresh_steps": ({"refresh_steps": 0}, InputError, "refresh_steps=0"),
    "refresh_limit": ({"refresh_limit": 0}, InputError, "refresh_limit=0"),
    "meter_every": ({"meter_every": -1}, InputError, "meter_every=-1"),
    "names": ({"names": ["one"]}, InputError, "names has 1 entries; expected 60"),
    "names text": ({"names": "one"}, InputTypeError, "names is a str"),
    "row_update": ({"row_update": "later"}, ConfigError, "row_update='later'"),
    "no optimizer": ({"row_update": "fused"}, ConfigError, "needs row_optimizer"),
    "optimizer": ({"row_optimizer": RowSGD}, ConfigError, "belongs to row_update='fused'"),
    "torch's optimizer": (
        {"row_update": "fused", "row_optimizer": lambda rows: torch.optim.SGD(rows, lr=0.1)},
        ConfigError,
        "makes a SGD, which cannot update rows",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_bad_settings_are_refused(name: str) -> None:
    settings, error, sentence = SETTINGS[name]
    with pytest.raises(error, match=sentence):
        CandidateSoftmax(**{"in_features": FEATURES, "num_classes": CLASSES, **settings})


def test_weights_that_are_not_finite_are_named() -> None:
    head = small_head()
    with torch.no_grad():
        head.weight[7, 3] = float("nan")
    with pytest.raises(InputError, match=r"rows\[7\]"):
        head(X, TARGET)


def test_a_head_without_values_says_so() -> None:
    head = CandidateSoftmax(FEATURES, CLASSES, device="meta")
    with pytest.raises(InputError, match=r"weight is on meta.*to_empty\(device='cpu'\)"):
        head(X, TARGET)
    with pytest.raises(InputError, match=r"weight is on meta.*to_empty\(device='cpu'\)"):
        head.topk(X, 3)


# Defined results


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("several", [True, False])
def test_ignored_examples_do_not_count(shared: bool, several: bool) -> None:
    head = small_head(shared=shared, candidates=8, tail=0, reduction="none").eval()
    target = TARGET.clone()
    target[1] = target[4] = -100
    if several:
        target = torch.stack([target, torch.full_like(target, -1)], 1)
        target[4] = -1  # no positive at all
    kept = [0, 2, 3]
    expected = head(X[kept], TARGET[kept])
    losses = head(X, target)
    assert losses[[1, 4]].tolist() == [0, 0]
    torch.testing.assert_close(losses[kept], expected)
    for reduction, total in (("mean", expected.mean()), ("sum", expected.sum())):
        head.reduction = reduction
        torch.testing.assert_close(head(X, target), total)


def test_another_ignore_index_may_be_a_class() -> None:
    head = small_head(ignore_index=3, reduction="none").eval()
    assert (head(X, TARGET) == 0).tolist() == (TARGET == 3).tolist()


@pytest.mark.parametrize("leading", [(), (5,), (5, 1), (1, 5, 1)])
def test_leading_dimensions(leading: tuple[int, ...]) -> None:
    count = max(1, torch.Size(leading).numel())
    head = small_head(reduction="none", candidates=8, tail=0).eval()
    x, target = X[:count].reshape(*leading, FEATURES), TARGET[:count].reshape(leading)
    assert torch.equal(head(x, target).reshape(-1), head(X[:count], TARGET[:count]))
    assert torch.equal(head(x, target[..., None]).reshape(-1), head(X[:count], TARGET[:count]))
    top = head.topk(x, 3)
    assert top.classes.shape == top.log_probs.shape == (*leading, 3)
    assert torch.equal(top.classes.reshape(-1, 3), head.topk(X[:count], 3).classes)
    assert head.predict(x).shape == leading
    assert head.log_prob(x).shape == (*leading, CLASSES)
    assert head.log_prob(x, target[..., None]).shape == (*leading, 1)


@pytest.mark.parametrize("given", ["empty", "ignored", "no positives"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("trunk", [True, False], ids=["trunk", "no trunk"])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "gradient"])
def test_a_batch_without_positives_is_zero_and_changes_nothing(
    given: str, reduction: Any, trunk: bool, fused: bool
) -> None:
    settings: dict[str, Any] = {"row_update": "fused", "row_optimizer": lambda rows: RowSGD(rows, lr=0.1)}
    head = small_head(reduction=reduction, subtract_mean=True, **settings if fused else {})
    optimizer = head.row_optimizer if fused else RowSGD(head.parameters(), lr=0.1, weight_decay=0.1)
    x = (X[:0] if given == "empty" else X.clone()).requires_grad_(trunk)
    target = {"empty": TARGET[:0], "ignored": torch.full_like(TARGET, -100), "no positives": padded([[-1, -1]] * 5)}[
        given
    ]
    before = state(head)
    loss = head(x, target)
    assert loss.shape == (x.shape[:-1] if reduction == "none" else ())
    assert (loss == 0).all()
    loss.sum().backward()
    optimizer.step()
    assert state(head) == before
    assert head.index.built is None
    assert not trunk or (x.grad == 0).all()


def test_predictions_for_no_inputs() -> None:
    head = small_head(candidates=8)
    assert head.topk(X[:0], 3).classes.shape == (0, 3)
    assert head.predict(X[:0]).shape == (0,)
    assert head.log_prob(X[:0]).shape == (0, CLASSES)
    with head.exact():
        assert head.log_prob(X[:0], TARGET[:0, None]).shape == (0, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shared", [True, False])
def test_other_float_types_compute_as_float32(dtype: torch.dtype, shared: bool) -> None:
    head = small_head(shared=shared, candidates=8, tail=0).eval()
    x = X.to(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()
    loss, expected = head(x, TARGET), head(wide, TARGET)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    loss.backward()
    expected.backward()
    assert x.grad.dtype == dtype
    assert torch.equal(x.grad, wide.grad.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_other_id_types(dtype: torch.dtype) -> None:
    head = small_head().eval()
    head.sampler.generator.manual_seed(1)
    expected = head(X, TARGET)
    head.sampler.generator.manual_seed(1)
    assert torch.equal(head(X, TARGET.to(dtype)), expected)


def test_more_candidates_than_classes_are_all_classes() -> None:
    head = small_head(candidates=10**6)
    assert head.candidates == CLASSES
    assert head.topk(X, CLASSES).classes.sort(1).values.tolist() == [list(range(CLASSES))] * EXAMPLES


def test_one_class_and_one_feature() -> None:
    head = CandidateSoftmax(1, 1, config=RANKED)
    x = torch.ones(2, 1, requires_grad=True)
    loss = head(x, torch.zeros(2, dtype=torch.int64))
    loss.backward()
    assert loss == 0
    assert head.predict(x).tolist() == [0, 0]
