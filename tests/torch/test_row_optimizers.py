"""Row optimizers: torch's own results where torch defines them, lazy rows elsewhere, nothing touched on refusal."""

import copy
import io
from typing import Any

import numpy as np
import pytest
import torch
from cases import backend
from torch import Tensor, nn

from manyclass import ConfigError, InputError, InputTypeError
from manyclass.torch.row_optimizers import RowAdagrad, RowAdam, RowSGD

ROWS, WIDTH = 23, 7


class LazySGD(RowSGD):
    """Momentum as torch has it, on the rows that are touched."""

    def __init__(self, params: Any, lr: float = 1e-3, **settings: Any) -> None:
        super().__init__(params, lr, row_momentum="lazy", **settings)


PAIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "sgd": (LazySGD, torch.optim.SGD, {"lr": 0.1}),
    "sgd, weight decay": (LazySGD, torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "momentum": (LazySGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": (LazySGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "climbing": (LazySGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.1, "maximize": True}),
    "adagrad": (RowAdagrad, torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}),
    "adagrad, start": (RowAdagrad, torch.optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3}),
    "adam": (RowAdam, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.0}),
    "adamw": (RowAdam, torch.optim.AdamW, {"lr": 0.01, "betas": (0.5, 0.8), "weight_decay": 0.1, "maximize": True}),
}
ALL = pytest.mark.parametrize("pair", PAIRS)


def parameter(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype))


def sparse(ids: Tensor, values: Tensor, like: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(ids[None], values, like.shape, dtype=like.dtype, check_invariants=True)


def gradients(steps: int, *shape: int, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator) for _ in range(steps)]


def touched(step: int) -> Tensor:
    """Return some ascending ids, others at each step."""
    return torch.randperm(ROWS, generator=torch.Generator().manual_seed(step))[:5].sort().values


def bits(tensor: Tensor) -> Any:
    return tensor.detach().numpy().tobytes()


# Where torch defines the result


@ALL
def test_dense_gradients_get_the_parents_bits(pair: str) -> None:
    row_class, parent, settings = PAIRS[pair]
    ours, theirs = parameter(ROWS, WIDTH), parameter(ROWS, WIDTH)
    optimizers = row_class([ours], **settings), parent([theirs], **settings)
    for gradient in gradients(4, ROWS, WIDTH):
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert bits(ours) == bits(theirs)
    assert optimizers[0].state_dict()["state"].keys() == optimizers[1].state_dict()["state"].keys()


@ALL
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (ROWS,), (ROWS, 3, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_rows_touched_at_every_step_get_the_parents_result(
    pair: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    row_class, parent, settings = PAIRS[pair]
    ours, theirs = parameter(*shape, dtype=dtype), parameter(*shape, dtype=dtype)
    optimizers = row_class([ours], **settings), parent([theirs], **settings)
    for gradient in gradients(5, *shape):
        ours.grad = sparse(torch.arange(ROWS), gradient.to(dtype), ours)
        theirs.grad = gradient.to(dtype)
        for optimizer in optimizers:
            optimizer.step()
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-13, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    left, right = (optimizer.state_dict()["state"].get(0, {}) for optimizer in optimizers)
    if dtype == torch.bfloat16 and "step" not in right:
        assert int(left.pop("step")) == 5  # the steps that rounding by chance has taken
    assert left.keys() == right.keys() or not (left or right)
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=10 * tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # torch's own sparse Adagrad
@pytest.mark.parametrize("settings", [{"lr": 0.1}, {"lr": 0.3, "lr_decay": 0.2, "initial_accumulator_value": 0.1}])
def test_adagrad_on_sparse_gradients_is_torchs(settings: dict[str, float]) -> None:
    ours, theirs = parameter(ROWS, WIDTH), parameter(ROWS, WIDTH)
    optimizers = RowAdagrad([ours], **settings), torch.optim.Adagrad([theirs], **settings)
    for step, gradient in enumerate(gradients(6, 5, WIDTH)):
        for weight, optimizer in zip((ours, theirs), optimizers, strict=True):
            weight.grad = sparse(touched(step), gradient, weight)
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(optimizers[0].state[ours]["sum"], optimizers[1].state[theirs]["sum"])


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_adam_without_weight_decay_is_torchs_sparse_adam() -> None:
    ours, theirs = parameter(ROWS, WIDTH), parameter(ROWS, WIDTH)
    optimizers = RowAdam([ours], lr=0.01), torch.optim.SparseAdam([theirs], lr=0.01)
    for step, gradient in enumerate(gradients(8, 5, WIDTH)):
        for weight, optimizer in zip((ours, theirs), optimizers, strict=True):
            weight.grad = sparse(touched(step), gradient, weight)
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(optimizers[0].state[ours]["exp_avg_sq"], optimizers[1].state[theirs]["exp_avg_sq"])


# Lazy rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_momentum_and_weight_decay_act_on_a_row_only_when_it_is_touched(dtype: torch.dtype) -> None:
    lr, momentum, dampening, decay = 0.1, 0.8, 0.25, 0.05
    weight = parameter(ROWS, WIDTH, dtype=dtype)
    optimizer = LazySGD([weight], lr=lr, momentum=momentum, dampening=dampening, weight_decay=decay)
    expected, buffer = weight.detach().double().numpy().copy(), np.zeros((ROWS, WIDTH))
    for step, gradient in enumerate(gradients(9, 5, WIDTH)):
        weight.grad = sparse(touched(step), gradient.to(dtype), weight)
        optimizer.step()
        for row, id in enumerate(touched(step).tolist()):
            g = gradient[row].double().numpy() + decay * expected[id]
            buffer[id] = momentum * buffer[id] + (1 - dampening) * g
            expected[id] -= lr * buffer[id]
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(optimizer.state[weight]["momentum_buffer"].numpy(), buffer, rtol=1e-5, atol=1e-6)


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_untouched_rows_and_their_states_keep_their_bits(pair: str, dtype: torch.dtype) -> None:
    row_class, _, settings = PAIRS[pair]
    weight = parameter(ROWS, WIDTH, dtype=dtype)
    optimizer = row_class([weight], **settings)
    weight.grad = sparse(torch.arange(ROWS), torch.ones(ROWS, WIDTH, dtype=dtype), weight)
    optimizer.step()
    before = copy.deepcopy([weight, *(v for v in optimizer.state[weight].values() if v.ndim)])
    ids = touched(3)
    weight.grad = sparse(ids, torch.ones(5, WIDTH, dtype=dtype), weight)
    optimizer.step()
    others = torch.tensor([id for id in range(ROWS) if id not in ids.tolist()])
    after = [weight, *(v for v in optimizer.state[weight].values() if v.ndim)]
    assert all(bits(new[others]) == bits(old[others]) for new, old in zip(after, before, strict=True))
    assert all((new[ids] != old[ids]).all() for new, old in zip(after, before, strict=True))


@ALL
def test_one_optimizer_for_a_dense_trunk_and_sparse_rows(pair: str) -> None:
    row_class, parent, settings = PAIRS[pair]
    trunk, rows, bias = parameter(4, 3), parameter(ROWS, WIDTH), parameter(ROWS, seed=5)
    alone = copy.deepcopy([trunk, rows, bias])
    together = row_class([{"params": [trunk, rows]}, {"params": [bias], "lr": 0.5}], **settings)
    apart = [parent([alone[0]], **settings), row_class([alone[1]], **settings), row_class([alone[2]], **settings)]
    apart[2].param_groups[0]["lr"] = 0.5
    for step, (dense, row, one) in enumerate(
        zip(gradients(4, 4, 3), gradients(4, 5, WIDTH), gradients(4, 5), strict=True)
    ):
        for a, b, c in ((trunk, rows, bias), alone):
            a.grad, b.grad, c.grad = dense.clone(), sparse(touched(step), row, b), sparse(touched(step), one, c)
        together.step()
        for optimizer in apart:
            optimizer.step()
    assert [bits(p) for p in (trunk, rows, bias)] == [bits(p) for p in alone]


@ALL
def test_update_rows_is_a_step_with_a_sparse_gradient(pair: str) -> None:
    row_class, _, settings = PAIRS[pair]
    stepped, fused = parameter(ROWS, WIDTH), parameter(ROWS, WIDTH)
    optimizers = row_class([stepped], **settings), row_class([fused], **settings)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) for optimizer in optimizers]
    for step, gradient in enumerate(gradients(4, 5, WIDTH)):
        stepped.grad = sparse(touched(step), gradient, stepped)
        optimizers[1].update_rows(fused, touched(step), gradient)
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()  # for the second: nothing left to do
            scheduler.step()
    assert fused.grad is None
    assert bits(stepped) == bits(fused)


def test_update_rows_works_on_a_bias() -> None:
    bias = parameter(ROWS)
    optimizer = RowSGD([bias], lr=0.5)
    before = bias.detach().clone()
    optimizer.update_rows(bias, torch.tensor([2, 9]), torch.tensor([1.0, -2.0]))
    torch.testing.assert_close(
        bias.detach() - before, torch.zeros(ROWS).index_put((torch.tensor([2, 9]),), torch.tensor([-0.5, 1.0]))
    )


def test_begin_step_hands_out_rule_and_states_and_counts() -> None:
    weight = parameter(ROWS, WIDTH)
    optimizer = RowAdam([weight], lr=0.01)
    first, second = optimizer.begin_step(weight), optimizer.begin_step(weight)
    assert first.first is second.first is optimizer.state[weight]["exp_avg"]
    assert first.rule.step == pytest.approx(0.01 / 0.1)
    assert second.rule.step == pytest.approx(0.01 / 0.19)
    assert optimizer.state[weight]["step"] == 2
    assert RowSGD([weight]).begin_step(weight)[1:] == (None, None)


# Life with the rest of torch


def test_exponential_decay_of_the_learning_rate_reaches_the_rows() -> None:
    weight = nn.Parameter(torch.zeros(3, 2))
    optimizer = RowSGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        weight.grad = sparse(torch.tensor([1]), torch.ones(1, 2), weight)
        optimizer.step()
        scheduler.step()
    assert weight.detach()[:, 0].tolist() == [0, -1.75, 0]


@ALL
def test_a_saved_and_loaded_optimizer_goes_on_with_the_same_bits(pair: str) -> None:
    row_class, _, settings = PAIRS[pair]
    weights = [parameter(ROWS, WIDTH), parameter(ROWS, WIDTH)]
    optimizers = [row_class([weights[0]], **settings), row_class([weights[1]], lr=9.0)]

    def steps(which: int, first: int, last: int) -> None:
        for step in range(first, last):
            weights[which].grad = sparse(touched(step), gradients(1, 5, WIDTH, seed=step)[0], weights[which])
            optimizers[which].step()

    steps(0, 0, 3)
    saved = io.BytesIO()
    torch.save(optimizers[0].state_dict(), saved)
    saved.seek(0)
    optimizers[1].load_state_dict(torch.load(saved, weights_only=True))
    weights[1].data.copy_(weights[0].data)
    steps(0, 3, 6)
    steps(1, 3, 6)
    assert bits(weights[0]) == bits(weights[1])


@ALL
def test_a_state_of_torchs_optimizer_can_be_taken_over(pair: str) -> None:
    row_class, parent, settings = PAIRS[pair]
    weight = parameter(ROWS, WIDTH)
    before = parent([weight], **settings)
    weight.grad = torch.ones_like(weight)
    before.step()
    optimizer = row_class([weight], **settings)
    optimizer.load_state_dict(before.state_dict())
    weight.grad = sparse(torch.tensor([0, 3]), torch.ones(2, WIDTH), weight)
    optimizer.step()
    if "step" in optimizer.state[weight]:
        assert optimizer.state[weight]["step"] == 2


@ALL
def test_two_backwards_on_an_embedding_equal_one(pair: str) -> None:
    row_class, _, settings = PAIRS[pair]
    results = []
    for batches in ([[1, 4, 4], [4, 7]], [[1, 4, 4, 4, 7]]):
        embedding = nn.Embedding(ROWS, WIDTH, sparse=True)
        embedding.weight.data.copy_(parameter(ROWS, WIDTH).data)
        optimizer = row_class(embedding.parameters(), **settings)
        for batch in batches:
            embedding(torch.tensor(batch)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert embedding.weight.grad is None
        results.append(embedding.weight)
    assert bits(results[0]) == bits(results[1])


def test_a_tied_weight_with_sparse_and_dense_parts_gets_a_dense_step() -> None:
    embedding, other = nn.Embedding(ROWS, WIDTH, sparse=True), parameter(ROWS, WIDTH)
    embedding.weight.data.copy_(other.data)
    loss = embedding(torch.tensor([1, 2])).sum() + (embedding.weight**2).sum()
    loss.backward()
    assert not embedding.weight.grad.is_sparse
    other.grad = embedding.weight.grad.clone()
    LazySGD(embedding.parameters(), lr=0.1, momentum=0.9).step()
    torch.optim.SGD([other], lr=0.1, momentum=0.9).step()
    assert bits(embedding.weight) == bits(other)


def test_a_sparse_step_and_then_a_dense_one_share_their_state() -> None:
    for row_class, parent, settings in PAIRS.values():
        ours, theirs = parameter(ROWS, WIDTH), parameter(ROWS, WIDTH)
        optimizers = row_class([ours], **settings), parent([theirs], **settings)
        for step, gradient in enumerate(gradients(4, ROWS, WIDTH)):
            ours.grad = gradient if step % 2 else sparse(torch.arange(ROWS), gradient, ours)
            theirs.grad = gradient.clone()
            for optimizer in optimizers:
                optimizer.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_closures_hooks_and_added_groups_work_once_per_step() -> None:
    torch.optim.SGD([parameter(1)])  # has torch wrap the parent's step too
    weight, added = parameter(ROWS, WIDTH), parameter(ROWS, seed=3)
    optimizer = RowSGD([weight], lr=0.1)
    optimizer.add_param_group({"params": [added], "lr": 1.0})
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))

    def closure() -> float:
        calls.append("closure")
        weight.grad = sparse(torch.tensor([0]), torch.ones(1, WIDTH), weight)
        added.grad = sparse(torch.tensor([1]), torch.ones(1), added)
        return 3.5

    before = added.detach().clone()
    assert optimizer.step(closure) == 3.5
    assert calls == ["before", "closure", "after"]
    assert (before - added.detach())[1] == pytest.approx(1.0)


def test_a_backward_that_still_needs_the_old_rows_fails_as_with_torch() -> None:
    weight = parameter(ROWS, WIDTH)
    loss = (weight**2).sum()
    RowSGD([weight], lr=0.1).update_rows(weight, torch.tensor([0]), torch.ones(1, WIDTH))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_momentum_at_once_moves_a_row_as_far_as_dense_momentum_does_in_the_end() -> None:
    ours, theirs = parameter(ROWS, WIDTH), parameter(ROWS, WIDTH)
    ids, gradient = torch.tensor([2, 5]), torch.randn(2, WIDTH)
    optimizer = RowSGD([ours], lr=0.1, momentum=0.9)
    ours.grad = sparse(ids, gradient, ours)
    optimizer.step()
    dense = torch.optim.SGD([theirs], lr=0.1, momentum=0.9)
    theirs.grad = torch.zeros_like(theirs).index_copy(0, ids, gradient)
    for _ in range(400):
        dense.step()
        theirs.grad = torch.zeros_like(theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert optimizer.state_bytes() == 0


def test_unknown_row_momentum_is_refused() -> None:
    with pytest.raises(ConfigError, match="row_momentum='eager'"):
        RowSGD([parameter(3, 2)], lr=1.0, row_momentum="eager")


def test_momentum_at_once_takes_dampening_and_weight_decay_into_account() -> None:
    weight = parameter(ROWS, WIDTH)
    before = weight.detach().clone()
    gradient = torch.randn(1, WIDTH)
    weight.grad = sparse(torch.tensor([3]), gradient, weight)
    RowSGD([weight], lr=0.1, momentum=0.5, dampening=0.25, weight_decay=0.1).step()
    expected = before[3] - 0.1 * 0.75 / 0.5 * (gradient[0] + 0.1 * before[3])
    torch.testing.assert_close(weight[3], expected)


def test_state_bytes_counts_what_the_rules_keep() -> None:
    weight = parameter(ROWS, WIDTH)
    size = ROWS * WIDTH * 4
    for optimizer, expected in (
        (RowSGD([weight]), 0),
        (RowSGD([weight], momentum=0.9), 0),
        (LazySGD([weight], momentum=0.9), size),
        (RowAdagrad([weight]), size + 4),
        (RowAdam([weight]), 2 * size + 4),
    ):
        assert optimizer.state_bytes() == 0
        optimizer.update_rows(weight, torch.tensor([1]), torch.ones(1, WIDTH))
        assert optimizer.state_bytes() == expected


def test_states_of_untouched_rows_take_no_memory() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    weight = nn.Parameter(torch.empty(1_000_000, 64))  # 256 MB, never written
    before = resident()
    for optimizer in (LazySGD([weight], momentum=0.9), RowAdagrad([weight]), RowAdam([weight])):
        optimizer.update_rows(weight, torch.arange(1000), torch.ones(1000, 64))  # huge pages: keep them together
        assert optimizer.state_bytes() >= 256_000_000
        assert resident() - before < 100_000_000


def test_other_layouts_of_float32_take_the_plain_path() -> None:
    base = parameter(ROWS, WIDTH)
    transposed = nn.Parameter(torch.empty(WIDTH, ROWS).t())
    transposed.data.copy_(base.data)
    for weight in (base, transposed):
        optimizer = LazySGD([weight], lr=0.1, momentum=0.9)
        for step, gradient in enumerate(gradients(3, 5, WIDTH)):
            optimizer.update_rows(weight, touched(step), gradient)
    torch.testing.assert_close(base, transposed, rtol=1e-6, atol=1e-6)


def test_an_empty_gradient_changes_no_weight_and_counts_as_a_step() -> None:
    weight = parameter(ROWS, WIDTH)
    before = bits(weight)
    optimizer = RowAdam([weight], weight_decay=0.1)
    weight.grad = sparse(torch.empty(0, dtype=torch.int64), torch.empty(0, WIDTH), weight)
    optimizer.step()
    assert bits(weight) == before
    assert optimizer.state[weight]["step"] == 1


def test_shared_memory_of_adagrad() -> None:
    weight = parameter(ROWS, WIDTH)
    optimizer = RowAdagrad([weight])
    optimizer.share_memory()
    assert optimizer.state[weight]["sum"].is_shared()


@ALL
def test_a_copy_made_together_with_its_parameter_goes_its_own_way(pair: str) -> None:
    row_class, _, settings = PAIRS[pair]
    weight = parameter(ROWS, WIDTH)
    optimizer = row_class([weight], **settings)
    optimizer.update_rows(weight, touched(0), torch.ones(5, WIDTH))
    before, states = bits(weight), copy.deepcopy(optimizer.state_dict())
    other_weight, other = copy.deepcopy((weight, optimizer))
    other.update_rows(other_weight, touched(1), torch.ones(5, WIDTH))
    assert bits(weight) == before
    torch.testing.assert_close(optimizer.state_dict()["state"], states["state"], rtol=0, atol=0)
    optimizer.update_rows(weight, touched(1), torch.ones(5, WIDTH))
    assert bits(weight) == bits(other_weight)


@ALL
def test_the_numpy_backend_gives_the_same_bits(pair: str) -> None:
    row_class, _, settings = PAIRS[pair]
    results = []
    for name in ("native", "reference"):
        weight = parameter(ROWS, WIDTH)
        optimizer = row_class([weight], **settings)
        with backend(name):
            for step, gradient in enumerate(gradients(3, 5, WIDTH)):
                optimizer.update_rows(weight, touched(step), gradient)
        results.append(bits(weight))
    assert results[0] == results[1]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("row_class", [RowSGD, RowAdagrad, RowAdam])
def test_gradient_scaling_for_half_precision_reaches_dense_and_sparse_alike(row_class: Any, fused: bool) -> None:
    results = []
    for enabled in (False, True):
        trunk, embedding = nn.Linear(WIDTH, 3), nn.Embedding(ROWS, WIDTH, sparse=True)
        trunk.weight.data.copy_(parameter(3, WIDTH).data)
        embedding.weight.data.copy_(parameter(ROWS, WIDTH).data)
        optimizer = row_class([trunk.weight, embedding.weight], lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", enabled=enabled, init_scale=1024.0)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((nn.functional.linear(embedding(torch.tensor([1, 3, 3])), trunk.weight) ** 2).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(bits(trunk.weight) + bits(embedding.weight))
    assert results[0] == results[1]


# Refusals


@pytest.mark.parametrize("setting", ["amsgrad", "capturable", "differentiable"])
def test_settings_that_cannot_work_on_rows_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        RowAdam([parameter(3, 2)], **{setting: True})
    optimizer = RowAdam([parameter(3, 2)])
    with pytest.raises(ConfigError, match=setting):
        optimizer.add_param_group({"params": [parameter(2, 2)], setting: True})
    assert len(optimizer.param_groups) == 1


def test_settings_out_of_range_are_refused_by_torch() -> None:
    for make in (
        lambda: RowSGD([parameter(3, 2)], lr=-1.0),
        lambda: RowAdagrad([parameter(3, 2)], lr=-1.0),
        lambda: RowAdam([parameter(3, 2)], betas=(1.0, 0.9)),
        lambda: RowAdagrad([]),
    ):
        with pytest.raises(ValueError, match=r"nvalid|empty"):
            make()


@pytest.mark.parametrize(
    ("ids", "gradient", "error", "words"),
    [
        (torch.tensor([0, ROWS]), torch.ones(2, WIDTH), InputError, f"hold {ROWS}"),
        (torch.tensor([-1, 2]), torch.ones(2, WIDTH), InputError, "hold -1"),
        (torch.tensor([3, 2]), torch.ones(2, WIDTH), InputError, "ascending"),
        (torch.tensor([2, 2]), torch.ones(2, WIDTH), InputError, "ascending"),
        (torch.tensor([2, 3]), torch.ones(3, WIDTH), InputError, "shape"),
        (torch.tensor([2, 3]), torch.ones(2, WIDTH + 1), InputError, "shape"),
        (torch.tensor([2, 3]), torch.ones(2, WIDTH).double(), InputTypeError, "dtype"),
        (torch.tensor([2, 3]), torch.ones(2, WIDTH, device="meta"), InputError, "meta"),
        (torch.tensor([2.0, 3.0]), torch.ones(2, WIDTH), InputTypeError, "int64"),
        (torch.tensor([[2, 3]]), torch.ones(2, WIDTH), InputTypeError, "int64"),
    ],
)
def test_bad_rows_are_refused_and_nothing_changes(ids: Tensor, gradient: Tensor, error: Any, words: str) -> None:
    weight = parameter(ROWS, WIDTH)
    before = bits(weight)
    optimizer = RowAdam([weight])
    with pytest.raises(error, match=words):
        optimizer.update_rows(weight, ids, gradient)
    assert bits(weight) == before
    assert not optimizer.state_dict()["state"]


def test_a_bad_gradient_in_a_later_group_leaves_the_first_unchanged() -> None:
    good, bad = parameter(ROWS, WIDTH), parameter(ROWS, WIDTH)
    before = bits(good)
    good.grad = sparse(torch.tensor([1]), torch.ones(1, WIDTH), good)
    bad.grad = torch.ones(ROWS, WIDTH).to_sparse()
    optimizer = RowSGD([{"params": [good]}, {"params": [bad]}], lr=0.1)
    with pytest.raises(InputError, match="2 sparse dimensions"):
        optimizer.step()
    assert bits(good) == before
    outside = torch.sparse_coo_tensor(
        torch.tensor([[ROWS]]), torch.ones(1, WIDTH), (ROWS, WIDTH), is_coalesced=True, check_invariants=False
    )
    bad.grad = outside
    with pytest.raises(InputError, match=f"hold {ROWS}"):
        optimizer.step()
    assert bits(good) == before


def test_a_state_of_another_shape_is_refused() -> None:
    weight = parameter(ROWS, WIDTH)
    optimizer = RowAdam([weight])
    optimizer.update_rows(weight, torch.tensor([0]), torch.ones(1, WIDTH))
    weight.data = torch.zeros(ROWS + 2, WIDTH)
    with pytest.raises(InputError, match="state has shape"):
        optimizer.update_rows(weight, torch.tensor([0]), torch.ones(1, WIDTH))
    assert not weight.any()
    assert optimizer.state[weight]["step"] == 1
    del optimizer.state[weight]
    optimizer.update_rows(weight, torch.tensor([ROWS + 1]), torch.ones(1, WIDTH))


def test_parameters_without_elements_are_left_alone() -> None:
    for shape, ids in (((0, 3), []), ((4, 0), [1, 2]), ((0,), [])):
        weight = nn.Parameter(torch.zeros(shape))
        RowAdam([weight]).update_rows(weight, torch.tensor(ids, dtype=torch.int64), torch.zeros(len(ids), *shape[1:]))


def test_a_parameter_elsewhere_or_unknown_is_refused() -> None:
    weight = nn.Parameter(torch.empty(ROWS, WIDTH, device="meta"))
    with pytest.raises(InputError, match="on meta"):
        RowSGD([weight]).update_rows(weight, torch.tensor([0]), torch.ones(1, WIDTH))
    with pytest.raises(InputError, match="not in this optimizer"):
        RowSGD([weight]).update_rows(parameter(2, 2), torch.tensor([0]), torch.ones(1, 2))
