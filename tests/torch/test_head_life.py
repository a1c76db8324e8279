"""The head as a module among modules: state dicts, copies, types, compilation, tying, classes that come and go."""

import copy
import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from head_cases import CLASSES, EXAMPLES, FEATURES, RANKED, random_tensor, small_head
from torch import Tensor, nn

from manyclass import InputError
from manyclass.torch import (
    CandidateSoftmax,
    HierarchicalSoftmax,
    RowAdam,
    RowSGD,
    SampledSoftmax,
    save_checkpoint,
)

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")

X = random_tensor(EXAMPLES, FEATURES)
TARGET = torch.tensor([3, 0, 59, 3, 7])
LINEAR = nn.Linear(FEATURES, CLASSES)
LINEAR.load_state_dict({"weight": random_tensor(CLASSES, FEATURES, seed=3), "bias": random_tensor(CLASSES, seed=4)})


def exact_best(head: CandidateSoftmax, x: Tensor = X) -> Tensor:
    with head.exact():
        return head.predict(x)


def found(head: CandidateSoftmax) -> Tensor:
    """Return what an index made anew finds; equal to what the head finds, if its tables are up to date."""
    fresh = copy.deepcopy(head)
    assert fresh.index.built is None
    return fresh.shortlist(fresh.prepared(X), 5)


def train(head: CandidateSoftmax, optimizer: torch.optim.Optimizer, steps: int = 2, classes: int | None = None) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        target = (TARGET + step) % (classes or head.num_classes)
        head(random_tensor(EXAMPLES, FEATURES, seed=step), target).backward()
        optimizer.step()


# State


@pytest.mark.parametrize("bias", [True, False])
def test_state_dict_is_that_of_a_linear_layer(bias: bool) -> None:
    model = nn.ModuleDict({"trunk": nn.Linear(2, FEATURES), "head": CandidateSoftmax(FEATURES, CLASSES, bias=bias)})
    same = nn.ModuleDict({"trunk": nn.Linear(2, FEATURES), "head": nn.Linear(FEATURES, CLASSES, bias=bias)})
    assert list(model.state_dict()) == list(same.state_dict())
    model.load_state_dict(same.state_dict(), strict=True)
    assert torch.equal(model["head"].weight, same["head"].weight)
    same.load_state_dict(model.state_dict(), strict=True)


def test_centring_adds_its_mean_to_the_state() -> None:
    head = small_head(subtract_mean=True)
    assert set(head.state_dict()) == {"weight", "bias", "input_mean"}
    other = CandidateSoftmax(FEATURES, CLASSES, subtract_mean=True)
    other.load_state_dict(head.state_dict())
    assert torch.equal(other.input_mean, head.input_mean)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("settings", [{}, {"normalize": True}, {"config": None}], ids=["plain", "cosine", "default"])
@pytest.mark.parametrize("inside", [False, True], ids=["head", "model"])
def test_tables_follow_a_loaded_state(settings: dict[str, Any], assign: bool, inside: bool) -> None:
    head = small_head(candidates=5, **settings)
    before = head.topk(X, 5).classes  # builds the tables
    if inside:
        nn.Sequential(head).load_state_dict({f"0.{k}": v for k, v in LINEAR.state_dict().items()}, assign=assign)
    else:
        head.load_state_dict(LINEAR.state_dict(), assign=assign)
    assert not torch.equal(head.topk(X, 5).classes, before)
    assert torch.equal(head.shortlist(head.prepared(X), 5), found(head))


@pytest.mark.parametrize("settings", [{}, {"normalize": True}], ids=["plain", "cosine"])
@pytest.mark.parametrize("how", ["weight", "bias", "no bias", "data", "reset", "double", "bfloat16", "half"])
def test_tables_follow_replaced_weights(how: str, settings: dict[str, Any]) -> None:
    head = small_head(candidates=5, **settings)
    head.topk(X, 5)
    if how == "weight":
        head.weight = nn.Parameter(LINEAR.weight.detach().clone())
    elif how == "bias":
        head.bias = nn.Parameter(torch.linspace(0, 9, CLASSES))
    elif how == "no bias":
        head.bias = None
    elif how == "data":
        head.weight.data = LINEAR.weight.detach().clone()
    elif how == "reset":
        head.reset_parameters()
    else:
        getattr(head, how)()
    assert torch.equal(head.shortlist(head.prepared(X), 5), found(head))
    assert (head.topk(X, 5).classes >= 0).all()


@pytest.mark.parametrize("settings", [{}, {"normalize": True}], ids=["plain", "cosine"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_restored_tables_are_as_old_as_they_were(dtype: torch.dtype, settings: dict[str, Any]) -> None:
    head = small_head(candidates=5, refresh_steps=20, meter_every=0, **settings).to(dtype)
    train(head, RowSGD(head.parameters(), lr=5.0), 4)
    old = head.shortlist(head.prepared(X), 5)
    assert not torch.equal(old, found(head))  # else this says nothing
    other = small_head(candidates=5, refresh_steps=20, meter_every=0, **settings).to(dtype)
    other.load_state_dict(head.state_dict())
    other.restore(head.extra_tensors(), head.extra_settings())
    index = other.index.built
    assert index is not None
    assert torch.equal(other.shortlist(other.prepared(X), 5), old)
    assert other.index.built is index
    for net in (head, other):
        train(net, RowSGD(net.parameters(), lr=0.1), 3)
    assert torch.equal(head.weight, other.weight)
    fresh = small_head(candidates=5, **settings).to(dtype)
    fresh.load_state_dict(head.state_dict())
    fresh.restore(head.extra_tensors(index=False), head.extra_settings())
    assert torch.equal(fresh.shortlist(fresh.prepared(X), 5), found(head))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("settings", [{}, {"normalize": True, "subtract_mean": True}], ids=["plain", "cosine"])
def test_a_head_of_another_type_trains(dtype: torch.dtype, shared: bool, settings: dict[str, Any]) -> None:
    head = small_head(candidates=5, shared=shared, **settings).to(dtype)
    before = head.weight.detach().clone()
    train(head, RowSGD(head.parameters(), lr=1.0), 3)
    assert head.weight.dtype == dtype
    assert not torch.equal(head.weight, before)
    assert torch.isfinite(head.weight).all()
    full = head.topk(X, CLASSES, candidates=CLASSES)
    with head.exact():
        torch.testing.assert_close(full.log_probs, head.topk(X, CLASSES).log_probs, rtol=1e-4, atol=1e-4)


def test_a_copy_is_equal_and_independent() -> None:
    head = small_head(candidates=5, names=[f"class {c}" for c in range(CLASSES)])
    optimizer = RowSGD(head.parameters(), lr=0.5)
    train(head, optimizer)
    other = copy.deepcopy(head)
    before = other.weight.detach().clone()
    head.index.forget()
    assert torch.equal(head.topk(X, 5).classes, other.topk(X, 5).classes)
    assert torch.equal(head(X, TARGET), other(X, TARGET))  # the tail too
    train(head, optimizer)
    assert torch.equal(other.weight, before)
    assert other.names == head.names
    assert other.names is not head.names


def test_pickled_whole() -> None:
    head = small_head(candidates=5)
    train(head, RowSGD(head.parameters(), lr=0.5))
    file = io.BytesIO()
    torch.save(head, file)
    file.seek(0)
    other = torch.load(file, weights_only=False)
    head.index.forget()
    assert torch.equal(head.topk(X, 5).log_probs, other.topk(X, 5).log_probs)
    train(other, RowSGD(other.parameters(), lr=0.5))


@pytest.mark.parametrize("center", [False, True])
def test_from_the_meta_device(center: bool) -> None:
    with torch.device("meta"):
        head = CandidateSoftmax(FEATURES, CLASSES, config=RANKED, subtract_mean=center)
    assert head.weight.is_meta
    repr(head)
    head = head.to_empty(device="cpu")
    head.reset_parameters()
    assert 0 < head.weight.abs().max() <= FEATURES**-0.5
    assert not center or (head.input_mean == 0).all()
    train(head, RowSGD(head.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (CandidateSoftmax, {}),
        (CandidateSoftmax, {"output": "logistic"}),
        (CandidateSoftmax, {"output": "logistic", "prior": 0.25}),
        (CandidateSoftmax, {"prior": torch.arange(CLASSES)}),
        (HierarchicalSoftmax, {}),
        (SampledSoftmax, {"sampler": "in_batch"}),
    ],
    ids=["softmax", "logistic", "number", "counts", "tree", "in-batch"],
)
def test_a_head_from_the_meta_device_does_all_that_others_do(make: Any, settings: Any, tmp_path: Path) -> None:
    with torch.device("meta"):
        head = make(FEATURES, CLASSES, **settings)
    head = head.to_empty(device="cpu")
    head.reset_parameters()
    if {"output", "prior"} & set(settings):
        assert torch.equal(head.bias, make(FEATURES, CLASSES, **settings).bias)
    train(head, RowSGD(head.parameters(), lr=0.1))
    if isinstance(head, CandidateSoftmax):
        head.remove_classes([50])
        head.add_classes(2)
        train(head, RowSGD(head.parameters(), lr=0.1))
    save_checkpoint(tmp_path / "head", nn.ModuleDict({"head": head}))


def test_moving_to_where_it_is_keeps_the_tables() -> None:
    head = small_head()
    head.topk(X, 3)
    index = head.index.built
    head.cpu().float().train().eval()
    head.topk(X, 3)
    assert head.index.built is index


# Inside other things


@pytest.mark.parametrize("shared", [True, False])
def test_autocast_changes_the_trunk_only(shared: bool) -> None:
    trunk, head = nn.Linear(4, FEATURES), small_head(candidates=5, shared=shared, tail=0)
    x = random_tensor(EXAMPLES, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = trunk(x)
        loss = head(features, TARGET)
        best = head.topk(features, 3)
        with head.exact():
            exact_loss = head(features, TARGET)
    assert features.dtype == torch.bfloat16
    assert loss.dtype == best.log_probs.dtype == exact_loss.dtype == torch.float32
    torch.testing.assert_close(loss, head(features.float(), TARGET))
    loss.backward()
    assert trunk.weight.grad.dtype == torch.float32
    assert head.weight.grad.is_sparse


class Model(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, FEATURES), nn.ReLU())
        self.head = small_head(candidates=5, **settings)

    def forward(self, x: Tensor, target: Tensor | None = None) -> Any:
        return self.head.topk(self.trunk(x), 3) if target is None else self.head(self.trunk(x), target)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_a_compiled_model_gives_the_same_bits(shared: bool, fused: bool) -> None:
    settings: dict[str, Any] = {"shared": shared}
    if fused:
        settings |= {"row_update": "fused", "row_optimizer": partial(RowSGD, lr=0.1)}
    plain = Model(**settings)
    model = copy.deepcopy(plain)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(2):
        x = random_tensor(EXAMPLES, 4, seed=step)
        losses = [net(x, TARGET) for net in (plain, compiled)]
        assert torch.equal(*losses)
        for loss in losses:
            loss.backward()
        assert torch.equal(compiled(x).classes, plain(x).classes)
    for ours, theirs in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        if ours.grad is not None:
            assert torch.equal(ours.grad.to_dense(), theirs.grad.to_dense())


def test_inference_mode_predicts_and_training_goes_on() -> None:
    model = Model()
    x = random_tensor(EXAMPLES, 4)
    expected = model(x)
    model.head.index.forget()
    with torch.inference_mode():
        assert torch.equal(model(x).classes, expected.classes)
        model(x, TARGET)
    train(model.head, RowSGD(model.head.parameters(), lr=0.1))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("optimizer", [RowSGD, RowAdam])
def test_rows_tied_to_an_embedding(sparse: bool, optimizer: Any) -> None:
    torch.manual_seed(0)
    embedding, head = nn.Embedding(CLASSES, FEATURES, sparse=sparse), small_head(candidates=5, shared=False, tail=0)
    head.weight = embedding.weight
    assert head.weight is embedding.weight
    model = nn.ModuleList([embedding, head])
    assert len(list(model.parameters())) == 2
    words = torch.tensor([1, 1, 2, 30, 31])
    loss = head(embedding(words), TARGET)
    loss.backward()
    weight, bias = embedding.weight.detach().clone().requires_grad_(), head.bias.detach()
    chosen = torch.cat([TARGET[:, None], head.shortlist(weight[words], 5)], 1)
    logits = F.linear(weight[words], weight, bias)
    only = torch.full_like(logits, -torch.inf).scatter(1, chosen, 0.0)
    expected = F.cross_entropy(logits + only, TARGET)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(embedding.weight.grad.to_dense(), weight.grad, rtol=1e-4, atol=1e-5)
    assert embedding.weight.grad.is_sparse == sparse
    before = embedding.weight.detach().clone()
    optimizer(model.parameters(), lr=0.1).step()
    assert head.weight is embedding.weight
    assert not torch.equal(head.weight, before)
    without = (weight.grad == 0).all(1)
    assert without.any()
    assert not sparse or torch.equal(head.weight[without], before[without])


# Classes that come and go


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "make", [partial(RowSGD, momentum=0.9, row_momentum="lazy"), RowAdam], ids=["momentum", "adam"]
)
@pytest.mark.parametrize("bias", [True, False])
def test_added_and_removed_classes_keep_their_optimizer_state(fused: bool, make: Any, bias: bool) -> None:
    settings: dict[str, Any] = {"row_update": "fused", "row_optimizer": partial(make, lr=0.1)} if fused else {}
    names = [f"class {c}" for c in range(CLASSES)]
    head = small_head(candidates=5, names=names, bias=bias, **settings)
    optimizer = head.row_optimizer if fused else make(head.parameters(), lr=0.1)
    given = {} if fused else {"optimizer": optimizer}
    train(head, optimizer, 4)
    weight = head.weight.detach().clone()
    parameters = [id(p) for p in head.parameters()]
    kept = {key: value.clone() for key, value in optimizer.state[head.weight].items()}

    rows = random_tensor(3, FEATURES, seed=7)
    assert head.add_classes(rows=rows, names=list("abc"), **given) == range(60, 63)
    assert (head.num_classes, len(head.weight), head.names) == (63, 63, [*names, *"abc"])
    assert torch.equal(head.weight, torch.cat([weight, rows]))
    assert head.bias is None or (head.bias[60:] == 0).all()
    for key, value in optimizer.state[head.weight].items():
        expected = torch.cat([kept[key], torch.zeros_like(rows)]) if kept[key].dim() else kept[key]
        assert torch.equal(value, expected)
    with head.exact():
        assert (head.topk(rows * 100, 1).classes[:, 0] == torch.tensor([60, 61, 62])).all()
    assert torch.equal(head.predict(rows * 100), torch.tensor([60, 61, 62]))
    train(head, optimizer, 4)

    weight = head.weight.detach().clone()
    kept = {key: value.clone() for key, value in optimizer.state[head.weight].items()}
    head.remove_classes([0, 61, 3])
    assert torch.equal(head.weight, weight)
    old = head.compact(**given)
    assert old.tolist() == [c for c in range(63) if c not in (0, 61, 3)]
    assert head.names == [*(n for c, n in enumerate(names) if c not in (0, 3)), "a", "c"]
    assert torch.equal(head.weight, weight[old])
    for key, value in optimizer.state[head.weight].items():
        assert torch.equal(value, kept[key][old] if kept[key].dim() else kept[key])
    assert head.num_classes == 60
    assert int(head.topk(X, 5).classes.max()) < 60
    assert [id(p) for p in head.parameters()] == parameters
    train(head, optimizer, 4)
    assert torch.isfinite(head.weight).all()


def test_a_forgotten_optimizer_is_noticed() -> None:
    head = small_head(candidates=5)
    optimizer = RowSGD(head.parameters(), lr=0.1, momentum=0.9, row_momentum="lazy")
    train(head, optimizer)
    head.add_classes(4)
    with pytest.raises(InputError, match="when rows are added or removed, do the same to the state"):
        train(head, optimizer)


def test_waiting_gradients_do_not_reach_other_classes() -> None:
    head = small_head(candidates=2, tail=0, row_update="at_step", row_optimizer=partial(RowSGD, lr=0.1))
    head(X, TARGET).backward()
    head.remove_classes(range(50))
    head.compact()
    before = head.weight.detach().clone()
    torch.optim.SGD(head.parameters(), lr=0.1).step()
    assert torch.equal(head.weight, before)


def test_candidates_grow_back_with_the_classes() -> None:
    head = small_head(classes=10, candidates=30)
    assert head.candidates == 10
    head.add_classes(50)
    assert head.candidates == 30
    head.remove_classes(range(40))
    assert head.candidates == 30
    assert (head.topk(X, 30).classes[:, 20:] == -1).all()
    head.compact()
    assert head.candidates == 20
    assert head.topk(X, 20).classes.shape == (EXAMPLES, 20)


def test_added_classes_learn() -> None:
    head = small_head(candidates=5)
    optimizer = RowSGD(head.parameters(), lr=1.0)
    (new,) = head.add_classes(1, optimizer=optimizer)
    goal = random_tensor(1, FEATURES, seed=8)
    for _ in range(20):
        optimizer.zero_grad()
        head(goal, torch.tensor([new])).backward()
        optimizer.step()
    assert head.predict(goal).tolist() == [new] == exact_best(head, goal).tolist()
