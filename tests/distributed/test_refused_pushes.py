"""Pushes that would spoil a server are refused before anything is written or moved; the worker may try again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from downpour_cases import calling, exhaustive, head, plus_one, shards_of, transport

from manyclass.distributed.messages import Exchange, FencedError, Outcome, Sender
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers.checkpoints import JobFolder
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.steps.transport import carried_out
from manyclass.errors import DivergedError, InputError

FIRST = Sender(0, 1, 0)
GOOD = plus_one(FIRST, [2, 5])
FAULTS = {
    "NaN": ({"gradients": np.full((2, 8), np.nan, np.float32)}, DivergedError, "gradients of rows .* not finite"),
    "infinite bias": ({"bias_gradients": np.array([1, np.inf], np.float32)}, DivergedError, "of biases .* not finite"),
    "wide": ({"gradients": np.ones((2, 9), np.float32)}, InputError, r"are of shape \(2, 9\), .* \(2, 8\)"),
    "flat": ({"gradients": np.ones(16, np.float32)}, InputError, r"are of shape \(16,\)"),
    "too many": ({"gradients": np.ones((3, 8), np.float32)}, InputError, r"are of shape \(3, 8\)"),
    "biases": ({"bias_gradients": np.ones(3, np.float32)}, InputError, r"of biases .* are of shape \(3,\)"),
    "high row": ({"rows": np.array([2, 50], np.uint32)}, InputError, "not ascending numbers from 0 to 49"),
    "negative row": ({"rows": np.array([-1, 2])}, InputError, "not ascending numbers from 0 to 49"),
    "twice": ({"rows": np.array([2, 2], np.uint32)}, InputError, "not ascending numbers"),
}


@pytest.mark.parametrize(("change", "error", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_a_push_that_does_not_fit_leaves_rows_and_log_as_they_were(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], says: str
) -> None:
    settings = head(rule=ServerRule(lr=1.0))
    job = JobFolder(tmp_path, settings, Placement(50, 1, seed=settings.seed))
    shard = job.open_shard(0, durability="log")
    before = shard.rows.copy()
    with pytest.raises(error, match=says):
        shard.push(replace(GOOD, **change))
    for name, part in before.arrays().items():
        np.testing.assert_array_equal(getattr(shard.rows, name), part)
    assert shard.rows.version == 0
    assert shard.push(GOOD).outcome == Outcome.APPLIED  # the name of the push is still free
    np.testing.assert_array_equal(job.open_shard(0).rows.weight, shard.rows.weight)  # and the log can be read


def test_a_worker_that_was_given_up_hears_that_first() -> None:
    (shard,) = shards_of(head(), 1)
    shard.fence(0, 2)
    with pytest.raises(FencedError):
        shard.push(replace(GOOD, gradients=np.full((2, 8), np.nan, np.float32)))


@pytest.mark.parametrize(
    ("shared", "change", "error"),
    [
        (True, {"log_normalizers": np.full(4, np.nan, np.float32)}, DivergedError),
        (True, {"log_normalizers": np.zeros(3, np.float32)}, InputError),
        (True, {"scale": np.nan}, DivergedError),
        (False, {"gradients": np.full((4, 50), np.nan, np.float32)}, DivergedError),
        (False, {"gradients": np.ones((3, 50), np.float32)}, InputError),
        (False, {"gradients": np.ones((4, 60), np.float32)}, InputError),
        (False, {"positive_gradients": np.ones(9, np.float32)}, InputError),
    ],
)
def test_a_step_that_does_not_fit_moves_nothing_and_may_come_again(
    shared: bool, change: dict[str, Any], error: type[Exception]
) -> None:
    shards = shards_of(exhaustive(shared), 1)
    before = shards[0].rows.weight.copy()

    def wrong_then_right(call):  # type: ignore[no-untyped-def]
        if call.method.startswith("apply"):
            with pytest.raises(error):
                calling(shards)(call._replace(message=replace(call.message, **change)))
            np.testing.assert_array_equal(shards[0].rows.weight, before)
        return calling(shards)(call)

    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    outcome = carried_out(transport("activations", shards).step(x, Targets([1, 2, 3, 4], 50)), wrong_then_right)
    assert (outcome.forgotten, outcome.repeated, shards[0].rows.version) == (0, 0, 1)


@pytest.mark.parametrize(
    ("gradients", "buffers", "error", "says"),
    [
        ({"w": np.array([1, np.nan, 1], np.float32)}, {}, DivergedError, "gradient of 'w'"),
        ({"w": np.ones(4, np.float32)}, {}, InputError, "fits no parameter"),
        ({"w": np.ones(3, np.float32)}, {"mean": np.array([np.nan])}, DivergedError, "buffer 'mean'"),
        ({"w": np.ones(3, np.float32)}, {"mean": np.zeros(2)}, InputError, "fits no buffer"),
        ({"w": np.ones(3, np.float32)}, {"other": np.zeros(1)}, InputError, "fits no buffer"),
    ],
)
def test_a_trunk_gradient_that_does_not_fit_changes_nothing(
    gradients: dict[str, Any], buffers: dict[str, Any], error: type[Exception], says: str
) -> None:
    server = TrunkServer({"w": np.zeros(3, np.float32)}, {"mean": np.zeros(1)})
    with pytest.raises(error, match=says):
        server.exchange(Exchange(FIRST, 0, gradients, buffers, True))
    assert (server.version, server.values["w"].tolist(), server.buffers["mean"].tolist()) == (0, [0, 0, 0], [0])
    assert server.exchange(Exchange(FIRST, 0, {"w": np.ones(3, np.float32)}, {}, True)).version == 1


def test_masks_among_the_buffers_stay_what_they_are() -> None:
    mask, causal = np.array([True, False]), np.array([0, -np.inf], np.float32)
    server = TrunkServer({"w": np.zeros(1, np.float32)}, {"mask": mask, "causal": causal}, buffer_share=0.5)
    asked = Exchange(FIRST, 0, {"w": np.ones(1, np.float32)}, {"mask": mask.copy(), "causal": causal.copy()}, True)
    found = server.exchange(asked)
    np.testing.assert_array_equal(found.buffers["mask"], mask)
    np.testing.assert_array_equal(found.buffers["causal"], causal)
