"""The index alone: beside other libraries, as classes grow, and against its knobs. No network is trained here.

sizes.py, stages.py (comparisons) and sweeps.py measure; tables.py, figures.py, page.py and documents.py tell.
"""

from experiments.index.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
