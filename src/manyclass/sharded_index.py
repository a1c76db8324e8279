"""An index in parts that answer as one: each has a share of the classes, here or, by Ray, on a machine of its own."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from manyclass._class_shares import ClassShares
from manyclass._topk import TopK
from manyclass._validation import check_count, check_excluded, check_finite, check_vectors
from manyclass.errors import ConfigError, FileError, InputError, ManyclassError, RankError
from manyclass.index import ClassIndex

__all__ = ["IndexShard", "ShardedIndex", "shard_path"]

Answer = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.float32]]


class ShardFacts(NamedTuple):
    """What a part says about itself."""

    classes: int
    features: int
    candidates: int
    logistic: bool


def shard_path(folder: str | os.PathLike[str], number: int, count: int) -> str:
    """Return where the file of a part is: number of count."""
    return os.path.join(os.fspath(folder), f"shard-{number:05d}-of-{count:05d}.mc")


class IndexShard:
    """One part: the index in a file, whose row i is class i · count + number. A Ray actor, or an object here.

    path: file that `ClassIndex.save` wrote. number, count: which part it is of how many. mmap: rows stay on disk.
    """

    def __init__(self, path: str, number: int, count: int, mmap: bool = False) -> None:
        if not os.path.exists(path):
            raise FileError(f"{path} is missing; part {number} of {count} must be where this process can read it")
        self.index = ClassIndex.load(path, mmap=mmap)
        self.number, self.count = number, count

    def facts(self) -> ShardFacts:
        """Return the sizes of this part."""
        config = self.index.config
        return ShardFacts(self.index.classes, self.index.features, config.candidates, config.output == "logistic")

    def answer(
        self, queries: npt.NDArray[np.float32], k: int, candidates: int, exclude: npt.NDArray[np.int64] | None
    ) -> Answer:
        """Return ids of all classes and logits of this part's best, (queries, k), and the log of its normaliser."""
        k = min(k, self.index.classes)
        left_out = None
        if exclude is not None:
            left_out = np.where((exclude >= 0) & (exclude % self.count == self.number), exclude // self.count, -1)
        found = self.index.search(queries, k, candidates=max(candidates, k), exclude=left_out)
        assert found.logits is not None
        there = found.classes[:, 0] >= 0
        with np.errstate(invalid="ignore"):
            log_total = np.where(there, found.logits[:, 0] - found.log_probs[:, 0], -np.inf).astype(np.float32)
        return np.where(found.classes >= 0, found.classes * self.count + self.number, -1), found.logits, log_total


class ShardedIndex:
    """Parts of an index that answer as one. Make it with `load`, or with `on_ray` where each has its own machine.

    Every part scores its share of the candidates exactly; the best of all come back, normalised over all of them.
    """

    def __init__(self, parts: Sequence[Any], call: Any) -> None:
        """parts: objects or handles; call(method, *arguments) returns what that method of every part returns."""
        self._parts, self._call = parts, call
        facts = [ShardFacts(*found) for found in call("facts")]
        self.classes, self.features = sum(part.classes for part in facts), facts[0].features
        self.candidates, self.logistic = max(part.candidates for part in facts), facts[0].logistic
        self._shares = ClassShares(self.classes, 0, len(facts))
        for number, part in enumerate(facts):
            if (part.features, part.logistic) != (self.features, self.logistic):
                raise InputError(f"part {number} has {part.features} features, part 0 {self.features}; build all alike")
            if part.classes != self._shares.rows_of(number):
                raise InputError(
                    f"part {number} of {len(facts)} has {part.classes} classes where {self._shares.rows_of(number)} of "
                    f"{self.classes} are its share; name all parts once, in order"
                )

    @classmethod
    def load(cls, paths: Sequence[str | os.PathLike[str]], *, mmap: bool = False) -> Self:
        """Return the index whose parts are in these files, all in this process.

        paths: one file per part, in order: row i of part s is class i · parts + s. mmap: rows stay on disk.
        """
        names = _checked_paths(paths)
        parts = [IndexShard(path, number, len(names), mmap) for number, path in enumerate(names)]
        return cls(parts, lambda method, *arguments: [getattr(part, method)(*arguments) for part in parts])

    @classmethod
    def on_ray(
        cls,
        paths: Sequence[str | os.PathLike[str]],
        *,
        mmap: bool = False,
        timeout: float = 60.0,
        options: Sequence[dict[str, Any]] | None = None,
    ) -> Self:
        """Return the index whose parts are Ray actors: spread over machines, restarted where one is lost.

        paths: as for `load`, as the machine of each part sees them. timeout: seconds for which an answer is waited.
        options: of each actor, one per part = None, for instance {"resources": {"machine_3": 1}} to say where its file
            is; else they are spread. Call ray.init first.
        """
        names = _checked_paths(paths)
        ray = _initialised_ray()
        common = {"num_cpus": 1, "scheduling_strategy": "SPREAD", "max_restarts": -1, "max_task_retries": 2}
        each = [{}] * len(names) if options is None else list(options)
        if len(each) != len(names):
            raise InputError(f"options are {len(each)} for {len(names)} parts; give one for each")
        make = ray.remote(IndexShard)
        parts = [
            make.options(**{**common, **given}).remote(path, number, len(names), mmap)
            for number, (path, given) in enumerate(zip(names, each, strict=True))
        ]

        def call(method: str, *arguments: Any) -> list[Any]:
            sent = [ray.put(value) if isinstance(value, np.ndarray) else value for value in arguments]
            return _answers(ray, [getattr(part, method).remote(*sent) for part in parts], timeout)

        return cls(parts, call)

    def search(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        exclude: npt.ArrayLike | None = None,
    ) -> TopK[npt.NDArray[Any]]:
        """Return the k best classes of each query; arguments and answer as for `ClassIndex.search`.

        candidates: of all parts together; each looks up its share and some more.
        """
        k, wanted = (
            check_count("k", k),
            self.candidates if candidates is None else check_count("candidates", candidates),
        )
        wanted = min(wanted, self.classes)
        if k > wanted:
            raise InputError(f"k={k} is more than candidates={wanted}; raise candidates")
        vectors, single = check_vectors("queries", queries, self.features)
        check_finite("queries", vectors)
        left_out = None
        if exclude is not None:
            left_out = check_excluded("exclude", exclude, self.classes, len(vectors), single)
        each = self._shares.candidates_each(wanted)
        classes, logits, log_totals = zip(*self._call("answer", vectors, k, each, left_out), strict=True)
        best = _merged(np.concatenate(classes, 1), np.concatenate(logits, 1), np.stack(log_totals), k, self.logistic)
        if not single:
            return best
        assert best.logits is not None
        return TopK(classes=best.classes[0], log_probs=best.log_probs[0], logits=best.logits[0])

    def __repr__(self) -> str:
        return f"ShardedIndex({self.classes:,} classes × {self.features} features in {len(self._parts)} parts)"


def _checked_paths(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(paths, str | os.PathLike) or not len(paths):
        raise InputError(f"paths={paths!r:.80} is not a list of files; give one per part, in order")
    return [os.fspath(path) for path in paths]


def _initialised_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("Ray is not installed; pip install ray, or use ShardedIndex.load") from None
    if not ray.is_initialized():
        raise ConfigError("Ray is not running here; call ray.init(address=...) first")
    return ray


def _answers(ray: Any, pending: list[Any], timeout: float) -> list[Any]:
    """Return the answers of all parts, or say which one has none."""
    ready, _ = ray.wait(pending, num_returns=len(pending), timeout=timeout)
    found = []
    for number, answer in enumerate(pending):
        if answer not in ready:
            raise RankError(f"part {number} of {len(pending)} gave no answer within {timeout:g} s; is its machine up?")
        try:
            found.append(ray.get(answer))
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, ManyclassError) else error
            raise RankError(f"part {number} of {len(pending)} failed: {str(cause).strip().splitlines()[-1]}") from None
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()
            shown = next((line for line in reason if "manyclass.errors" in line), reason[0])
            raise RankError(f"part {number} of {len(pending)} is lost: {shown.strip()[:300]}") from None
    return found


def _merged(
    classes: npt.NDArray[np.int64],
    logits: npt.NDArray[np.float32],
    log_totals: npt.NDArray[np.float32],
    k: int,
    logistic: bool,
) -> TopK[npt.NDArray[Any]]:
    """Return the k best of (queries, all parts' k), of equal ones the lowest id. log_totals: (parts, queries)."""
    by_id = np.where(classes < 0, np.iinfo(np.int64).max, classes)
    order = np.lexsort((by_id, -logits), axis=1)[:, :k]
    classes, logits = np.take_along_axis(classes, order, 1), np.take_along_axis(logits, order, 1)
    if logistic:
        log_probs = -np.logaddexp(0, -logits.astype(np.float64))
    else:
        total = np.logaddexp.reduce(log_totals.astype(np.float64), 0)
        log_probs = logits - np.where(np.isneginf(total), 0, total)[:, None]
    missing = ((0, 0), (0, max(0, k - classes.shape[1])))
    return TopK(
        classes=np.pad(classes, missing, constant_values=-1),
        log_probs=np.pad(log_probs, missing, constant_values=-np.inf).astype(np.float32),
        logits=np.pad(logits, missing, constant_values=-np.inf),
    )
