"""Runs a job on an engine: what `manyclass train` calls, and what a program may call instead."""

from pathlib import Path

from manyclass.distributed.job import JobText
from manyclass.distributed.monitor import Summary
from manyclass.distributed.run_options import RunOptions
from manyclass.distributed.run_result import RunResult
from manyclass.distributed.watching import watching
from manyclass.errors import ConfigError

ENGINES = ("threads", "ray")


def run_job(text: JobText, options: RunOptions, engine: str = "threads") -> RunResult:
    """Train a job, and return what came of it; progress is shown, and logged to run.jsonl in the run's folder."""
    if engine not in ENGINES:
        raise ConfigError(f"engine={engine!r} is unknown; choose from {', '.join(ENGINES)}")
    job = text.job()  # before anything starts: a job that cannot be read costs nothing
    log = None if options.folder is None else Path(options.folder) / "run.jsonl"
    card = {"job": text.name, "engine": engine, "shards": options.shards, "workers": options.workers,
            "transport": options.transport, "staleness": str(options.staleness)}  # fmt: skip
    with watching(job.steps, log, **card) as watch:

        def seen(summary: Summary) -> None:
            watch(summary)

        if engine == "threads":
            from manyclass.distributed.threads_engine import ThreadsEngine

            result = ThreadsEngine(job, options, seen).run()
        else:
            from manyclass.distributed.ray_engine import RayEngine

            result = RayEngine(text, job, options, seen).run()
    if log is not None:
        from manyclass.training.run_log import RunLog

        for point in result.curve:
            RunLog(log).write(kind="evaluation", step=point.steps, seconds=point.seconds, accuracy=point.accuracy)
    return result
