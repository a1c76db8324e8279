"""Workers learn: one or several, steps under way at the same time, a trunk that is exchanged now and then."""

import numpy as np
import pytest
from downpour_cases import LinearReplica, calling, head, shards_of, transport

from manyclass.distributed.messages import Exchange, Sender
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.servers.worker_memory import KEPT
from manyclass.distributed.staleness import Staleness
from manyclass.distributed.steps.transport import best_classes, carried_out
from manyclass.distributed.workers.worker import Pipeline, StepReport, Worker
from manyclass.errors import ConfigError

RULES = [ServerRule(lr=0.3, momentum=0.5), ServerRule(kind="adagrad", lr=0.3)]


def accuracy(shards: list[ParameterShard], trunk: TrunkServer, replica: LinearReplica) -> float:
    input, labels = replica.examples(10_000, 300)
    x = input @ trunk.values["matrix"]
    ids, _ = carried_out(best_classes(shards[0].placement, x, 1, exact=True), calling(shards, trunk))
    return float((ids[:, 0] == labels).mean())


def made(rule: ServerRule, kind: str, workers: int, depth: int, trunk_every: int = 1, **policies: Staleness):  # type: ignore[no-untyped-def]
    settings = head(classes=60, features=16, tail=20, mined_examples=4, rule=rule)
    shards = shards_of(settings, 2, **policies)
    replicas = [LinearReplica(60, 12, 16) for _ in range(workers)]
    trunk = TrunkServer(replicas[0].first, rule=ServerRule(lr=0.05))
    pipelines = []
    for number, replica in enumerate(replicas):
        way = transport(kind, shards, number)
        worker = Worker(way.identity, replica, way, settings, trunk_every=trunk_every, rate=0.05)  # type: ignore[attr-defined]
        carried_out(worker.prepare(), calling(shards, trunk))
        pipelines.append(Pipeline(worker, depth))
    return shards, trunk, replicas[0], pipelines


def run(shards, trunk, pipelines: list[Pipeline], steps: int) -> list[StepReport]:  # type: ignore[no-untyped-def]
    """Run pipelines side by side: each answer comes after everybody else has taken a turn."""
    call, number, reports = calling(shards, trunk), 0, []
    waiting = []
    while number < steps or waiting:
        for pipeline in pipelines:
            if pipeline.room and number < steps:
                waiting.append((pipeline, pipeline.begin(number)))
                number += 1
        pipeline, wave = waiting.pop(0)
        found = pipeline.resume(wave.step, [call(part) for part in wave.calls])
        if isinstance(found, StepReport):
            reports.append(found)
        else:
            waiting.append((pipeline, found))
    assert all(pipeline.idle for pipeline in pipelines)
    return reports


@pytest.mark.parametrize("kind", ["activations", "rows"])
@pytest.mark.parametrize("rule", RULES, ids=["sgd", "adagrad"])
@pytest.mark.parametrize(("workers", "depth"), [(1, 1), (3, 2)])
def test_they_learn(kind: str, rule: ServerRule, workers: int, depth: int) -> None:
    shards, trunk, replica, pipelines = made(rule, kind, workers, depth)
    before = accuracy(shards, trunk, replica)
    reports = run(shards, trunk, pipelines, 240)
    assert sorted(report.number for report in reports) == list(range(240))
    assert accuracy(shards, trunk, replica) > 0.9 > 0.2 > before
    late = [staleness for report in reports for staleness in report.outcome.staleness]
    assert max(late) == 0 if workers * depth == 1 else 0 < max(late) < 3 * workers * depth
    assert trunk.version == 240


def test_a_trunk_that_is_exchanged_now_and_then_learns_too() -> None:
    shards, trunk, replica, pipelines = made(RULES[0], "activations", 2, 1, trunk_every=5)
    run(shards, trunk, pipelines, 240)
    assert trunk.version == 48
    assert accuracy(shards, trunk, replica) > 0.9


def test_scaled_steps_learn_more_slowly() -> None:
    rows = []
    for policy in (Staleness(), Staleness(free=0)):
        shards, trunk, _, pipelines = made(RULES[0], "rows", 4, 2, staleness=policy)
        first = shards[0].rows.weight.copy()
        run(shards, trunk, pipelines, 30)
        rows.append(np.abs(shards[0].rows.weight - first).sum())
    assert rows[1] < 0.6 * rows[0]


def test_a_trunk_gradient_counts_once_and_must_fit() -> None:
    server = TrunkServer({"w": np.zeros(3, np.float32)}, {"seen": np.array(2), "mean": np.zeros(1)}, rule=RULES[0],
                         buffer_share=0.5)  # fmt: skip
    buffers = {"seen": np.array(5), "mean": np.ones(1)}
    asked = Exchange(Sender(0, 1, 0), 0, {"w": np.ones(3, np.float32)}, buffers, True)
    first, again = server.exchange(asked), server.exchange(asked)
    np.testing.assert_array_equal(first.values["w"], again.values["w"])
    assert (first.version, again.version) == (1, 1)
    assert (int(server.buffers["seen"]), float(server.buffers["mean"][0])) == (5, 0.5)
    wrong = Exchange(Sender(0, 1, 1), 1, {"w": np.ones(4, np.float32)}, {}, False)
    with pytest.raises(ValueError, match="fits no parameter of the trunk"):
        server.exchange(wrong)
    assert server.version == 1


def test_a_trunk_that_went_back_to_its_checkpoint_is_followed() -> None:
    shards, trunk, replica, pipelines = made(RULES[0], "activations", 1, 1)
    kept = trunk.saved()
    run(shards, trunk, pipelines, 5)
    trunk.restore(*kept)  # it died, and has lost five updates
    loads = replica.loads
    run(shards, trunk, pipelines, 2)
    assert replica.loads == loads + 2
    np.testing.assert_array_equal(replica.values["matrix"], trunk.values["matrix"])


def test_an_answer_that_comes_after_a_later_one_is_not_taken() -> None:
    shards, trunk, replica, (pipeline,) = made(RULES[0], "activations", 1, 2)
    call = calling(shards, trunk)
    waves = [pipeline.begin(number) for number in range(2)]
    while waves[0].calls[0].method != "exchange":
        waves = [pipeline.resume(wave.step, [call(part) for part in wave.calls]) for wave in waves]  # type: ignore[misc]
    earlier, later = ([call(part) for part in wave.calls] for wave in waves)
    pipeline.resume(1, later)
    pipeline.resume(0, earlier)
    np.testing.assert_array_equal(replica.values["matrix"], trunk.values["matrix"])


def test_more_steps_under_way_than_shards_keep_are_refused() -> None:
    _, _, _, (pipeline,) = made(RULES[0], "activations", 1, KEPT)
    with pytest.raises(ConfigError, match=f"pipeline={KEPT + 1} is more than {KEPT}"):
        Pipeline(pipeline.worker, KEPT + 1)


def finished(pipeline: Pipeline, step: int, answers, call) -> StepReport:  # type: ignore[no-untyped-def]
    """Return the report of a step, given the answers to its first calls."""
    found = pipeline.resume(step, answers)
    while not isinstance(found, StepReport):
        found = pipeline.resume(step, [call(part) for part in found.calls])
    return found


def test_shards_keep_all_that_is_under_way_however_many_calls_come_late() -> None:
    shards, trunk, _, (pipeline,) = made(RULES[0], "activations", 1, KEPT)
    call, late = calling(shards, trunk), []
    for number in range(KEPT):
        wave = pipeline.begin(number)
        finished(pipeline, number, [call(part) for part in wave.calls], call)
        late += wave.calls
    waves = [pipeline.begin(number) for number in range(KEPT, 2 * KEPT)]
    answers = [[call(part) for part in wave.calls] for wave in waves]
    for part in late:  # repeated by the network, after their steps were applied
        call(part)
    reports = [finished(pipeline, wave.step, given, call) for wave, given in zip(waves, answers, strict=True)]
    assert [report.outcome.forgotten for report in reports] == [0] * KEPT
