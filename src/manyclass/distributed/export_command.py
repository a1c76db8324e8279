"""`manyclass export`: what a job has learned, as files that need no job; errors become one sentence."""

import argparse
import sys
from pathlib import Path

from manyclass.errors import ManyclassError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `manyclass export`."""
    parser.description = "Write what a job has learned: trunk.safetensors, head.safetensors and classes.mc, an index."
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the --folder of `manyclass train`")
    parser.add_argument("out", metavar="OUT", type=Path, help="folder for the files; what they replace is gone")
    parser.add_argument("--no-index", action="store_true", help="build no index over the classes")


def export(chosen: argparse.Namespace) -> int:
    """Write the files, and return the exit code: 2 where that cannot be done."""
    try:
        from manyclass.distributed.export import export_job

        settings = export_job(chosen.folder, chosen.out, index=not chosen.no_index)
    except (ManyclassError, ModuleNotFoundError, OSError) as error:
        said = str(error)
        if isinstance(error, ModuleNotFoundError):
            said = f"{error.name} is not installed; pip install 'manyclass[torch]'"
        print(f"manyclass export: {said}", file=sys.stderr)
        return 2
    print(f"{settings.classes:,} classes × {settings.features} features, and the trunk, in {chosen.out}")
    return 0
