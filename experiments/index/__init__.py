"""The index alone: beside other libraries, as classes grow, and against its knobs. No network is trained here."""

from experiments.index.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
