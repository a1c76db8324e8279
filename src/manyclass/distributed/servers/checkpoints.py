"""The folder of a job: checkpoints of shards and trunk, their logs, and the manifest; each file is whole or not there.

    job.json                            what the job is, how far it is, and how many shards it has
    starts                              how often it was started
    shard-2-of-8-000000001234.mc        rows, states and ledger of a shard after 1234 pushes; the newest two are kept
    shard-2-of-8-000000001234.log       with durability="log": the pushes since
    shard-2-of-8.lock                   held by the process that has the shard
    trunk-000000000777.mc               the trunk's server
    job.lock                            held by the process that runs the job

A shard that starts takes its newest whole checkpoint, and the logged pushes since. Where the job had another number of
shards, it takes its range of the shuffled classes from theirs.
"""

import json
import os
import re
import warnings
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple

from manyclass._atomic_file import replacement, write_all
from manyclass._section_file import read_sections, write_sections
from manyclass.distributed.placement import Placement
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.servers.file_owner import owned
from manyclass.distributed.servers.push_ledger import PushLedger
from manyclass.distributed.servers.push_log import PushLog, bring_to_disk, read_log
from manyclass.distributed.servers.shard import ParameterShard
from manyclass.distributed.servers.shard_rows import ShardRows
from manyclass.distributed.servers.trunk_server import TrunkServer
from manyclass.distributed.settings import HeadSettings
from manyclass.errors import CorruptFileError, FileError

SHARD_KIND, TRUNK_KIND = "downpour shard", "downpour trunk"
MANIFEST, MANIFEST_VERSION = "job.json", 1
KEPT = 2  # checkpoints of each server


class _Saved(NamedTuple):
    version: int
    path: Path


class JobFolder:
    """The files of one job. settings, placement: what it trains; a folder of another job is refused."""

    def __init__(self, path: str | os.PathLike[str], settings: HeadSettings, placement: Placement) -> None:
        self.path, self.settings, self.placement = Path(path), settings, placement
        self.path.mkdir(parents=True, exist_ok=True)

    # The manifest ------------------------------------------------------------------------

    def write_manifest(self, coordinator: dict[str, Any]) -> None:
        """Write how far the job is; from then on it has this number of shards, and files of others are gone."""
        content = {"format": MANIFEST_VERSION, **self._shape(), "shards": self.placement.shards,
                   "coordinator": coordinator}  # fmt: skip
        with replacement(os.path.realpath(self.path / MANIFEST)) as file:
            write_all(file, json.dumps(content, indent=1).encode() + b"\n")
        self._remove_other_shards()

    def _remove_other_shards(self) -> None:
        """Remove files of other numbers of shards: they are older than the manifest."""
        for path in self.path.iterdir():
            match = re.fullmatch(r"shard-\d+-of-(\d+)(-\d+\.(mc|log)|\.lock)", path.name)
            if match and int(match[1]) != self.placement.shards:
                path.unlink(missing_ok=True)

    def manifest(self) -> dict[str, Any] | None:
        """Return the manifest, or None in a new folder. One of another job is a FileError."""
        path = self.path / MANIFEST
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CorruptFileError(f"{path} is no JSON ({error}); restore it, or start in a new folder") from error
        if not isinstance(content, dict) or content.get("format") != MANIFEST_VERSION:
            raise FileError(f"{path} is no manifest of format {MANIFEST_VERSION}; start in a new folder")
        for name, value in self._shape().items():
            if content.get(name) != value:
                raise FileError(
                    f"{path} is of a job with {name}={content.get(name)}, this one has {name}={value}; use another "
                    "folder, or the same job"
                )
        return content

    def _shape(self) -> dict[str, Any]:
        return {
            "classes": self.settings.classes,
            "features": self.settings.features,
            "bias": self.settings.bias,
            "placement_seed": self.placement.seed,
        }

    def new_epoch(self) -> int:
        """Return how often the job was started, this time included; on the disk before anybody joins.

        A manifest may be older than the last incarnation that pushed: without this, one could be given out again.
        """
        path = self.path / "starts"
        try:
            epoch = int(path.read_text()) + 1
        except FileNotFoundError:
            epoch = 1
        except ValueError as error:
            raise CorruptFileError(
                f"{path} is no number; write one that is larger than all before, say 1000"
            ) from error
        with replacement(os.path.realpath(path)) as file:
            write_all(file, f"{epoch}\n".encode())
        manifest = self.manifest()
        if manifest is not None and manifest["shards"] == self.placement.shards:
            self._remove_other_shards()  # of a run with others that never got as far as its manifest
        return epoch

    # Shards --------------------------------------------------------------------------------

    def own_job(self) -> IO[bytes]:
        """Return what stands for the job being run by this process alone; close it at the end."""
        return owned(self.path / "job.lock", "this job", patience=5.0)

    def own_shard(self, number: int) -> IO[bytes]:
        """Return what stands for a shard's files being this process's alone, once nobody else has them; keep it."""
        return self._owned(number, self.placement)

    def _owned(self, number: int, placement: Placement) -> IO[bytes]:
        return owned(self.path / f"shard-{number}-of-{placement.shards}.lock", f"shard {number} of {placement.shards}")

    def open_shard(self, number: int, *, durability: str = "checkpoint", **parts: Any) -> ParameterShard:
        """Return a shard as it was last known: from its newest whole checkpoint, or new. parts: as ParameterShard."""
        rows, rule = self.load_rows(number), self.settings.rule
        other_rule = rows is not None and rows.rule != rule
        if rows is not None and not rule.continues(rows.rule):
            warnings.warn(f"shard {number} was trained under {rows.rule.kind}, this job has {rule.kind}: the states of "
                          "its rows begin anew", RuntimeWarning, stacklevel=2)  # fmt: skip
        shard = ParameterShard(self.settings, self.placement, number, rows=rows and rows.under(rule), **parts)
        if durability == "log":
            # A log follows a checkpoint under the same rule: first rows, or those of other shards, or of another rule.
            if other_rule or not self._saved(f"shard-{number}-of-{self.placement.shards}", "mc"):
                self._write_rows(number, shard.rows)
            shard.log = self._new_log(number, shard.rows.version)
        return shard

    def save_shard(self, shard: ParameterShard) -> Path:
        """Write a checkpoint of a shard while it goes on, and remove those that are too old."""
        number = shard.number
        logged = shard.log is not None
        rows = shard.snapshot((lambda version: self._new_log(number, version)) if logged else None)
        path = self._write_rows(number, rows)
        self._tidy(f"shard-{number}-of-{self.placement.shards}", path)
        return path

    def load_rows(self, number: int) -> ShardRows | None:
        """Return a shard's rows from its newest whole checkpoint and what was logged since; None: there is none.

        They are under the rule that they were saved and logged under.
        """
        found = self._newest(number, self.placement)
        if found is not None:
            return found
        manifest = self.manifest()
        if manifest is None or manifest["shards"] == self.placement.shards:
            return None
        return self._cut(number, Placement(self.placement.classes, manifest["shards"], self.placement.seed))

    def _newest(self, number: int, placement: Placement) -> ShardRows | None:
        stem = f"shard-{number}-of-{placement.shards}"
        for saved in self._saved(stem, "mc"):
            try:
                rows = self._read_rows(saved.path, number, placement)
            except CorruptFileError as damage:
                warnings.warn(f"{damage}; an older checkpoint is used", RuntimeWarning, stacklevel=2)
                continue
            self._replay(rows, [log for log in reversed(self._saved(stem, "log")) if log.version >= saved.version])
            return rows
        return None

    def _replay(self, rows: ShardRows, logs: list[_Saved]) -> None:
        """Bring rows to what was logged since, oldest log first. Each ends where the next one begins.

        What is behind that was written by a process that had lost the shard to another one, and is left out. All that
        is taken over is on the disk before anybody builds upon it.
        """
        for log, following in zip_longest(logs, logs[1:]):
            if log.version != rows.version:
                raise CorruptFileError(
                    f"{log.path} begins at push {log.version}, what is before it ends at {rows.version}; a log in "
                    "between is missing or damaged: restore it, or remove this one and lose its pushes"
                )
            bring_to_disk(log.path)
            for push in read_log(log.path):
                if following is not None and rows.version == following.version:
                    warnings.warn(f"{log.path} has more than {following.path.name} begins with: what a process wrote "
                                  "after another had its shard is left out", RuntimeWarning, stacklevel=2)  # fmt: skip
                    break
                rows.move(*push)

    def _read_rows(self, path: Path, number: int, placement: Placement) -> ShardRows:
        meta, arrays = read_sections(path, SHARD_KIND)
        expected = (placement.size(number), self.settings.features)
        if arrays["weight"].shape != expected or ("bias" in arrays) != self.settings.bias:
            raise FileError(
                f"{path} holds rows {arrays['weight'].shape}{'' if 'bias' in arrays else ' without bias'}, the job has "
                f"{expected}{'' if self.settings.bias else ' without bias'}; use another folder, or the same job"
            )
        rule = ServerRule.from_json(meta["rule"])
        ledger = PushLedger.from_json(meta["ledger"])
        parts: dict[str, Any] = {"bias": None, **arrays}
        return ShardRows(rule, meta["first"], version=meta["version"], ledger=ledger, **parts)

    def _write_rows(self, number: int, rows: ShardRows) -> Path:
        path = self.path / f"shard-{number}-of-{self.placement.shards}-{rows.version:012d}.mc"
        meta = {"first": rows.first, "version": rows.version, "ledger": rows.ledger.to_json(),
                "rule": rows.rule.to_json(), "settings": self.settings.to_json()}  # fmt: skip
        write_sections(path, SHARD_KIND, meta, dict(rows.arrays()))
        return path

    def _new_log(self, number: int, version: int) -> PushLog:
        return PushLog(self.path / f"shard-{number}-of-{self.placement.shards}-{version:012d}.log")

    def _cut(self, number: int, old: Placement) -> ShardRows:
        """Return the range of a shard from the shards of another number of them."""
        first, end = int(self.placement.starts[number]), int(self.placement.starts[number + 1])
        parts: list[ShardRows] = []
        for shard in range(old.shards):
            start, stop = int(old.starts[shard]), int(old.starts[shard + 1])
            if start < end and stop > first:
                with self._owned(shard, old):  # whoever still has it would write what nobody reads any more
                    rows = self._newest(shard, old)
                if rows is None:
                    raise FileError(f"{self.path} has no checkpoint of shard {shard} of {old.shards}; restore it")
                parts.append(rows.part(max(first, start), min(end, stop)))
        return ShardRows.joined(parts)

    # The trunk -----------------------------------------------------------------------------

    def save_trunk(self, server: TrunkServer) -> Path:
        """Write a checkpoint of the trunk's server."""
        meta, arrays = server.saved()
        path = self.path / f"trunk-{meta['version']:012d}.mc"
        write_sections(path, TRUNK_KIND, meta, arrays)
        self._tidy("trunk", path)
        return path

    def load_trunk(self, server: TrunkServer) -> bool:
        """Bring a trunk's server to its newest whole checkpoint; returns whether there was one."""
        for saved in self._saved("trunk", "mc"):
            try:
                server.restore(*read_sections(saved.path, TRUNK_KIND))
            except CorruptFileError as damage:
                warnings.warn(f"{damage}; an older checkpoint is used", RuntimeWarning, stacklevel=2)
                continue
            return True
        return False

    # Files ---------------------------------------------------------------------------------

    def _saved(self, stem: str, kind: str) -> list[_Saved]:
        """Return the files of a server, newest first."""
        pattern = re.compile(rf"{re.escape(stem)}-(\d{{12,}})\.{kind}")
        found = [(pattern.fullmatch(entry.name), entry) for entry in self.path.iterdir()]
        return sorted((_Saved(int(match[1]), path) for match, path in found if match), reverse=True)

    def _tidy(self, stem: str, written: Path) -> None:
        """Remove what is older than the newest two; never what was just written, though others have higher numbers."""
        kept = self._saved(stem, "mc")[:KEPT]
        for old in self._saved(stem, "mc")[KEPT:] + self._saved(stem, "log"):
            if old.version < kept[-1].version and old.path.stem != written.stem:
                old.path.unlink(missing_ok=True)
