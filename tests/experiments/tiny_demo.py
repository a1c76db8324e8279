"""The demo in miniature, for tests: all of it but the sizes. As a program it is the command with this demo alone."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import experiments
from experiments.demo import EXPERIMENT
from experiments.demo import stages as demo_stages

PLAN = replace(demo_stages.QUICK, classes=300, features=8, hidden=16, batch=16, seconds=0.05, tests=50, evaluations=2)
HEADS = ("hierarchical", "full")  # the quickest to make

__all__ = ["EXPERIMENT", "HEADS", "PLAN", "start"]


def start(out: Path, **options: Any) -> subprocess.Popen[str]:
    """Start the demo as a process of its own; its stages take a second, time enough to be killed."""
    heads = [argument for head in HEADS for argument in ("--head", head)]
    command = [sys.executable, __file__, "demo", *heads, "--out", str(out), "--threads", "1"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, text=True, **options)


if __name__ == "__main__":
    from experiments.__main__ import main

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would inherit it ignored
    demo_stages.QUICK, demo_stages.FULL = PLAN, replace(PLAN, seconds=1.0)
    experiments.EXPERIMENTS = {"demo": "experiments.demo"}
    main()
