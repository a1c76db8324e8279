"""A job that goes on under another kind of rule: what the old one remembered would be misread, and begins anew."""

import numpy as np
import pytest
from downpour_cases import head, plus_one, shards_of

from manyclass.distributed.messages import Exchange, Sender
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers.trunk_server import TrunkServer

MOMENTUM, ADAGRAD = ServerRule(lr=0.1, momentum=0.9), ServerRule(kind="adagrad", lr=0.1)


def trunk(rule: ServerRule) -> TrunkServer:
    return TrunkServer({"w": np.zeros(3, np.float32)}, rule=rule)


def pushed(server: TrunkServer, sequence: int) -> np.ndarray:
    gradient = {"w": np.array([-1, 2, 3], np.float32)}
    return server.exchange(Exchange(Sender(0, 1, sequence), 0, gradient, {}, True)).values["w"]


@pytest.mark.parametrize(("old", "new"), [(MOMENTUM, ADAGRAD), (ADAGRAD, MOMENTUM)])
def test_a_trunk_begins_its_states_anew(old: ServerRule, new: ServerRule) -> None:
    first, second = trunk(old), trunk(new)
    pushed(first, 0)
    with pytest.warns(RuntimeWarning, match=f"saved under {old.kind!r}, goes on under {new.kind!r}"):
        second.restore(*first.saved())
    assert not second.states["w"].any()  # type: ignore[union-attr]
    assert np.isfinite(pushed(second, 1)).all()
    assert second.version == 2


def test_a_trunk_keeps_states_of_the_same_kind() -> None:
    first, second = trunk(MOMENTUM), trunk(ServerRule(lr=0.01, momentum=0.9))
    pushed(first, 0)
    second.restore(*first.saved())
    np.testing.assert_array_equal(second.states["w"], first.states["w"])


def test_a_shard_begins_its_states_anew() -> None:
    (shard,) = shards_of(head(rule=ServerRule(lr=0.1, momentum=0.9, lazy=True)), 1)
    shard.push(plus_one(Sender(0, 1, 0), [2, 5]))
    rows = shard.rows.under(ADAGRAD)
    assert not rows.weight_state.any()
    assert rows.version == 1
