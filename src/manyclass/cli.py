"""The command `manyclass`: translates options, calls what does the work, and returns its exit code."""

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from manyclass._backend import default_threads
from manyclass.doctor import examine
from manyclass.errors import ManyclassError

TORCH = "manyclass: identify needs torch, which is not installed; pip install 'manyclass[identify]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="manyclass", description="Softmax over millions of classes.")
    parser.add_argument("--version", action="version", version=f"manyclass {version('manyclass')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", help="say what is installed, what computes here, and what is missing for what")
    asked = commands.add_parser("identify", help="say from which of a model's videos pictures are")
    asked.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder that a model was saved into")
    asked.add_argument("--top", type=_count, default=5, metavar="N", help="matches to print [5]")
    asked.add_argument("--candidates", type=_count, metavar="N", help="classes that are scored exactly [the model's]")
    asked.add_argument("--threads", type=_count, default=default_threads(), metavar="N", help="[all cores]")
    asked.add_argument("images", nargs="+", metavar="IMAGE", help="pictures, or folders of them")
    options = parser.parse_args(arguments)
    if options.command == "doctor":
        return examine(print)
    try:
        return identify(options)
    except ManyclassError as error:
        print(f"manyclass: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        print(TORCH, file=sys.stderr)
        return 2


def identify(options: argparse.Namespace) -> int:
    """Print the best matches of every picture; 1 if some of the pictures could not be read."""
    import torch

    from manyclass.errors import FileError
    from manyclass.identification import IdentificationModel
    from manyclass.identification.pictures import listed_pictures, pillow

    pillow()  # refuses what cannot work before anything is opened, and is in no picture's time
    images = listed_pictures(options.images)
    torch.set_num_threads(options.threads)
    started = time.perf_counter()
    model = IdentificationModel.load(options.model, mmap=True)
    print(f"{options.model}: {model.classes:,} classes, opened in {1000 * (time.perf_counter() - started):.0f} ms")
    unread = 0
    for image in images:
        try:
            (found,) = model.identify([image], options.top, candidates=options.candidates, threads=options.threads)
        except FileError as error:
            print(f"manyclass: {error}", file=sys.stderr)
            unread += 1
            continue
        spent = found.milliseconds
        print(
            f"{image}: {spent.total:.1f} ms (reading {spent.reading:.1f}, network {spent.network:.1f}, "
            f"classes {spent.classes:.2f})"
        )
        for place, match in enumerate(found.matches, start=1):
            print(f"{place:4}  {match.probability:6.1%}  {match.name}")
    return 1 if unread else 0


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


if __name__ == "__main__":
    sys.exit(main())
