"""The command `manyclass`: translates options, calls what does the work, and returns its exit code."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from manyclass import identify_command
from manyclass.distributed import export_command, train_command
from manyclass.doctor import examine


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="manyclass", description="Softmax over millions of classes.")
    parser.add_argument("--version", action="version", version=f"manyclass {version('manyclass')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", help="say what is installed, what computes here, and what is missing for what")
    identify_command.add_arguments(
        commands.add_parser("identify", help="say from which of a model's videos pictures are")
    )
    train_command.add_arguments(
        commands.add_parser("train", help="train a job with many workers: on this machine, or on a cluster")
    )
    export_command.add_arguments(
        commands.add_parser("export", help="write what a trained job has learned as files that need no job")
    )
    chosen = parser.parse_args(arguments)
    if chosen.command == "identify":
        return identify_command.identify(chosen)
    if chosen.command == "export":
        return export_command.export(chosen)
    return train_command.train(chosen) if chosen.command == "train" else examine(print)


if __name__ == "__main__":
    sys.exit(main())
