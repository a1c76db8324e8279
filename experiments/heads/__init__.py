"""The output layers in training: time of a step, what they learn per step and per second, and what approximates."""

from experiments.heads.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
