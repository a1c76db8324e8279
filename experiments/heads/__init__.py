"""The output layers in training: time of a step, what they learn per step and per second, and what approximates.

sizes.py, contestants.py and stages.py say what is measured; steps.py (times), learning.py (accuracy against steps),
same_seconds.py (accuracy against seconds), many_labels.py (precision of labels), tail.py (bias of the tail) and
serving.py (queries, changed classes) measure it; tables.py, many_labels_table.py, figures.py, page.py and documents.py
tell.
"""

from experiments.heads.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
