"""Classes that come and go in place: ids that stay, answers of a fresh head, room that nobody sees, the same bits."""

import copy
import io
import pickle
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from head_cases import FEATURES, RANKED, random_tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from manyclass import ClassIndex, ConfigError, HashConfig, InputError
from manyclass.torch import (
    CandidateSoftmax,
    RowAdagrad,
    RowAdam,
    RowSGD,
    WTASoftmax,
    load_checkpoint,
    save_checkpoint,
)
from manyclass.torch.approximation_meter import ApproximationMeter
from manyclass.torch.class_sampler import ClassSampler
from manyclass.torch.head_index import HeadIndex
from manyclass.torch.mining import Mining
from manyclass.torch.removed_classes import RemovedClasses
from manyclass.torch.tail_and_targets import TailAndTargets

pytestmark = pytest.mark.filterwarnings("ignore::manyclass.torch.approximation_meter.ApproximationWarning")
CLASSES = 50
X = random_tensor(6, FEATURES, seed=5)
GONE = [0, 7, 8, 30, 49]
SETTINGS: dict[str, dict[str, Any]] = {
    "scan": {"config": RANKED},
    "few": {"config": HashConfig.exhaustive()},
    "cells": {"config": RANKED.with_(cells=4)},
    "tables": {"config": HashConfig.probed_tables(CLASSES, FEATURES, always=3)},
    "no bias": {"config": RANKED, "bias": False},
    "cosine": {"config": RANKED, "normalize": True, "temperature": 0.1},
    "bfloat16": {"config": RANKED, "dtype": torch.bfloat16},
    "logistic": {"config": RANKED, "output": "logistic"},
    "own": {"config": RANKED, "shared": False},
}


def new_head(**changes: Any) -> CandidateSoftmax:
    torch.manual_seed(0)
    head = CandidateSoftmax(FEATURES, CLASSES, **{"candidates": CLASSES, "tail": 7, "config": RANKED, **changes})
    with torch.no_grad():
        head.weight.mul_(4)
    return head


def exact_logits(head: CandidateSoftmax, x: Tensor) -> Tensor:
    """Return the logits of all classes, -inf where one is removed."""
    rows = F.normalize(head.weight.float()) if head.normalize else head.weight.float()
    logits = (F.normalize(x) if head.normalize else x) @ rows.T
    logits = logits if head.bias is None else logits + head.bias.float()
    return (logits / head.temperature).index_fill(1, head.removed, -torch.inf).detach()


def assert_answers_are_exact(head: CandidateSoftmax, x: Tensor = X, k: int = 5) -> None:
    """With as many candidates as classes, every way to ask gives the exact answer over the classes that are left."""
    logits = exact_logits(head, x)
    expected = F.logsigmoid(logits) if head.output == "logistic" else logits.log_softmax(1)
    was_training = head.training
    for training in (True, False):
        head.train(training)
        top = head.topk(x, k, candidates=head.num_classes)
        torch.testing.assert_close(expected.gather(1, top.classes), expected.topk(k).values, rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(top.log_probs, expected.topk(k).values, rtol=2e-3, atol=2e-3)
        assert not torch.isin(top.classes, head.removed).any()
    with head.exact():
        torch.testing.assert_close(head.log_prob(x), expected, rtol=1e-3, atol=1e-3)
        assert not torch.isin(head.topk(x, k).classes, head.removed).any()
    head.train(was_training)


# What a removed class is


@pytest.mark.parametrize("name", SETTINGS)
def test_a_removed_class_is_nowhere(name: str) -> None:
    head = new_head(**SETTINGS[name])
    head.topk(X, 3)  # the index is there already
    head.remove_classes(GONE)
    head.remove_classes(torch.tensor([7]))  # once more does no harm
    assert head.removed.tolist() == GONE
    assert head.num_classes == CLASSES
    assert_answers_are_exact(head) if name != "tables" else None
    everything = head.eval().topk(X, CLASSES, candidates=CLASSES)
    assert not torch.isin(everything.classes, head.removed).any()
    assert (everything.classes[:, -len(GONE) :] == -1).all()
    assert everything.log_probs[:, -len(GONE) :].isneginf().all()
    with head.exact():
        all_of_them = head.topk(X, CLASSES)
        assert (all_of_them.classes[:, -len(GONE) :] == -1).all()
        assert not all_of_them.log_probs.isnan().any()
    for exact in (False, True):
        asked = torch.tensor([[0, 1, 7, 7]]).expand(len(X), -1)
        with head.exact() if exact else torch.no_grad():
            told = head.log_prob(X, asked)
            assert told[:, [0, 2, 3]].isneginf().all()
            assert told[:, 1].isfinite().all()
            assert head.log_prob(X)[:, GONE].isneginf().all()
    assert head.log_prob(X, asked, normalizer="estimated")[:, 1].isfinite().all()


@pytest.mark.parametrize("target", [torch.tensor([1, 2, 7, 3, 4, 5]), torch.tensor([[1, -1], [2, 30]] * 3)])
def test_a_removed_class_is_no_target(target: Tensor) -> None:
    head = new_head()
    head.remove_classes(GONE)
    before = head.weight.detach().clone(), head.sampler.generator.get_state()
    with pytest.raises(InputError, match=r"target holds (7|30), a class that was removed; .*ignore_index=-100"):
        head(X, target)
    assert torch.equal(head.weight, before[0])
    assert torch.equal(head.sampler.generator.get_state(), before[1])
    head(X, torch.tensor([1, 2, -100, 3, 4, 5])).backward()


@pytest.mark.parametrize("name", ["scan", "few", "own", "logistic", "no bias", "cosine"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_a_removed_class_never_moves(name: str, exact: bool, fused: bool) -> None:
    rows: dict[str, Any] = {"row_update": "fused", "row_optimizer": partial(RowSGD, lr=0.1)} if fused else {}
    head = new_head(**SETTINGS[name], **rows)
    head.remove_classes(GONE)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    before = head.weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        with head.exact() if exact else torch.enable_grad():
            loss = head(X, torch.tensor([1, 2, 3, 4, 5, 6]))
        loss.backward()
        optimizer.step()
    assert torch.equal(head.weight[GONE], before[GONE])
    assert head.weight.isfinite().all()
    assert not torch.equal(head.weight, before)


def test_random_classes_are_those_of_a_head_without_gaps() -> None:
    gone = RemovedClasses().with_(torch.tensor([11, 0])).with_(torch.tensor([4, 3, 0]))
    assert gone.ids.tolist() == [0, 3, 4, 11]
    left = torch.tensor([c for c in range(20) if c not in (0, 3, 4, 11)])
    assert torch.equal(gone.ids_of(torch.arange(16)), left)
    assert torch.equal(gone.ranks_of(left), torch.arange(16))
    with_gaps, without = ClassSampler(20, removed=gone), ClassSampler(16)
    for _ in range(5):
        some, same = with_gaps.draw(9), without.draw(9)
        assert torch.equal(some.classes, left[same.classes])
        assert torch.equal(some.log_weights, same.log_weights)
        members = torch.tensor([1, 2, 9])
        some, same = with_gaps.draw_outside(left[members], 9), without.draw_outside(members, 9)
        assert torch.equal(some.classes, left[same.classes])
        assert torch.equal(some.log_weights, same.log_weights)


# It survives


def saved_and_loaded(head: CandidateSoftmax, how: str, folder: Path) -> CandidateSoftmax:
    if how == "deepcopy":
        return copy.deepcopy(head)
    if how == "pickle":
        return pickle.loads(pickle.dumps(head))  # type: ignore[no-any-return]
    other = CandidateSoftmax(FEATURES, head.num_classes, candidates=head.candidates, tail=7, config=head.index.config)
    if how == "state dict":
        other.load_state_dict(head.state_dict())
    elif how == "safetensors":
        from safetensors.torch import load_file, save_file

        save_file(head.state_dict(), folder / "head.safetensors")
        other.load_state_dict(load_file(folder / "head.safetensors"))
    elif how == "torch.save":
        torch.save(nn.Sequential(head).state_dict(), folder / "head.pt")
        nn.Sequential(other).load_state_dict(torch.load(folder / "head.pt"))
    else:
        save_checkpoint(folder / "head.mc", head, index=how == "checkpoint")
        load_checkpoint(folder / "head.mc", other, index=how == "checkpoint")
    return other


@pytest.mark.parametrize(
    "how", ["deepcopy", "pickle", "state dict", "safetensors", "torch.save", "checkpoint", "no index"]
)
def test_removed_and_added_classes_survive(how: str, tmp_path: Path) -> None:
    head = new_head().eval()
    head.topk(X, 1)
    head.add_classes(rows=random_tensor(3, FEATURES, seed=9))
    head.remove_classes([*GONE, 51])
    other = saved_and_loaded(head, how, tmp_path).eval()
    assert other.removed.tolist() == [*GONE, 51]
    assert torch.equal(other.index.removed.ids, other.removed)
    expected, found = head.topk(X, 5), other.topk(X, 5)
    assert torch.equal(found.classes, expected.classes)
    assert torch.equal(found.log_probs, expected.log_probs)
    assert_answers_are_exact(other)
    assert other.add_classes(1) == range(53, 54)
    assert len(head.weight) == 53


def test_a_state_dict_without_removed_classes_has_none() -> None:
    head, full = new_head(), new_head()
    head.remove_classes(GONE)
    head.load_state_dict(full.state_dict())
    assert not len(head.removed)
    assert_answers_are_exact(head)
    with pytest.raises(InputError, match="removed_classes holds ids beyond the 50 classes"):
        head.load_state_dict({**full.state_dict(), "removed_classes": torch.tensor([50])})


def test_to_linear_gives_removed_classes_no_probability() -> None:
    for bias in (True, False):
        head = new_head(bias=bias)
        head.remove_classes(GONE)
        linear = head.to_linear()
        assert linear.weight is head.weight
        torch.testing.assert_close(linear(X), exact_logits(head, X))
        assert head.bias is None or head.bias.isfinite().all()
    with pytest.raises(ConfigError, match="no linear layer"):
        new_head(normalize=True).to_linear()


def test_a_resumed_run_computes_the_same_bits(tmp_path: Path) -> None:
    def steps(head: CandidateSoftmax, optimizer: torch.optim.Optimizer, seeds: range) -> None:
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            target = torch.randint(10, 29, (6,), generator=generator)
            optimizer.zero_grad()
            head(random_tensor(6, FEATURES, seed=seed), target).backward()
            optimizer.step()

    few: dict[str, Any] = {"candidates": 4, "refresh_steps": 5, "refresh_limit": 6}
    head = new_head(**few)
    optimizer = RowAdam(head.parameters(), lr=0.01)
    steps(head, optimizer, range(3))
    head.add_classes(rows=random_tensor(2, FEATURES, seed=9), optimizer=optimizer)
    head.remove_classes(GONE)
    steps(head, optimizer, range(3, 6))
    save_checkpoint(tmp_path / "run.mc", head, optimizer)
    again = CandidateSoftmax(FEATURES, 52, tail=7, config=RANKED, **few)
    its_optimizer = RowAdam(again.parameters(), lr=0.01)
    load_checkpoint(tmp_path / "run.mc", again, its_optimizer)
    for one, moving in ((head, optimizer), (again, its_optimizer)):
        steps(one, moving, range(6, 9))
        one.add_classes(rows=random_tensor(1, FEATURES, seed=10), optimizer=moving)
        one.remove_classes([20 - 15])
        steps(one, moving, range(9, 12))
    assert torch.equal(head.weight, again.weight)
    assert torch.equal(head.topk(X, 4).classes, again.topk(X, 4).classes)


# Room to grow


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_grow_in_place_and_nobody_sees_the_room(dtype: torch.dtype) -> None:
    head = new_head(dtype=dtype)
    optimizer = RowAdam(head.parameters(), lr=0.1)
    head(X, torch.arange(6)).backward()
    optimizer.step()
    head.add_classes(1, optimizer=optimizer)
    state = optimizer.state[head.weight]
    places = [head.weight.data_ptr(), head.bias.data_ptr(), state["exp_avg"].data_ptr()]  # type: ignore[union-attr]
    weight = head.weight.detach().clone()
    for count in (1, 5, 10):
        head.add_classes(count, optimizer=optimizer)
    state = optimizer.state[head.weight]
    assert places == [head.weight.data_ptr(), head.bias.data_ptr(), state["exp_avg"].data_ptr()]  # type: ignore[union-attr]
    assert torch.equal(head.weight[:51], weight)
    assert not state["exp_avg"][51:].any()
    for tensor in (head.weight, head.bias, *state.values(), *copy.deepcopy(state).values()):
        assert tensor is not None
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
    file = io.BytesIO()
    torch.save(head.state_dict(), file)
    assert file.tell() < head.weight.nbytes + head.bias.nbytes + 4000  # type: ignore[union-attr]
    head.add_classes(50, optimizer=optimizer)  # more than there is room for
    assert torch.equal(head.weight[:51], weight)
    assert head.weight.data_ptr() != places[0]


def test_rows_in_the_same_memory_are_not_written_over() -> None:
    head = new_head()
    head.add_classes(1)
    other = CandidateSoftmax.from_linear(nn.Linear(FEATURES, 51), config=RANKED)
    other.weight = nn.Parameter(head.weight.detach())  # the same memory, with the same room behind it
    mine, others = random_tensor(1, FEATURES, seed=2), random_tensor(1, FEATURES, seed=3)
    head.add_classes(rows=mine)
    other.add_classes(rows=others)
    assert torch.equal(head.weight[51:], mine)
    assert torch.equal(other.weight[51:], others)


def test_memory_that_moved_has_no_room() -> None:
    head = new_head()
    head.add_classes(1)
    head.share_memory()
    rows = random_tensor(1, FEATURES, seed=2)
    before = head.weight.detach().clone()
    head.add_classes(rows=rows)
    assert torch.equal(head.weight, torch.cat([before, rows]))
    assert_answers_are_exact(head)


def test_a_state_that_does_not_start_at_zero_starts_there_for_new_rows() -> None:
    head = new_head()
    optimizer = RowAdagrad(head.parameters(), lr=0.1, initial_accumulator_value=0.5)
    head(X, torch.arange(6)).backward()
    optimizer.step()
    head.add_classes(2, optimizer=optimizer)
    assert (optimizer.state[head.weight]["sum"][50:] == 0.5).all()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_change_hashes_nothing_but_the_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = new_head(**SETTINGS[name]).eval()
    head.topk(X, 1)
    built = head.index.built
    monkeypatch.setattr(HeadIndex, "build", pytest.fail)
    rows = 20 * F.normalize(X[:2])
    assert head.add_classes(rows=rows) == range(50, 52)
    head.remove_classes([3])
    assert (head.topk(X[:2], 1).classes[:, 0] == torch.tensor([50, 51])).all()
    head.remove_classes([50])
    assert head.topk(X[:2], 1).classes[0, 0] != 50
    assert head.index.built is built
    if not head.index.unit_rows:
        assert built is not None
        assert built.rows.__array_interface__["data"][0] == head.weight.data_ptr()  # no second copy


def test_a_change_from_outside_is_still_noticed() -> None:
    head = new_head().eval()
    head.topk(X, 1)
    with torch.no_grad():
        head.weight.neg_()
    head.add_classes(1)
    assert_answers_are_exact(head)


def test_a_config_that_follows_the_size_is_chosen_anew_when_the_classes_have_doubled(tmp_path: Path) -> None:
    torch.manual_seed(0)
    head = CandidateSoftmax(FEATURES, 20).eval()
    head.topk(X, 1)
    built = head.index.built
    head.add_classes(19)
    assert head.index.built is built
    save_checkpoint(tmp_path / "head.mc", head)
    other = CandidateSoftmax(FEATURES, 39)
    load_checkpoint(tmp_path / "head.mc", other)
    for one in (head, other):
        one.add_classes(1)
        assert one.index.built is None


@pytest.mark.parametrize("how", ["names", "wta"])
def test_the_paper_s_head_and_names_follow(how: str) -> None:
    names = [f"class {c}" for c in range(CLASSES)]
    head = WTASoftmax(FEATURES, CLASSES, names=names if how == "names" else None)
    head.topk(X, 1)
    head.remove_classes([1])
    head.add_classes(1, names=["new"] if how == "names" else None)
    assert head.compact().tolist() == [0, *range(2, 51)]
    assert head.names == (["class 0", *names[2:], "new"] if how == "names" else None)
    assert not len(head.removed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_loop_that_keeps_its_loss_goes_on_with_other_rows(dtype: torch.dtype) -> None:
    head = new_head(dtype=dtype)
    optimizer = RowSGD(head.parameters(), lr=0.1)
    losses = []
    for step in range(6):
        losses.append(head(X.double() if dtype == torch.float64 else X, torch.tensor([1, 2, 3, 4, 5, 6])))
        optimizer.zero_grad()
        losses[-1].backward()
        before = head.weight.detach().clone()
        optimizer.step()
        assert not torch.equal(head.weight, before)
        if step == 1:
            head.add_classes(5, optimizer=optimizer)
        if step == 2:
            head.remove_classes([0, 30])
        if step == 3:
            head.compact(optimizer=optimizer)


def test_threads_that_ask_meanwhile_wait_for_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    head = new_head().eval()
    head.topk(X, 1)
    monkeypatch.setattr(HeadIndex, "build", pytest.fail)
    failures: list[BaseException] = []
    stop = threading.Event()

    def ask() -> None:
        try:
            while not stop.is_set():
                found = head.topk(X, 3).classes
                assert (found >= 0).all()
                assert not (found < 5).any()
        except BaseException as error:  # of another thread, and pytest.fail is no Exception
            failures.append(error)

    head.remove_classes(range(5))
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for seed in range(100):
        head.add_classes(rows=random_tensor(1, FEATURES, seed=seed))
        head.remove_classes([30 + seed])
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert_answers_are_exact(head)


# Any sequence


def changes() -> Any:
    """Return what may happen to a head: (what, seed of which and how many)."""
    return st.lists(st.tuples(st.sampled_from(["add", "remove", "train", "search", "compact"]), st.integers(0, 99)),
                    min_size=3, max_size=12)  # fmt: skip


@pytest.mark.parametrize("name", ["scan", "few", "cells", "cosine", "no bias"])
@settings(max_examples=12, deadline=None)
@given(sequence=changes())
def test_any_sequence_answers_as_a_fresh_head_with_the_same_rows(name: str, sequence: list[tuple[str, int]]) -> None:
    """The head with gaps, searched or trained, is the head over the rows that are left, whatever came before."""
    head = new_head(**{**SETTINGS[name], "candidates": 200})
    optimizer = RowSGD(head.parameters(), lr=0.5, momentum=0.5, row_momentum="lazy")
    for what, seed in sequence:
        generator = torch.Generator().manual_seed(seed)
        left = torch.tensor([c for c in range(head.num_classes) if c not in set(head.removed.tolist())])
        chosen = left[torch.randint(len(left), (6,), generator=generator)]
        if what == "add":
            head.add_classes(rows=random_tensor(1 + seed % 5, FEATURES, seed=seed), optimizer=optimizer)
        elif what == "remove" and len(left) > 12:
            head.remove_classes(chosen)
        elif what == "train":
            optimizer.zero_grad()
            head(random_tensor(6, FEATURES, seed=seed), chosen).backward()
            optimizer.step()
        elif what == "search":
            assert_answers_are_exact(head, random_tensor(4, FEATURES, seed=seed))
        elif what == "compact":
            assert torch.equal(head.compact(optimizer=optimizer), left)
    assert_answers_are_exact(head)

    left = torch.tensor([c for c in range(head.num_classes) if c not in set(head.removed.tolist())])
    linear = nn.Linear(FEATURES, len(left), bias=head.bias is not None)
    with torch.no_grad():
        linear.weight.copy_(head.weight[left])
        if head.bias is not None:
            linear.bias.copy_(head.bias[left])
    same = {key: value for key, value in SETTINGS[name].items() if key != "bias"}
    fresh = CandidateSoftmax.from_linear(linear, candidates=200, tail=7, **same)
    fresh.sampler.generator.set_state(head.sampler.generator.get_state())
    expected, found = fresh.eval().topk(X, 5), head.eval().topk(X, 5)
    assert torch.equal(found.classes, left[expected.classes])
    torch.testing.assert_close(found.log_probs, expected.log_probs)
    if name == "few":  # nothing is approximated: a step, its random tail included, is the same to the bit
        for one, ids in ((head, left), (fresh, torch.arange(len(left)))):
            one.train().mining = Mining(examples=6, every=1, candidates=1, remembered=0)
            one.tail_and_targets = TailAndTargets(one.num_classes)  # what it has met is no matter of its rows
            one.meter = ApproximationMeter(0)  # nor when it last measured
            moving = RowSGD(one.parameters(), lr=0.1)
            moving.zero_grad()
            one(X, ids[:6]).backward()
            moving.step()
        assert torch.equal(head.weight[left], fresh.weight)


# The index below


def test_an_index_follows_an_array_that_grows_in_place() -> None:
    room = random_tensor(60, FEATURES, seed=4).numpy()
    queries = random_tensor(8, FEATURES, seed=5).numpy()
    index = ClassIndex.build(room[:40], config=RANKED)
    assert index.lengthen(room[:50]) == range(40, 50)
    assert index.lengthen(room, bias=[1.0] * 10) == range(50, 60)
    assert index.rows is room
    expected = queries @ room.T
    expected[:, 50:] += 1
    assert (index.search(queries, 1).classes[:, 0] == expected.argmax(1)).all()
    for wrong, said in (
        (lambda: index.lengthen(room[:50]), r"rows has shape \(50, 17\); expected \(60 or more, 17\)"),
        (lambda: index.lengthen(room[:, 1:]), "rows has shape"),
        (lambda: index.lengthen(room.repeat(2, 0), bias=[1.0]), r"bias has shape \(1,\); expected \(60,\)"),
        (lambda: index.lengthen(np.concatenate([room, room[:1] * np.nan])), r"rows\[0\] has a NaN"),
        (lambda: ClassIndex.build(room[:1], names=["a"]).lengthen(room), "the index has names"),
    ):
        with pytest.raises(InputError, match=said):
            wrong()
        assert index.classes == 60
        assert index.rows is room
