"""Runs a job on an engine: what `manyclass train` calls, and what a program may call instead."""

from pathlib import Path
from typing import Any

from manyclass.distributed.engines.run_result import RunResult
from manyclass.distributed.engines.watching import watching
from manyclass.distributed.job import Job, JobText
from manyclass.distributed.run_options import RunOptions
from manyclass.errors import ConfigError
from manyclass.training.run_log import RunLog

ENGINES = ("threads", "ray")


def run_job(text: JobText, options: RunOptions, engine: str = "threads") -> RunResult:
    """Train a job, and return what came of it; progress is shown, and logged to run.jsonl in the run's folder."""
    if engine not in ENGINES:
        raise ConfigError(f"engine={engine!r} is unknown; choose from {', '.join(ENGINES)}")
    job = text.job()  # before anything starts: a job that cannot be read costs nothing
    running = _engine(engine, text, job, options)
    log = None if options.folder is None else Path(options.folder) / "run.jsonl"
    card = {"job": text.name, "engine": engine, "shards": options.shards, "workers": options.workers,
            "transport": options.transport, "staleness": str(options.staleness)}  # fmt: skip
    with watching(job.steps, log, **card) as watch:
        running.watch = watch
        result: RunResult = running.run()
    if log is not None:
        for point in result.curve:
            RunLog(log).write(kind="evaluation", step=point.steps, seconds=point.seconds, accuracy=point.accuracy)
    return result


def _engine(name: str, text: JobText, job: Job, options: RunOptions) -> Any:
    """Return the engine, which has refused what cannot work, and started nothing yet."""
    if name == "threads":
        from manyclass.distributed.engines.threads_engine import ThreadsEngine

        return ThreadsEngine(job, options)
    from manyclass.distributed.engines.ray_engine import RayEngine

    return RayEngine(text, job, options)
