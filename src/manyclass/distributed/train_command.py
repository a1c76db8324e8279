"""`manyclass train`: the options of a command line as a job and its run; errors become one sentence."""

import argparse
import sys
from pathlib import Path

from manyclass._backend import default_threads
from manyclass.distributed.engines.run_result import RunResult
from manyclass.distributed.job import JobText
from manyclass.distributed.run_options import DURABILITIES, TRANSPORTS, RunOptions
from manyclass.distributed.running import ENGINES, run_job
from manyclass.distributed.staleness import Staleness
from manyclass.errors import ConfigError, ManyclassError

DESCRIPTION = """Train a job with many workers and the classes' rows on parameter shards (asynchronous Downpour SGD).
JOB.py is a small Python file with a function job(quick=False) that returns a manyclass.distributed.Job: model, data and
output layer. Exit code: 0 trained (and as accurate as the job asks for), 1 not accurate enough, 2 refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `manyclass train`."""
    parser.description = DESCRIPTION
    add = parser.add_argument
    add("job", nargs="?", metavar="JOB.py", type=Path, help="the job; with --quick it may be left out")
    add(
        "--quick", action="store_true", help="the job's smaller version; without a job, the demo's task, a minute or so"
    )
    add("--engine", choices=ENGINES, default="threads", help="threads of this machine (default), or Ray actors")
    add("--address", help="of a Ray cluster, as `ray start` says it, or 'auto'; default: one that is started here")
    add("--shards", type=int, default=2, help="parameter shards (default 2)")
    add("--workers", type=int, help="replicas (default: the cores of this machine)")
    add("--transport", choices=TRANSPORTS, default="activations",
        help="send activations to the shards (default), or pull rows as the paper does")  # fmt: skip
    add("--staleness", default="unbounded", help="unbounded (default), bounded:STEPS or scaled:FREE")
    add("--pipeline", type=int, help="steps that a worker has under way (default: 1 with threads, 2 with Ray)")
    add("--trunk-every", type=int, default=1, help="steps between two exchanges with the trunk's server (default 1)")
    add("--folder", type=Path, help="where checkpoints and the log go; a job that is there is continued. With several "
        "machines, one that all of them see")  # fmt: skip
    add("--checkpoint-every", type=float, default=60.0, help="seconds (default 60)")
    add("--durability", choices=DURABILITIES, default="checkpoint",
        help="log: no acknowledged push is ever lost, at the price of the disk's speed")  # fmt: skip
    add("--lease", type=float, default=30.0,
        help="seconds after which a worker of a cluster that says nothing is given up (default 30)")  # fmt: skip
    add("--deadline", type=float, default=300.0, help="seconds that a server of a cluster which does not answer is "
        "waited for (default 300): it may have to be started again on another machine")  # fmt: skip
    add("--shard-threads", type=int, default=1, help="threads of a shard, and CPUs of a cluster that it takes (default "
        "1): few shards with many threads need fewer calls than many shards")  # fmt: skip
    add("--evaluate-every", type=int, help="batches between two evaluations (default: only at the end)")


def train(chosen: argparse.Namespace) -> int:
    """Run the job that was chosen, and return the exit code."""
    try:
        if chosen.job is None and not chosen.quick:
            raise ConfigError("no job was given; name a JOB.py, or try --quick")
        if chosen.address is not None and chosen.engine != "ray":
            raise ConfigError(f"--address {chosen.address} is for --engine ray; add that, or leave the address out")
        text = JobText.built_in() if chosen.job is None else JobText.read(chosen.job, chosen.quick)
        result = run_job(text, _options(chosen), chosen.engine)
    except (ManyclassError, ModuleNotFoundError, OSError) as error:  # the last: a full disk, a folder that is read-only
        print(f"manyclass train: {_one_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("manyclass train: interrupted; with --folder, the same command goes on from the last checkpoint",
              file=sys.stderr)  # fmt: skip
        return 130
    print(_in_words(result))
    return 0 if result.learned else 1


def _options(chosen: argparse.Namespace) -> RunOptions:
    return RunOptions(
        shards=chosen.shards,
        workers=default_threads() if chosen.workers is None else chosen.workers,
        transport=chosen.transport,
        staleness=Staleness.parse(chosen.staleness),
        pipeline=chosen.pipeline,
        trunk_every=chosen.trunk_every,
        folder=chosen.folder,
        durability=chosen.durability,
        checkpoint_every=chosen.checkpoint_every,
        lease=chosen.lease,
        deadline=chosen.deadline,
        shard_threads=chosen.shard_threads,
        evaluate_every=chosen.evaluate_every,
        address=chosen.address,
    )


def _one_sentence(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        extra = "ray" if error.name == "ray" else "torch"
        return f"{error.name} is not installed; pip install 'manyclass[{extra}]'"
    return str(error)


def _in_words(result: RunResult) -> str:
    summary = result.summary
    said = f"{summary.examples:,} examples in {summary.seconds:.0f} s, {summary.examples_per_second:,.0f} a second"
    if result.accuracy is None:
        return said
    return f"{said}; accuracy {result.accuracy:.1%}" + ("" if result.learned else ", less than the job asks for")
