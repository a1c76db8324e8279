"""Which of very many videos (or other things) a picture is from: a network, an index over its classes, their names."""

from manyclass.identification.model import IdentificationModel, Identified, Match, Milliseconds

__all__ = ["IdentificationModel", "Identified", "Match", "Milliseconds"]
