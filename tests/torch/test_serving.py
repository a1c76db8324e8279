"""Serving through a head: the index answers by itself, what is excluded is left out, other ways out are named."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyclass import ConfigError, HashConfig, InputError, InputTypeError
from manyclass.torch import CandidateSoftmax, RowSGD, make_head

CLASSES, FEATURES = 3_000, 24
pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")


def served(**settings: Any) -> CandidateSoftmax:
    torch.manual_seed(0)
    head = CandidateSoftmax(FEATURES, CLASSES, config=HashConfig.flat_sketch(64), **settings).eval()
    with torch.no_grad():
        head.weight.normal_()
        if head.input_mean is not None:
            head.input_mean.normal_()
    return head


def queries(count: int = 40) -> Tensor:
    return torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("settings", [{}, {"bias": False}, {"normalize": True}, {"subtract_mean": True}], ids=str)
def test_the_index_alone_answers_as_the_head_does(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    head = served(**settings)
    with monkeypatch.context() as patch:
        patch.setattr("manyclass.torch.predictions.topk", pytest.fail)
        quick = head.topk(queries(), 10, candidates=100)
        for shape in ((FEATURES,), (2, 3, FEATURES)):
            x = queries(6).reshape(-1)[: torch.Size(shape).numel()].reshape(shape)
            told = head.topk(x, 10, candidates=100).classes
            assert torch.equal(told.reshape(-1, 10), quick.classes[: len(told.reshape(-1, 10))])
            assert told.shape == (*shape[:-1], 10)
    monkeypatch.setattr(head, "_by_index_alone", lambda *_: None)
    careful = head.topk(queries(), 10, candidates=100)
    assert torch.equal(quick.classes, careful.classes)
    torch.testing.assert_close(quick.log_probs, careful.log_probs, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(quick.logits, careful.logits, rtol=1e-4, atol=1e-4)


def test_after_a_step_biases_are_the_heads_own_until_it_is_rebuilt() -> None:
    head = served().train()
    head(queries(4), torch.tensor([1, 2, 3, 4]))
    assert head.bias is not None
    head.bias.grad = torch.sparse_coo_tensor([[7]], [-100.0], (CLASSES,), check_invariants=True)
    RowSGD([head.bias], lr=1.0).step()  # a bias that the index does not know yet
    head.eval()
    expected = torch.nn.functional.linear(queries(), head.weight, head.bias)
    for rebuilt in (False, True):
        if rebuilt:
            head.rebuild()
            assert (head.topk(queries(), 1).classes == 7).all()
        top = head.topk(queries(), 3, candidates=CLASSES)
        torch.testing.assert_close(top.logits, expected.gather(1, top.classes), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bad", ["nan", "width", "k", "candidates", "dtype"])
def test_errors_are_those_of_the_careful_way(bad: str) -> None:
    head, x = served(), queries(2)
    arguments: dict[str, Any] = {"k": 5}
    if bad == "nan":
        x[1, 3] = float("nan")
    x = {"width": x[:, 1:], "dtype": x.long()}.get(bad, x)
    arguments |= {"k": {"k": 0}, "candidates": {"candidates": 2}}.get(bad, {})
    head.topk(queries(1), 1)
    said = {"nan": r"input\[1\] has a NaN", "width": "input has shape", "k": "k=0", "candidates": "k=5 is more than",
            "dtype": "give a tensor of floats"}  # fmt: skip
    with pytest.raises((InputError, InputTypeError), match=said[bad]):
        head.topk(x, **arguments)


@pytest.mark.parametrize("settings", [{}, {"normalize": True}], ids=["plain", "cosine"])
@pytest.mark.parametrize("scale", [1e-30, 1e25, 1e37])
def test_inputs_of_any_size_that_the_index_takes(settings: dict[str, Any], scale: float) -> None:
    head, x = served(bias=False, **settings), queries(4)
    with torch.no_grad():
        head.weight.div_(20)
    usual, quick = head.topk(x, 3), head.topk(scale * x, 3)
    assert torch.equal(usual.classes, quick.classes) or scale < 1
    careful = head.train().topk(scale * x, 3)
    torch.testing.assert_close(careful.logits, quick.logits, rtol=1e-4, atol=0)
    loss = head(scale * x, torch.tensor([1, 2, 3, 4]))
    assert loss.isfinite()
    loss.backward()
    with torch.no_grad():
        head.weight.mul_(1000)
    if scale == 1e37 and not head.normalize:
        for call in (lambda: head.topk(scale * x, 3), lambda: head.eval().topk(scale * x, 3),
                     lambda: head(scale * x, torch.tensor([1, 2, 3, 4]))):  # fmt: skip
            with pytest.raises(InputError, match="logits beyond float32"):
                call()


@pytest.mark.parametrize("name", ["candidate", "wta", "full", "sampled", "hierarchical"])
def test_excluded_classes_are_left_out_and_others_take_their_places(name: str) -> None:
    torch.manual_seed(0)
    head = make_head(name, FEATURES, 50).eval()
    x = queries(6).reshape(2, 3, FEATURES)
    plain = head.topk(x, 10)
    exclude = torch.full((2, 3, 4), -1)
    exclude[..., :3] = plain.classes[..., [0, 2, 5]]
    found = head.topk(x, 7, exclude=exclude)
    assert torch.equal(found.classes, plain.classes[..., [1, 3, 4, 6, 7, 8, 9]])
    torch.testing.assert_close(found.log_probs, plain.log_probs[..., [1, 3, 4, 6, 7, 8, 9]])
    everything = torch.arange(50).expand(2, 3, -1)
    assert (head.topk(x, 3, exclude=everything).classes == -1).all()
    with pytest.raises(InputError, match=r"exclude holds \d+; class ids are from 0 to 49"):
        head.topk(x, 3, exclude=exclude + 50)
    with pytest.raises(InputError, match="exclude has shape"):
        head.topk(x, 3, exclude=exclude[0])
    with pytest.raises(InputTypeError, match=r"exclude is torch\.float32"):
        head.topk(x, 3, exclude=exclude.float())


def test_an_export_is_refused_with_the_way_out() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = served()

        def forward(self, x: Tensor) -> Tensor:
            return self.head.topk(x, 5).classes

    with pytest.raises(ConfigError, match=r"cannot be exported: .* export head.to_linear\(\)"):
        torch.export.export(Network(), (queries(2),))
    torch.export.export(served().to_linear(), (queries(2),))


def test_spinning_threads_are_said_once() -> None:
    program = """
import warnings, torch, manyclass.torch as mct
torch.set_num_threads(2)
head = mct.CandidateSoftmax(8, 50_000)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(3):
        head(torch.randn(2, 8), torch.tensor([1, 2]))
print(sum(warning.category is mct.SlowThreadsWarning for warning in said))
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    for policy, times in ((None, "1"), ("PASSIVE", "0")):
        env = environment | ({} if policy is None else {"OMP_WAIT_POLICY": policy})
        ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == times
