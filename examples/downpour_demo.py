"""A job for `manyclass train`: the demo's task, with a deeper trunk, and Adagrad on the servers.

    manyclass train examples/downpour_demo.py --workers 4 --shards 2 --folder demo-run

The same file runs on a cluster: add --engine ray --address HOST:PORT. For data of your own, replace `Pictures` by
anything that gives batch number n whenever it is asked for.
"""

import torch
from torch import nn

from manyclass.distributed import HeadSettings, Job, ServerRule
from manyclass.distributed.quick_job import Pictures

HIDDEN = 128


def trunk() -> nn.Module:
    """Return the network below the classes; the same first weights whoever calls."""
    torch.manual_seed(0)
    first = [nn.Linear(64, 256), nn.ReLU(), nn.BatchNorm1d(256)]
    return nn.Sequential(*first, nn.Linear(256, HIDDEN), nn.ReLU(), nn.BatchNorm1d(HIDDEN))


def job(quick: bool = False) -> Job:
    """Return the job; quick: small enough for a test."""
    classes = 2_000 if quick else 100_000
    pictures = Pictures(classes)
    return Job(
        trunk=trunk,
        batches=pictures.batch,
        head=HeadSettings(classes=classes, features=HIDDEN, rule=ServerRule(kind="adagrad", lr=0.1)),
        trunk_rule=ServerRule(kind="adagrad", lr=0.02),
        steps=200 if quick else 4000,
        test=lambda: [pictures.batch(10**9, 1000)],
        learned=0.4 if quick else None,
    )
