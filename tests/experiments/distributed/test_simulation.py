"""Simulated time: the same bits for a seed, the arithmetic of queues and networks, and the stages in miniature."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from experiments.distributed.hollow_servers import HollowShard
from experiments.distributed.simulated_cluster import Machines
from experiments.distributed.simulated_jobs import Outcome, Setting, quantile, simulated, simulated_hollow
from experiments.distributed.simulated_time import Card, Events, Link, Servers, transfer
from experiments.distributed.simulation import Plan, simulated_job, simulation_stages
from experiments.distributed.simulation_figures import largest_error, simulation_documents, simulation_section
from experiments.distributed.step_costs import Costs
from experiments.frame.page import Page, Table, write_page
from experiments.frame.records import Records
from experiments.frame.stages import Options, Run
from manyclass.distributed.placement import Placement
from manyclass.distributed.positives import Targets
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.steps.activations_transport import ActivationsTransport
from manyclass.distributed.steps.transport import Identity, carried_out

COSTS = Costs(forward=0.010, backward=0.020, exchange=0.001, score=0.002, score_class=0.0, apply=0.003, apply_class=0.0,
              look_up=0.0, look_up_row=0.0, features=16, loop=0.004, merge=0.0005, take=0.0015)  # fmt: skip
HERE = Machines(cores=2, sequential=True)
HEAD = HeadSettings(classes=1_000_000, features=16, mined_every=1)
BATCH, STEPS, TRUNK = 8, 24, 100


def hollow(setting: Setting, costs: Costs = COSTS, head: HeadSettings = HEAD, batch: int = BATCH) -> Outcome:
    return simulated_hollow(head, batch, TRUNK, STEPS, setting, costs)


def cluster(workers: int, shards: int, seed: int = 0, noise: float = 0.0, **link: float) -> Setting:
    return Setting(workers, shards, Machines(link=Link(**link)), 2, seed, noise)


# Time


def test_work_waits_for_a_free_server() -> None:
    two = Servers(2)
    assert [two.take(0.0, 3.0), two.take(0.0, 1.0), two.take(0.5, 1.0), two.take(5.0, 1.0)] == [
        (0.0, 3.0), (0.0, 1.0), (1.0, 2.0), (5.0, 6.0),
    ]  # fmt: skip
    assert two.busy == 6.0


def test_work_that_needs_two_things_waits_for_both() -> None:
    cores, turn = Servers(2), Servers(1)
    turn.take(0.0, 4.0)
    assert cores.take(1.0, 2.0, turn) == (4.0, 6.0)
    assert turn.take(0.0, 1.0) == (6.0, 7.0)
    assert cores.take(0.0, 1.0) == (0.0, 1.0)  # the other core was free all the while


def test_events_come_in_order_of_time_and_then_of_asking() -> None:
    events, seen = Events(0), list[tuple[str, float]]()
    for name, time in (("late", 2.0), ("first", 1.0), ("second", 1.0)):
        events.at(time, lambda name=name: seen.append((name, events.now)))
    events.run(lambda: False)
    assert seen == [("first", 1.0), ("second", 1.0), ("late", 2.0)]


def test_bytes_take_both_cards_for_as_long_as_they_take() -> None:
    events, seen, cards = Events(0), list[float](), [Card(), Card(), Card()]
    link = Link(bandwidth=100.0, latency=1.0)
    for source in cards[:2]:  # two senders, one receiver
        transfer(events, link, source, cards[2], 200, lambda: seen.append(events.now))
    events.run(lambda: False)
    assert seen == [3.0, 5.0]
    transfer(events, None, cards[0], cards[1], 10**9, lambda: seen.append(events.now))
    events.run(lambda: False)
    assert seen[-1] == 5.0


def test_durations_stray_around_what_was_measured() -> None:
    events = Events(1, noise=0.3)
    drawn = [events.strayed(2.0) for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(2.0, rel=0.02)
    assert np.std(np.log(drawn)) == pytest.approx(0.3, rel=0.05)


# Runs


def test_one_thread_takes_the_sum_of_all_parts() -> None:
    found = hollow(Setting(1, 3, HERE, depth=1))
    step = 0.010 + 0.004 + 3 * 0.002 + 0.0005 + 3 * 0.003 + 0.020 + 0.001 + 0.0015
    assert found.examples_per_second == pytest.approx(BATCH / step)
    assert (found.staleness, found.late) == (0, 0)


def test_threads_share_the_cores_of_a_machine() -> None:
    one, two, four = (hollow(Setting(workers, 3, HERE, depth=1)).examples_per_second for workers in (1, 2, 4))
    assert two == pytest.approx(2 * one, rel=0.05)
    assert four == pytest.approx(2 * one, rel=0.05)
    slowed = hollow(Setting(2, 3, replace(HERE, slowdown=1.5), depth=1)).examples_per_second
    assert slowed == pytest.approx(two / 1.5, rel=0.01)


def test_workers_add_up_until_the_shards_are_busy() -> None:
    speeds = {workers: hollow(cluster(workers, 2)).examples_per_second for workers in (1, 4, 32)}
    assert speeds[4] == pytest.approx(4 * speeds[1], rel=0.25)
    most = BATCH / (COSTS.score + COSTS.apply)  # every step takes this of each shard
    assert 0.7 * most < speeds[32] <= most * 1.02
    many = hollow(cluster(32, 2))
    assert many.busiest_shard > 0.9
    assert many.staleness > hollow(cluster(4, 2)).staleness > 0


def test_a_slow_network_is_the_limit_where_it_is() -> None:
    free = replace(COSTS, forward=0.0, backward=0.0, exchange=0.0, score=0.0, apply=0.0, loop=0.0, merge=0.0, take=0.0)
    found = simulated_hollow(HEAD, 256, TRUNK, STEPS, cluster(1, 1, bandwidth=1e6, latency=0.0), free)
    in_turn = 256 / (found.bytes_per_step / 1e6)  # one byte after the other
    assert in_turn * 0.98 < found.examples_per_second < 2 * in_turn * 1.02  # and in both directions at once


def test_the_same_seed_gives_the_same_bits() -> None:
    first, again, other = (hollow(cluster(9, 3, seed, noise=0.2)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_learning_in_simulated_time_gives_the_same_bits_and_depends_on_who_is_late() -> None:
    job = simulated_job(Plan(steps=12, task_classes=1000, tests=200))
    found = [
        simulated(job, cluster(workers, 2, seed, 0.3), COSTS) for workers, seed in ((3, 1), (3, 1), (3, 2), (1, 1))
    ]
    assert found[0] == found[1]
    assert found[0].accuracy is not None
    assert found[0] != found[2]
    assert found[0].staleness > found[3].staleness


def test_shards_without_rows_say_as_much_as_real_ones() -> None:
    head = HeadSettings(classes=500, features=16, mined_every=1, mined_candidates=4)
    placement = Placement(head.classes, 2, seed=head.seed)
    sent = []
    for shards in ([ParameterShard(head, placement, number) for number in range(2)], [HollowShard(), HollowShard()]):
        transport = ActivationsTransport(head, placement, Identity(0, 1))
        targets = Targets(np.arange(BATCH), head.classes)
        found = carried_out(
            transport.step(np.ones((BATCH, 16), np.float32), targets),
            lambda call, shards=shards: getattr(shards[call.server], call.method)(call.message),
        )
        sent.append((found.sent, found.received))
    assert sent[0] == sent[1]


def test_costs_follow_the_work() -> None:
    costs = replace(COSTS, score_class=1e-5, apply_class=2e-5, look_up=0.001, look_up_row=1e-8)
    assert costs.service("score_shared", 1000, 100, 0) == pytest.approx(0.003)
    assert costs.service("score_shared", 1000, 100, 32) == pytest.approx(0.003 + 0.001 + 32 * 1e-5)
    assert costs.service("apply_shared", 1000, 100, 0) == pytest.approx(0.005)
    large = [costs.service("score_shared", rows, 0, 1) for rows in (2_000_000, 50_000_000)]
    assert large[0] == large[1]  # where there are cells, as many classes are scanned however many there are
    drawn = costs.drawn({"score": 0.1}, 3)
    assert drawn == costs.drawn({"score": 0.1}, 3)
    assert (drawn.score != costs.score, drawn.apply) == (True, costs.apply)


def test_quantiles_of_staleness() -> None:
    assert [quantile({"0": 90, "3": 9, "7": 1}, share) for share in (0.5, 0.95, 1.0)] == [0, 3, 7]
    assert quantile({}, 0.5) == 0


# Stages and page


def test_the_stages_run_in_miniature_and_the_page_tells(tmp_path: Path) -> None:
    plan = Plan(
        steps=12, repeats=3, engines=("threads",), real_runs=1, real_workers=(1, 2),
        workers=(1, 3), learning_shards=(2,), shards=(1, 2),
        classes=(1_000_000,), scale_steps=4, draws=2, task_classes=1000, tests=200, look_up_rows=(3_000, 9_000),
    )  # fmt: skip
    records = Records(tmp_path / "records.jsonl")
    assert "Not measured yet" in simulation_section(records, tmp_path / "figures").text
    assert "Not measured yet" in simulation_documents(records)["distributed_prediction"]
    run = Run(tmp_path, Options(quick=True), records, Console(quiet=True))
    for stage in simulation_stages(run.options, plan):
        stage.run(run)
    written = len(records.all())
    for stage in simulation_stages(run.options, plan):  # nothing is done twice
        stage.run(run)
    assert len(records.all()) == written == 1 + 2 * 2 + 3 * 2 * 2 + 4 * 2
    section = simulation_section(records, tmp_path / "figures")
    assert "prediction" in section.title
    tables = [part for part in section.parts if isinstance(part, Table)]
    assert [len(table.rows) for table in tables] == [2, 2]
    assert largest_error(records) > 0
    assert "Predicted, with 3 workers" in simulation_documents(records)["distributed_prediction"]
    assert write_page(Page("t", "l", [], [section]), tmp_path).exists()


def test_error_bars_hold_what_was_seen(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    shown: dict[str, Any] = {"staleness": 1.0, "accuracy": 0.5, "late": 0.0}
    for kind, speed in (("real", 100.0), ("simulated", 80.0)):
        records.write(
            stage="simulation_validation", kind=kind, engine="ray", workers=2, run=0, examples_per_second=speed, **shown
        )
    assert largest_error(records) == pytest.approx(0.2)
    assert largest_error(records, "accuracy") == 0
