"""A sharded head computes what the one-process head computes: losses, gradients, steps; on 2 and 3 ranks."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sharded_cases import (
    CASES,
    CLASSES,
    FEATURES,
    MINED,
    OPTIMIZERS,
    STEPS,
    batch,
    in_processes,
    one_process,
    rows_of,
    sharded,
    together,
    train,
    trunk,
)
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from manyclass import HashConfig
from manyclass.torch import RowSGD, ShardedSoftmax, clip_grad_norm_, leave_out_of_ddp
from manyclass.torch.class_shards import ClassShards, drawn_rows

pytestmark = pytest.mark.filterwarnings("ignore:a batch touches")
NORMS = (2.0, 1.0, float("inf"))
MOVED_BY_ITSELF = {"row_optimizer": partial(RowSGD, lr=0.1), **MINED}


class Model(nn.Module):
    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.trunk, self.head = trunk(), head

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        loss: Tensor = self.head(self.trunk(x), target)
        return loss


def trained(rank: int, settings: dict[str, Any], optimizer: str = "sgd", several: bool = False) -> dict[str, Any]:
    head, below = sharded(**settings), trunk()
    before = rows_of(head)
    batches = [batch(step, rank, several) for step in range(STEPS)]
    losses, first = train(head, DistributedDataParallel(below), batches, optimizer)
    meter = {key: value for key, value in head.meter.report().items() if key in ("recall_at_10", "missed_mass")}
    with torch.no_grad():
        x, target = batch(0, rank, several)
        losses.append(head.eval()(below.eval()(x), target).item())
    return {"before": before, "after": rows_of(head), "losses": losses, "first": first, "meter": meter,
            "mining": head.mining.settings()}  # fmt: skip


def inside_ddp(rank: int) -> dict[str, Any]:
    model = leave_out_of_ddp(Model(sharded(**MINED)))
    wrapped = DistributedDataParallel(model)
    moving = RowSGD(wrapped.parameters(), lr=0.1)
    for step in range(STEPS):
        moving.zero_grad()
        wrapped(*batch(step, rank)).backward()
        moving.step()
    return {"after": rows_of(model.head), "trunk": model.trunk.weight.detach().clone()}


def exact(rank: int) -> dict[str, Any]:
    head = sharded(trunk_gradients="summed")
    x, target = batch(0, rank)
    x = F.pad(x, (0, FEATURES - x.shape[1])).requires_grad_()
    with head.exact():
        loss = head(x, target)
        loss.backward()
    return {"loss": loss.item(), "x": x.grad, "weight": head._of_all_ranks(head.weight.grad), "rows": rows_of(head)}


def own_losses(rank: int) -> dict[str, Any]:
    head = sharded(reduction="none", shared=False, candidates=6, tail=0)
    x, target = batch(1, rank)
    x = F.pad(x, (0, FEATURES - x.shape[1])).requires_grad_()
    losses = head(x, target)
    losses.sum().backward()
    return {"losses": losses.detach(), "x": x.grad, "rows": rows_of(head)}


def clipped(rank: int, norm_type: float) -> dict[str, Any]:
    """Rows of all ranks and a layer that all have alike are scaled by one number."""
    head, copied = sharded(), nn.Parameter(torch.ones(3))
    x, target = batch(0, rank)
    head(F.pad(x, (0, FEATURES - x.shape[1])), target).backward()
    copied.grad = torch.ones(3)
    if rank == 0:
        head.bias.grad = None  # and who lacks a gradient still takes part
    weight = head._of_all_ranks(head.weight.grad.to_dense())
    bias = head._of_all_ranks(torch.zeros(len(head.bias)) if rank == 0 else head.bias.grad.to_dense())
    norm = clip_grad_norm_([*head.parameters(), copied], 0.5, norm_type)
    return {"norm": norm, "copied": copied.grad, "weight": weight, "bias": bias,
            "after": head._of_all_ranks(head.weight.grad.to_dense())}  # fmt: skip


def rehashed_by_id(rank: int) -> dict[str, Any]:
    """Rows named by the ids of their classes, which only one rank has."""
    head = sharded(config=HashConfig.flat_sketch(64), candidates=1).eval()
    x = 9 * torch.eye(FEATURES)[:4]
    head.topk(x, 1)
    hashed: list[int] = []
    rebuild = head.index.rebuild

    def noted(rows: Any, *rest: Any) -> None:
        hashed.extend(head.shards.ids_of(torch.from_numpy(rows)).tolist())
        rebuild(rows, *rest)

    head.index.rebuild = noted  # type: ignore[method-assign]
    changed = [4, 7, CLASSES - 1]
    with torch.no_grad():
        for place, class_id in enumerate(changed):
            row = int(head.shards.rows_for(torch.tensor([class_id])))
            if row >= 0:
                head.weight[row] = 9 * torch.eye(FEATURES)[place]
    head.rebuild(changed)
    return {"hashed": hashed, "found": head.topk(x[:3], 1).classes[:, 0].tolist()}


def ranked_by_sketches(rank: int) -> dict[str, Any]:
    """A real index on every rank, refreshed as rows move: it learns."""
    torch.manual_seed(1)
    points = torch.randn(400, 16)
    config = HashConfig.flat_sketch(64)
    head = ShardedSoftmax(16, 400, config=config, mined_examples=32, mined_every=2, meter_every=0, tail=32,
                          row_update="fused", row_optimizer=partial(RowSGD, lr=10.0))  # fmt: skip
    losses = []
    for step in range(60):
        target = torch.randint(400, (40,), generator=torch.Generator().manual_seed(1000 * step + rank))
        loss = head(points[target], target)
        loss.backward()
        losses.append(loss.item())
    in_training = {"builds": head.index.builds, "rehashed": head.index.rehashed}  # an answer may build anew
    found = head.eval().predict(points[rank::3])
    return {"losses": losses, "right": (found == torch.arange(rank, 400, 3)).float().mean().item(), **in_training}


def work(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {name: trained(rank, settings) for name, settings in CASES.items()}
    found["several"] = trained(rank, MINED, several=True)
    found["optimizers"] = {name: trained(rank, MINED, optimizer=name) for name in OPTIMIZERS}
    found["fused"] = trained(rank, {**MOVED_BY_ITSELF, "row_update": "fused"})
    found["at_step"] = trained(rank, {**MOVED_BY_ITSELF, "row_update": "at_step"})
    found["bfloat16"] = trained(rank, {**MINED, "dtype": torch.bfloat16})
    found |= {"inside ddp": inside_ddp(rank), "exact": exact(rank), "own losses": own_losses(rank)}
    found["clipped"] = {norm_type: clipped(rank, norm_type) for norm_type in NORMS}
    found["rehashed"] = rehashed_by_id(rank)
    return found | {"sketches": ranked_by_sketches(rank)}


@pytest.fixture(scope="module", params=[2, 3])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return in_processes(work, request.param, tmp_path_factory.mktemp("ranks"))


def compare(got: list[dict[str, Any]], settings: dict[str, Any], optimizer: str = "sgd", several: bool = False) -> None:
    """Assert that all ranks did what one process does with the batch of all."""
    head, below = one_process(got[0]["before"], **settings), trunk()
    losses, first = train(head, below, [together(step, len(got), several) for step in range(STEPS)], optimizer)
    with torch.no_grad():
        x, target = together(0, len(got), several)
        losses.append(head.eval()(below(x), target).item())
    for of_rank in got:
        torch.testing.assert_close(of_rank["losses"], losses, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(of_rank["first"], first, rtol=1e-5, atol=1e-6)
        for name, rows in of_rank["after"].items():
            torch.testing.assert_close(rows, getattr(head, name).detach(), rtol=1e-5, atol=1e-5)
        expected = {key: value for key, value in head.meter.report().items() if key in of_rank["meter"]}
        assert of_rank["meter"] == pytest.approx(expected, rel=1e-4, abs=1e-6)
        for setting, value in head.mining.settings().items():
            assert of_rank["mining"][setting] == (None if value is None else pytest.approx(value, rel=1e-4))
        assert bool(of_rank["mining"]["look_ups"]) == (settings.get("mined_every") == 1 and not head.meter.every)
        # A meter that nobody heeds does not read in so few steps.
        assert bool(of_rank["meter"]) == (bool(head.meter.every) and head.meter.early)
    assert not torch.equal(got[0]["before"]["weight"], head.weight)


@pytest.mark.parametrize("name", CASES)
def test_losses_gradients_and_steps_are_those_of_one_process(found: list[dict[str, Any]], name: str) -> None:
    compare([of_rank[name] for of_rank in found], CASES[name])


@pytest.mark.parametrize("norm_type", NORMS)
def test_gradients_are_clipped_by_the_norm_over_all_ranks(found: list[dict[str, Any]], norm_type: float) -> None:
    rows = found[0]["clipped"][norm_type]
    everything = torch.cat([rows["weight"].flatten(), rows["bias"], torch.ones(3)])
    expected = torch.linalg.vector_norm(everything, norm_type)
    assert expected > 0.5
    for of_rank in found:
        got = of_rank["clipped"][norm_type]
        torch.testing.assert_close(got["norm"], expected)
        torch.testing.assert_close(got["copied"], torch.ones(3) * 0.5 / expected, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(got["after"], rows["weight"] * 0.5 / expected, rtol=1e-4, atol=1e-6)


def test_rows_are_named_by_the_ids_of_their_classes(found: list[dict[str, Any]]) -> None:
    assert sorted(row for of_rank in found for row in of_rank["rehashed"]["hashed"]) == [4, 7, CLASSES - 1]
    for of_rank in found:
        assert of_rank["rehashed"]["found"] == [4, 7, CLASSES - 1]


def test_several_positives_each(found: list[dict[str, Any]]) -> None:
    compare([of_rank["several"] for of_rank in found], MINED, several=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_row_optimizers_move_the_rows_of_each_rank(found: list[dict[str, Any]], name: str) -> None:
    compare([of_rank["optimizers"][name] for of_rank in found], MINED, optimizer=name)


@pytest.mark.parametrize("mode", ["fused", "at_step"])
def test_rows_may_move_by_themselves(found: list[dict[str, Any]], mode: str) -> None:
    for of_rank in found:
        for name, rows in of_rank["mined"]["after"].items():
            torch.testing.assert_close(of_rank[mode]["after"][name], rows, rtol=1e-6, atol=1e-6)


def test_bfloat16_rows_learn(found: list[dict[str, Any]]) -> None:
    for of_rank in found:
        assert of_rank["bfloat16"]["after"]["weight"].dtype == torch.bfloat16
        torch.testing.assert_close(of_rank["bfloat16"]["losses"], of_rank["mined"]["losses"], rtol=0.02, atol=0.02)


def test_a_head_inside_ddp_keeps_its_rows(found: list[dict[str, Any]]) -> None:
    for of_rank in found:
        for name, rows in of_rank["mined"]["after"].items():
            torch.testing.assert_close(of_rank["inside ddp"]["after"][name], rows, rtol=1e-6, atol=1e-6)
        assert torch.equal(of_rank["inside ddp"]["trunk"], found[0]["inside ddp"]["trunk"])


def test_over_all_classes_it_is_torchs_cross_entropy(found: list[dict[str, Any]]) -> None:
    x, target = together(0, len(found))
    x = F.pad(x, (0, FEATURES - x.shape[1])).requires_grad_()
    rows = {name: part.clone().requires_grad_() for name, part in found[0]["exact"]["rows"].items()}
    loss = F.cross_entropy(F.linear(x, rows["weight"], rows["bias"]), target)
    loss.backward()
    for of_rank in found:
        assert of_rank["exact"]["loss"] == pytest.approx(loss.item(), rel=1e-6)
        torch.testing.assert_close(of_rank["exact"]["weight"], rows["weight"].grad, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(torch.cat([of_rank["exact"]["x"] for of_rank in found]), x.grad, rtol=1e-5, atol=1e-7)


def test_own_candidates_are_the_best_of_all_ranks(found: list[dict[str, Any]]) -> None:
    x, target = together(1, len(found))
    x = F.pad(x, (0, FEATURES - x.shape[1])).requires_grad_()
    rows = found[0]["own losses"]["rows"]
    logits = F.linear(x, rows["weight"], rows["bias"])
    seen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.topk(6, 1).indices, True)
    seen = seen.scatter(1, target.clamp_min(0)[:, None], True)
    counted = target >= 0
    losses = F.cross_entropy(logits.masked_fill(~seen, -torch.inf), target, reduction="none").where(counted, 0)
    losses.sum().backward()
    got = [of_rank["own losses"] for of_rank in found]
    torch.testing.assert_close(torch.cat([part["losses"] for part in got]), losses.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.cat([part["x"] for part in got]) / len(found), x.grad, rtol=1e-5, atol=1e-6)


def test_it_learns_by_an_index_on_every_rank(found: list[dict[str, Any]]) -> None:
    for of_rank in found:
        losses = of_rank["sketches"]["losses"]
        assert losses == found[0]["sketches"]["losses"]
        assert losses[-1] < losses[0] / 2
        assert of_rank["sketches"]["right"] > 0.9
        assert of_rank["sketches"]["builds"] == 1
        assert of_rank["sketches"]["rehashed"] > 0


def test_first_rows_do_not_depend_on_the_ranks(found: list[dict[str, Any]]) -> None:
    whole = torch.empty(CLASSES, FEATURES)
    drawn_rows(ClassShards(CLASSES, 0, 1), FEATURES, FEATURES**-0.5, 3, whole)
    assert torch.equal(found[0]["default"]["before"]["weight"], whole)
    assert whole.abs().max() <= FEATURES**-0.5
    assert whole.mean().abs() < 0.05
    assert len(whole.unique()) == whole.numel()


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_every_class_has_one_place(ranks: int) -> None:
    shards = [ClassShards(CLASSES, rank, ranks) for rank in range(ranks)]
    ids = torch.arange(-1, CLASSES)
    assert sum(part.rows for part in shards) == CLASSES
    assert torch.equal(torch.stack([part.here(ids) for part in shards]).sum(0), (ids >= 0).long())
    for part in shards:
        assert torch.equal(part.ids_of(torch.arange(part.rows)), part.part(torch.arange(CLASSES)))
        assert torch.equal(part.ids_of(part.rows_for(ids)), ids.where(part.here(ids), -1))
        assert part.candidates_each(CLASSES) <= part.most_rows
        assert part.candidates_each(6) >= 6 / ranks
