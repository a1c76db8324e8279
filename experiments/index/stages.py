"""All figures of the core: `make bench-core`. Each stage is resumable and takes at most 45 minutes."""

import argparse

from rich.console import Console

from experiments.index import figures, growth, paper_table, peers_stage, sweeps
from experiments.index.datasets import BY_NAME
from experiments.index.records import CORE_RESULTS, RESULTS, Log

console = Console()


def stages(threads: int) -> dict[str, tuple[str, object]]:
    """Return name -> (what it takes, what to call)."""
    log = lambda name: Log(CORE_RESULTS / f"{name}.jsonl", threads)  # noqa: E731
    return {
        "paper_table": ("about 6 minutes", lambda: paper_table.run(log("paper_table"))),
        "bands": ("about 3 minutes", lambda: sweeps.run_bands(log("bands"))),
        "candidates": ("about 2 minutes", lambda: sweeps.run_candidates(log("candidates"))),
        "growth": ("about 5 minutes, 15 GB of memory", lambda: growth.run(log("growth"))),
        "peers_wordnet": (
            "about 20 minutes, plus the embedding once",
            lambda: peers_stage.run(BY_NAME["wordnet"](), log("peers_wordnet")),
        ),
        "peers_synthetic": (
            "about 45 minutes, most of it hnswlib's build",
            lambda: peers_stage.run(BY_NAME["synthetic"](), log("peers_synthetic")),
        ),
    }


def main() -> None:
    """Run the stages asked for, all by default, then draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", help="names of stages; all by default")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    known = stages(arguments.threads)
    for name in arguments.stages or known:
        duration, run = known[name]
        console.rule(f"{name}: {duration}")
        run()  # type: ignore[operator]
    figures.draw_all(CORE_RESULTS, RESULTS, console)


if __name__ == "__main__":
    main()
