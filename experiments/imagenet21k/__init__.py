"""The paper's first experiment: the output layer of an image classifier with twenty thousand classes.

The run, in order: sources.py and data.py (the pictures), model.py (the network, the sizes of a run), training.py
(all that is trained), features.py (what is kept of it), layer.py (the trained layer measured), stages.py (the list).
The report: results.py (what the records say), paper.py (what the paper prints), figures.py, page.py with
page_layer.py, documents.py (texts for README and docs).
"""

from experiments.imagenet21k.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
