"""Readings for Prometheus, through the exporter that Ray runs on every node."""

from typing import Any

from ray.util.metrics import Counter, Gauge, Histogram

from manyclass.distributed.workers.worker import StepReport

STALENESS = [0.5, 1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 64.5, 128.5]


class ShardMetrics:
    """What a shard exports."""

    def __init__(self, number: int) -> None:
        tags = {"shard": str(number)}
        self._pushes = Counter("manyclass_pushes", "Pushes applied", ("shard",))
        self._staleness = Histogram("manyclass_staleness", "Pushes between read and write", STALENESS, ("shard",))
        self._load = Gauge("manyclass_shard_load", "Share of the time at work", ("shard",))
        self._age = Gauge("manyclass_table_age", "Mean age of index entries, in look-ups", ("shard",))
        self._bytes = Gauge("manyclass_shard_bytes", "Bytes in and out since the start", ("shard",))
        for metric in (self._pushes, self._staleness, self._load, self._age, self._bytes):
            metric.set_default_tags(tags)

    def applied(self, staleness: int) -> None:
        """Count a push."""
        self._pushes.inc()
        self._staleness.observe(staleness)

    def seen(self, report: dict[str, Any]) -> None:
        """Export a report of the shard."""
        self._load.set(report["load"])
        self._age.set(report["table_age"])
        self._bytes.set(report["bytes_received"] + report["bytes_sent"])


class WorkerMetrics:
    """What the coordinator exports of all workers."""

    def __init__(self) -> None:
        self._examples = Counter("manyclass_examples", "Examples trained on", ("worker",))
        self._bytes = Counter("manyclass_worker_bytes", "Bytes sent and received", ("worker",))
        self._loss = Gauge("manyclass_loss", "Loss of the last step", ("worker",))

    def finished(self, worker: int, report: StepReport) -> None:
        """Count a step."""
        tags = {"worker": str(worker)}
        self._examples.inc(max(1, report.examples), tags)
        self._bytes.inc(max(1, report.outcome.sent + report.outcome.received), tags)
        self._loss.set(report.outcome.loss, tags)
