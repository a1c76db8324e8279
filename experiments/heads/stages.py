"""All figures of the PyTorch heads: `make bench-heads`. Each stage is resumable and says beforehand what it takes."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable

from rich.console import Console

from experiments.index.records import RESULTS, Log

HEAD_RESULTS = RESULTS / "heads"
console = Console()

# torch's OpenMP threads spin after each operation and take a core from the native pool: on 2 cores one step of a head
# took 148 ms with spinning threads and 56 ms with waiting ones. libgomp reads this when it is loaded, hence a process
# of its own for every stage. The same for all contestants, full softmax included.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}


def stages(threads: int) -> dict[str, tuple[str, Callable[[], None]]]:
    """Return name → (what it takes, what to call)."""
    from experiments.heads import demo as head_demo
    from experiments.heads import learning as head_learning
    from experiments.heads import steps as head_steps
    from experiments.heads import tail as head_tail

    log = lambda name: Log(HEAD_RESULTS / f"{name}.jsonl", threads)  # noqa: E731
    return {
        "steps": ("about 8 minutes, 16 GB of memory", lambda: head_steps.run(log("steps"))),
        "paper_setting": (
            "about 4 minutes, 12 GB of memory",
            lambda: head_steps.run_paper_setting(log("paper_setting")),
        ),
        "learning": (
            "about 25 minutes, plus the embedding of WordNet once",
            lambda: head_learning.run(log("learning"), "learning"),
        ),
        "momentum": ("about 2 minutes", lambda: head_learning.run(log("momentum"), "momentum")),
        "refresh": ("about 4 minutes", lambda: head_learning.run(log("refresh"), "refresh")),
        "tail": ("under a minute", lambda: head_tail.run(log("tail"))),
        "demo": ("about 14 minutes", lambda: head_demo.run(log("demo"))),
    }


def run_apart(name: str, threads: int) -> None:
    """Run one stage in a process that starts with our environment."""
    command = [sys.executable, "-m", "experiments.heads.stages", "--here", "--threads", str(threads), name]
    if subprocess.run(command, env={**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}).returncode:
        raise SystemExit(f"stage {name} did not finish; start it again and it goes on where it stopped")


def main() -> None:
    """Run the stages asked for, all by default, then draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", help="names of stages; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--here", action="store_true", help="run in this process, with its environment; draw nothing")
    arguments = parser.parse_args()
    known = stages(arguments.threads)
    for name in arguments.stages or known:
        if name not in known:
            parser.error(f"stage {name!r} is unknown; choose from {', '.join(known)}")
        if arguments.here:
            known[name][1]()
        else:
            console.rule(f"{name}: {known[name][0]}")
            run_apart(name, arguments.threads)
    if not arguments.here:
        from experiments.heads import figures as head_figures

        head_figures.draw_all(HEAD_RESULTS, console)


if __name__ == "__main__":
    main()
