"""The output layers in training: time of a step, what they learn per step and per second, and what approximates.

sizes.py, contestants.py and stages.py say what is measured, tasks/ holds what is learned. same_seconds.py and
per_step.py (the tasks, against seconds and against steps), steps.py (times of a step), learning.py (few classes, other
trunks and refreshes), bfloat16.py (rows of 16 bits), ten_million.py (as many of those as fit), many_labels.py
(precision of labels), tail.py (bias of the tail) and serving.py (queries, changed classes) measure it. verdicts.py says
what the tasks show; tables.py, figures.py, task_parts.py, many_labels_table.py, page.py and documents.py tell.
"""

from experiments.heads.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
