"""What the tests run in a process of its own: a cluster on this machine, a job on it, and what can be seen of both."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import torch
from torch import nn

from manyclass.distributed import HeadSettings, Job, ServerRule
from manyclass.distributed.quick_job import Pictures

OURS = re.compile(r"^(ray_manyclass_\w+?)(?:_total|_bucket|_count|_sum)?\{", re.MULTILINE)
RULE = ServerRule(lr=0.3, momentum=0.9)
STEPS = 120
EXPORTED = {"ray_manyclass_pushes", "ray_manyclass_staleness", "ray_manyclass_examples"}
PATIENCE = 30.0  # seconds until Ray exports what it was told; a busy machine takes its time


def trunk() -> nn.Module:
    """Return the network below the classes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.BatchNorm1d(32))


def job(quick: bool = False) -> Job:
    """Return a small job."""
    pictures = Pictures(300, 64)
    return Job(
        trunk=trunk,
        batches=lambda number: pictures.batch(number, 64),
        head=HeadSettings(classes=300, features=32, tail=64, rule=RULE),
        trunk_rule=RULE,
        steps=STEPS,
        test=lambda: [pictures.batch(10**9, 500)],
        learned=0.4,
    )


def open_ports(processes: set[int]) -> list[str]:
    """Return the addresses that these processes listen on."""
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in listening.splitlines() if any(f"pid={process}," in line for process in processes)]
    return sorted({line.split()[3].rpartition(":")[0] for line in lines})


def children(process: int) -> set[int]:
    """Return a process and all that it started."""
    import psutil

    return {process, *(child.pid for child in psutil.Process(process).children(recursive=True))}


def scraped(port: int) -> set[str]:
    """Return the names of our metrics at Ray's exporter."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return set(OURS.findall(answer.read().decode()))


def main(folder: Path) -> None:
    """Print what was found as JSON."""
    import os

    from manyclass.distributed.engines.monitor import Summary
    from manyclass.distributed.engines.ray_engine import RayEngine
    from manyclass.distributed.engines.ray_session import ray_session
    from manyclass.distributed.job import JobText
    from manyclass.distributed.run_options import RunOptions

    text = JobText("small", Path(__file__).read_text())
    options = RunOptions(workers=2, folder=folder, checkpoint_every=1.0, evaluate_every=60)
    os.environ["RAY_metrics_report_interval_ms"] = "200"  # noqa: SIM112
    metrics: set[str] = set()
    with ray_session(None, 8) as ray:

        def watch(summary: Summary) -> None:
            """Look at the exporter; at the last look, wait for it, as nobody is asked any more after it."""
            until = time.monotonic() + PATIENCE
            metrics.update(scraped(ray.nodes()[0]["MetricsExportPort"]))
            while summary.steps == STEPS and not metrics >= EXPORTED and time.monotonic() < until:
                time.sleep(0.2)
                metrics.update(scraped(ray.nodes()[0]["MetricsExportPort"]))

        result = RayEngine(text, text.job(), options, watch).run()
        found = {
            "learned": result.learned,
            "curve": result.curve,
            "steps": result.summary.steps,
            "versions": [report["version"] for report in result.summary.shards],
            "torch in shards": [report["torch"] for report in result.summary.shards],
            "listening": open_ports(children(os.getpid())),
            "metrics": sorted(metrics),
            "token": os.environ["RAY_AUTH_MODE"],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
