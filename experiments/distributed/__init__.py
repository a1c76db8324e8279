"""Asynchronous training with many workers: what it reaches, what it costs, what it sends, and what faults do to it.

task.py is the demo's task as a job; learning.py, traffic.py, recovery.py and chaos.py measure; page.py tells.
"""

from experiments.distributed.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
