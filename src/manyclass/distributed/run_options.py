"""How a job is run: on which engine, by how many, with which transport, and what is kept of it."""

from dataclasses import dataclass, field
from pathlib import Path

from manyclass._validation import check_count
from manyclass.distributed.servers.worker_memory import KEPT
from manyclass.distributed.staleness import Staleness
from manyclass.errors import ConfigError

TRANSPORTS = ("activations", "rows")
DURABILITIES = ("checkpoint", "log")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """All that is not the job itself.

    shards, workers: how many. transport: "activations" or "rows". staleness: unbounded, bounded or scaled.
    pipeline: steps that a worker has under way; None: what suits the engine. trunk_every: steps between two exchanges
        with the trunk's server.
    folder: where checkpoints and the log go; a job that is there already is continued. None: nothing is kept.
    durability: "checkpoint": a shard that dies loses at most what it applied since its last checkpoint; "log": nothing
        that it acknowledged. checkpoint_every: seconds.
    lease: seconds without a word after which a worker of a cluster is given up; its process says every third of it that
        it lives, however long a step takes. deadline: seconds that a call is tried for: longer than it takes to notice
        that a machine is gone, and to read a shard's checkpoint on another.
    evaluate_every: batches between two evaluations; None: only at the end.
    address: of a Ray cluster; None, or "local": one that is started on this machine.
    threads: of a worker. shard_threads: of a shard, which takes as many CPUs of a cluster.
    """

    shards: int = 2
    workers: int = 2
    transport: str = "activations"
    staleness: Staleness = field(default_factory=Staleness)
    pipeline: int | None = None
    trunk_every: int = 1
    folder: Path | None = None
    durability: str = "checkpoint"
    checkpoint_every: float = 60.0
    lease: float = 30.0
    deadline: float = 300.0
    evaluate_every: int | None = None
    address: str | None = None
    threads: int = 1
    shard_threads: int = 1

    @property
    def cpus(self) -> int:
        """The CPUs of a cluster that shards and workers take."""
        return self.shards * self.shard_threads + self.workers

    def __post_init__(self) -> None:
        for name in ("shards", "workers", "trunk_every", "threads", "shard_threads"):
            check_count(name, getattr(self, name))
        for name in ("pipeline", "evaluate_every"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if (self.pipeline or 1) > KEPT:
            raise ConfigError(
                f"pipeline={self.pipeline}, but shards keep {KEPT} steps of a worker; give at most {KEPT}"
            )
        if self.address == "local":  # Ray's name for what None is here: the same cluster, as closed to others
            object.__setattr__(self, "address", None)
        if self.folder is not None and Path(self.folder).exists() and not Path(self.folder).is_dir():
            raise ConfigError(f"folder={str(self.folder)!r} is a file; give a directory, or a name that is not there")
        if self.transport not in TRANSPORTS:
            raise ConfigError(f"transport={self.transport!r} is unknown; choose from {', '.join(TRANSPORTS)}")
        if self.durability not in DURABILITIES:
            raise ConfigError(f"durability={self.durability!r} is unknown; choose from {', '.join(DURABILITIES)}")
        if self.durability == "log" and self.folder is None:
            raise ConfigError("durability='log' without a folder; give one to write the log to")
        for name in ("checkpoint_every", "lease", "deadline"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} is not a positive number of seconds; give one")
