"""The smallest real experiment, and what `make demo` runs: five output layers over 100,000 classes, same seconds each.

task.py makes the data, stages.py trains, page.py tells; docs/add_an_experiment.md walks through them.
"""

from experiments.demo.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
