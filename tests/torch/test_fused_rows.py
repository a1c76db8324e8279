"""row_update="fused" moves rows inside backward, by the same bits as a gradient and a step would."""

import copy
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from head_cases import CLASSES, FEATURES, padded, random_tensor, small_head
from torch import Tensor, nn

from manyclass import ConfigError, InputError
from manyclass.torch import CandidateSoftmax, RowAdagrad, RowAdam, RowSGD
from manyclass.torch.fused_update import FusedUpdate

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")

INPUTS = 6
RULES: dict[str, Any] = {
    "sgd": partial(RowSGD, lr=0.1),
    "momentum": partial(RowSGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "lazy momentum": partial(RowSGD, lr=0.1, momentum=0.9, row_momentum="lazy"),
    "adagrad": partial(RowAdagrad, lr=0.1, lr_decay=0.1),
    "adam": partial(RowAdam, lr=0.1, weight_decay=0.1),
}
FORMS: dict[str, dict[str, Any]] = {
    "shared": {"shared": True},
    "own": {"shared": False},
    "cosine": {"shared": False, "normalize": True},
    "float64": {"shared": False},
}


class Model(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.head = small_head(candidates=3, tail=7, refresh_steps=5, **settings)
        self.trunk = nn.Linear(INPUTS, FEATURES)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = self.head(self.trunk(x), target)
        return loss


def fused(rule: Any, row_update: str = "fused", **settings: Any) -> Model:
    return Model(row_update=row_update, row_optimizer=rule, **settings)


def batch(step: int, count: int = 5) -> tuple[Tensor, Tensor]:
    target = torch.randint(CLASSES, (count,), generator=torch.Generator().manual_seed(step))
    return random_tensor(count, INPUTS, seed=100 + step), target


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for (name, ours), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", RULES)
def test_fused_equals_gradient_to_the_bit(rule: str, form: str) -> None:
    make = RULES[rule]
    plain, model = Model(**FORMS[form]), fused(make, **FORMS[form])
    if form == "float64":
        plain, model = plain.double(), model.double()
    optimizer = make(plain.parameters())
    trunk = make(model.trunk.parameters())
    start = model.head.weight.detach().clone()
    for step in range(5):
        x, target = batch(step)
        for net in (plain, model):
            net.zero_grad()
            net(x.to(start.dtype), target).backward()
        assert model.head.weight.grad is None
        assert model.head.bias.grad is None
        assert torch.equal(plain.trunk.weight.grad, model.trunk.weight.grad)
        optimizer.step()
        trunk.step()
        assert_same(plain, model)
    assert not torch.equal(model.head.weight, start)
    for ours, theirs in zip(plain.head.parameters(), model.head.parameters(), strict=True):
        kept, moved = optimizer.state.get(ours, {}), model.head.row_optimizer.state.get(theirs, {})
        assert kept.keys() == moved.keys()
        assert all(torch.equal(kept[key], moved[key]) for key in kept)


@pytest.mark.parametrize("shared", [True, False])
def test_gradients_of_several_passes_are_added_in_both_modes(shared: bool) -> None:
    make, passes = RULES["lazy momentum"], 3
    plain, model = Model(shared=shared), fused(make, "at_step", shared=shared)
    optimizer, outer = make(plain.parameters()), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start = model.head.weight.detach().clone()
    for step in range(2):
        for net in (plain, model):
            net.zero_grad()
        for part in range(passes):
            assert step or torch.equal(model.head.weight, start)
            x, target = batch(10 * step + part)
            target = torch.full_like(target, -100) if part == 1 else target  # a pass without positives counts too
            for net in (plain, model):
                (net(x, target) / passes).backward()
        optimizer.step()
        outer.step()
        for ours, theirs in zip(plain.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    assert not torch.equal(model.head.weight, start)


def test_schedulers_move_the_rate_of_the_rows() -> None:
    model = fused(partial(RowSGD, lr=1.0))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(model.head.row_optimizer, gamma=0.5)
    x, target = batch(0)
    moves = []
    for _ in range(2):
        before = copy.deepcopy(model.head)
        model.head.sampler.generator.manual_seed(0)
        x_head = model.trunk(x).detach()
        model.head(x_head, target).backward()
        moves.append((model.head.weight - before.weight).detach())
        model.head.row_optimizer.step()  # nothing to do; a scheduler wants to see it
        scheduler.step()
        with torch.no_grad():
            model.head.weight.copy_(before.weight)
            model.head.bias.copy_(before.bias)
        model.head.index.forget()
    assert moves[0].abs().max() > 0
    torch.testing.assert_close(moves[1], moves[0] / 2, rtol=1e-4, atol=1e-6)


def test_any_optimizer_and_clipping_serve_the_trunk() -> None:
    model = fused(RULES["sgd"], meter_every=0)  # candidates are looked up in any case
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)
    first = [p.detach().clone() for p in model.parameters()]
    untouched = torch.ones(CLASSES, dtype=torch.bool)
    for step in range(3):
        x, target = batch(step)
        optimizer.zero_grad()
        model(x, target).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        assert norm > 0
        assert all(p.grad is None for p in model.head.parameters())
        optimizer.step()
        untouched[model.head.index.schedule.touched] = False
    assert all(not torch.equal(p, before) for p, before in zip(model.parameters(), first, strict=True))
    assert untouched.any()
    kept = torch.equal(
        model.head.weight[untouched], dict(zip(model.parameters(), first, strict=True))[model.head.weight][untouched]
    )
    assert kept  # AdamW's decay does not reach them


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_frozen_rows_stay(frozen: str) -> None:
    model = fused(RULES["sgd"], shared=False)
    getattr(model.head, frozen).requires_grad_(False)
    before = copy.deepcopy(model.head)
    model(*batch(0)).backward()
    assert torch.equal(model.head.weight, before.weight) == (frozen == "weight")
    assert torch.equal(model.head.bias, before.bias) == (frozen == "bias")


def test_evaluation_moves_nothing() -> None:
    model = fused(RULES["sgd"]).eval()
    before = copy.deepcopy(model)
    model(*batch(0)).backward()
    assert_same(model, before)


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_exact_losses_train_a_fused_head_too(rule: str) -> None:
    make = RULES[rule]
    plain, model = Model(), fused(make)
    optimizer = make(plain.head.parameters())
    x, target = batch(0)
    for net in (plain, model):
        with net.head.exact():
            net(x, padded([[c, 5] for c in target.tolist()])).backward()
    assert model.head.weight.grad is None
    optimizer.step()
    torch.testing.assert_close(model.head.weight, plain.head.weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.head.bias, plain.head.bias, rtol=1e-5, atol=1e-6)


def test_a_copy_goes_its_own_way() -> None:
    model = fused(RULES["lazy momentum"], "at_step")
    model(*batch(0)).backward()
    other = copy.deepcopy(model)
    before = copy.deepcopy(model)
    torch.optim.SGD(other.head.parameters(), lr=0.1).step()  # with the gradient that waits in the copy
    assert not torch.equal(other.head.weight, before.head.weight)
    assert_same(model, before)
    torch.optim.SGD(model.head.parameters(), lr=0.1).step()
    assert_same(model, other)


def test_gradients_that_wait_survive_a_pickle() -> None:
    model = fused(RULES["sgd"], "at_step")
    model(*batch(0)).backward()
    before = model.head.weight.detach().clone()
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        torch.optim.SGD(one.head.parameters(), lr=0.1).step()
    assert_same(model.head, other.head)
    assert not torch.equal(other.head.weight, before)


@pytest.mark.parametrize("form", ["shared", "own"])
@pytest.mark.parametrize("row_update", ["fused", "at_step"])
def test_a_loss_from_before_rows_got_other_numbers_is_refused(row_update: str, form: str) -> None:
    model = fused(RULES["sgd"], row_update, **FORMS[form])
    head = model.head
    head.remove_classes([0, 3])
    x, target = batch(0)
    loss = model(x, target.clamp(min=4))
    head.compact()
    before = head.weight.detach().clone()
    with pytest.raises(ConfigError, match="call backward first"):
        loss.backward()
    assert torch.equal(head.weight, before)
    model(x, target.clamp(max=CLASSES - 3)).backward()  # and the next one is as always
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert not torch.equal(head.weight, before)


def test_a_frozen_head_s_loss_from_before_rows_got_other_numbers_is_refused() -> None:
    head = small_head(candidates=4, tail=0, shared=False).requires_grad_(False)
    x = random_tensor(3, head.in_features).requires_grad_()
    loss = head(x, torch.tensor([4, 5, 6]))
    head.remove_classes([0, 3])
    head.compact()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("early", [False, True])
def test_rows_stay_in_phase_with_an_optimizer_that_steps_early(early: bool) -> None:
    """As trainers do at the end of an epoch whose batches are no multiple of what is accumulated."""
    make = RULES["adam"]
    plain, model = Model(), fused(make, "at_step")
    optimizer, outer = make(plain.parameters()), torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    steps = [2, 5, 8] if early else [3, 6, 9]
    for part in range(9):
        for net in (plain, model):
            net(*batch(part)).backward()
        if part + 1 in steps:
            for stepping in (optimizer, outer):
                stepping.step()
                stepping.zero_grad()
            for ours, theirs in zip(plain.parameters(), model.parameters(), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_without_an_optimizer_that_holds_the_rows_waiting_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyclass.torch.fused_update.MOST_WAITING", 3)
    model = fused(RULES["sgd"], "at_step")
    outer = torch.optim.SGD(model.trunk.parameters(), lr=0.1)
    for part in range(3):
        model(*batch(part)).backward()
        outer.step()
    loss = model(*batch(3))
    with pytest.raises(ConfigError, match="no step of an optimizer that holds the head's rows; give it all parameters"):
        loss.backward()


@pytest.mark.parametrize("row_update", ["fused", "at_step"])
def test_a_scaled_loss_is_refused_before_anything_moves(row_update: str) -> None:
    model = fused(RULES["sgd"], row_update)
    outer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    before = model.head.weight.detach().clone()
    with pytest.raises(ConfigError, match=r"multiplied by 65536 before backward \(a GradScaler\?\)"):
        scaler.scale(model(*batch(0))).backward()
    outer.step()
    assert torch.equal(model.head.weight, before)
    (0.25 * model(*batch(0))).backward()  # a share of a loss, or a sum of several, is as usual


def test_a_scaled_loss_moves_rows_with_gradients_by_what_it_should() -> None:
    model, other = Model(), Model()
    optimizers = [RowSGD(net.parameters(), lr=0.1) for net in (model, other)]
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(*batch(0))).backward()
    scaler.step(optimizers[0])
    other(*batch(0)).backward()
    optimizers[1].step()
    torch.testing.assert_close(model.head.weight, other.head.weight, rtol=1e-5, atol=1e-6)
    assert (model.head.weight - Model().head.weight).abs().max() < 1


@pytest.mark.parametrize("how", ["to_empty", "assign", "weight", "no bias"])
def test_the_optimizer_follows_new_parameters(how: str) -> None:
    head = CandidateSoftmax(
        FEATURES, CLASSES, row_update="fused", row_optimizer=RULES["sgd"], device="meta" if how == "to_empty" else None
    )
    values = nn.Linear(FEATURES, CLASSES)
    if how == "to_empty":
        nn.Sequential(head).to_empty(device="cpu")
        with torch.no_grad():
            head.weight.copy_(values.weight)
            head.bias.copy_(values.bias)
    elif how == "assign":
        head.load_state_dict(values.state_dict(), assign=True)
    elif how == "weight":
        head.weight = values.weight
    else:
        head.bias = None
    before = copy.deepcopy(head)
    head(random_tensor(2, FEATURES), torch.tensor([1, 2])).backward()
    assert not torch.equal(head.weight, before.weight)
    assert [id(p) for p in head.row_optimizer.param_groups[0]["params"]] == [id(p) for p in head.parameters()]


def test_an_optimizer_that_lacks_the_rows_is_named() -> None:
    other = nn.Parameter(torch.zeros(2, 2))
    model = fused(lambda rows: RowSGD([other], lr=0.1))
    with pytest.raises(InputError, match="not in this optimizer"):
        model(*batch(0)).backward()


def test_a_schedule_takes_the_rows_optimizer() -> None:
    """torch warns when a schedule moves before its optimizer: moving rows inside backward must count."""
    model = fused(RULES["momentum"])
    schedule = torch.optim.lr_scheduler.ExponentialLR(model.head.row_optimizer, 0.5)
    model(*batch(0)).backward()
    schedule.step()
    assert model.head.row_optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("row_update", ["fused", "at_step"])
@pytest.mark.parametrize("form", FORMS)
def test_asking_for_the_gradient_of_the_input_alone_moves_no_row(row_update: str, form: str) -> None:
    head = fused(RULES["momentum"], row_update, **FORMS[form]).head
    head = head.double() if form == "float64" else head
    x, before = random_tensor(4, FEATURES).to(head.weight.dtype).requires_grad_(), head.weight.detach().clone()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    (asked,) = torch.autograd.grad(head(x, torch.arange(4)), x)
    optimizer.step()
    assert torch.equal(head.weight, before)
    assert asked.abs().sum() > 0
    head(x, torch.arange(4)).backward(inputs=[x])
    optimizer.step()
    assert torch.equal(head.weight, before)
    head(x, torch.arange(4)).backward()
    optimizer.step()
    assert not torch.equal(head.weight, before)


def test_second_derivatives_of_rows_that_move_in_backward_are_refused() -> None:
    head, x = fused(RULES["sgd"]).head, random_tensor(4, FEATURES).requires_grad_()
    with pytest.raises(ConfigError, match="create_graph=True"):
        torch.autograd.grad(head(x, torch.arange(4)), x, create_graph=True)


def test_a_bad_batch_is_dropped_before_the_step() -> None:
    model, x = fused(RULES["sgd"], "at_step"), random_tensor(4, INPUTS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.head.weight.detach().clone()
    (model(x, torch.arange(4)) * torch.nan).backward()
    optimizer.zero_grad()
    model.head.zero_grad()  # that of the optimizer does not reach what waits
    optimizer.step()
    assert torch.equal(model.head.weight, before)


def test_passes_that_wait_are_summed_as_they_come() -> None:
    """However they are split by a checkpoint between them."""
    ids, parameter = torch.arange(400), nn.Parameter(torch.zeros(500, 3))
    gradients = [torch.randn(400, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    straight, first = FusedUpdate(RowSGD([parameter], lr=0.1), True), FusedUpdate(RowSGD([parameter], lr=0.1), True)
    for gradient in gradients:
        straight.update_rows(parameter, ids, gradient)
    for gradient in gradients[:2]:
        first.update_rows(parameter, ids, gradient)
    resumed = FusedUpdate(RowSGD([parameter], lr=0.1), True)
    resumed.restore({"weight": parameter}, first.saved({"weight": parameter}))
    for gradient in gradients[2:]:
        resumed.update_rows(parameter, ids, gradient)
    expected = ((gradients[0] + gradients[1]) + gradients[2]) + gradients[3]
    for update in (straight, resumed):
        assert torch.equal(update.waiting[parameter].values(), expected)


@pytest.mark.parametrize("saved", ["lazy momentum", "adagrad", "adam"])
@pytest.mark.parametrize("loaded", ["adagrad", "adam", "momentum"])
def test_states_of_another_optimizer_are_refused(saved: str, loaded: str) -> None:
    one, other = fused(RULES[saved]), fused(RULES[loaded])
    one(random_tensor(4, INPUTS), torch.arange(4)).backward()
    if saved == loaded or (saved, loaded) == ("lazy momentum", "momentum"):
        other.load_state_dict(one.state_dict())
        return
    with pytest.raises(InputError, match="same row_optimizer"):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize("row_update", ["fused", "at_step"])
def test_an_empty_batch_without_reduction_moves_nothing(row_update: str) -> None:
    head = fused(RULES["sgd"], row_update, reduction="none").head
    x = torch.zeros(0, FEATURES, requires_grad=True)
    head(x, torch.zeros(0, dtype=torch.int64)).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_states_follow_rows_that_become_narrower(dtype: torch.dtype) -> None:
    head = CandidateSoftmax(FEATURES, CLASSES, row_update="fused", row_optimizer=partial(RowAdagrad, lr=0.1)).double()
    x, target = random_tensor(4, FEATURES), torch.arange(4)
    head(x.double(), target).backward()
    other = CandidateSoftmax(
        FEATURES, CLASSES, dtype=dtype, row_update="fused", row_optimizer=partial(RowAdagrad, lr=0.1)
    )
    other.load_state_dict(head.state_dict())
    for one in (head.to(dtype), other):
        before = one.weight.detach().clone()
        one(x, target).backward()
        assert not torch.equal(one.weight, before)
        assert one.row_optimizer.state[one.weight]["sum"].dtype == dtype
