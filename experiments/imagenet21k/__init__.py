"""The paper's first experiment: the output layer of an image classifier with twenty thousand classes."""

from experiments.imagenet21k.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
