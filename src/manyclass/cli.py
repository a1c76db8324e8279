"""The command `manyclass`: translates options, calls what does the work, and returns its exit code."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from manyclass.distributed.train_command import add_arguments, train
from manyclass.doctor import examine


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="manyclass", description="Softmax over millions of classes.")
    parser.add_argument("--version", action="version", version=f"manyclass {version('manyclass')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", help="say what is installed, what computes here, and what is missing for what")
    add_arguments(commands.add_parser("train", help="train a job with many workers: on this machine, or on a cluster"))
    chosen = parser.parse_args(arguments)
    return train(chosen) if chosen.command == "train" else examine(print)


if __name__ == "__main__":
    sys.exit(main())
