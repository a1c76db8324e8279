"""`manyclass identify`: the best matches of pictures, with the milliseconds they took; errors become one sentence.

Beside the package `identification`, which loads torch, so that the other commands start without it.
"""

import argparse
import sys
import time
from pathlib import Path

from manyclass._backend import default_threads
from manyclass.errors import FileError, ManyclassError

TORCH = "identify needs torch, which is not installed; pip install 'manyclass[identify]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `manyclass identify`."""
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="DIR", help="folder that a model was saved into")
    add("--top", type=_count, default=5, metavar="N", help="matches to print [5]")
    add("--candidates", type=_count, metavar="N", help="classes that are scored exactly [the model's]")
    add("--threads", type=_count, default=default_threads(), metavar="N", help="[all cores]")
    add("images", nargs="+", metavar="IMAGE", help="pictures, or folders of them")


def identify(chosen: argparse.Namespace) -> int:
    """Print the best matches of every picture, and return the exit code: 1 if some could not be read."""
    try:
        return _identified(chosen)
    except ManyclassError as error:
        print(f"manyclass: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        print(f"manyclass: {TORCH}", file=sys.stderr)
        return 2


def _identified(chosen: argparse.Namespace) -> int:
    import torch

    from manyclass.identification import IdentificationModel
    from manyclass.identification.pictures import listed_pictures, pillow

    pillow()  # refuses what cannot work before anything is opened, and is in no picture's time
    images = listed_pictures(chosen.images)
    torch.set_num_threads(chosen.threads)
    started = time.perf_counter()
    model = IdentificationModel.load(chosen.model, mmap=True)
    print(f"{chosen.model}: {model.classes:,} classes, opened in {1000 * (time.perf_counter() - started):.0f} ms")
    unread = 0
    for image in images:
        try:
            (found,) = model.identify([image], chosen.top, candidates=chosen.candidates, threads=chosen.threads)
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
