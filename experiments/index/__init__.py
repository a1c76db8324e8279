"""The index alone: beside other libraries, by itself, as classes grow, against its knobs. No network is trained here.

layers.py and sizes.py say on what; stages.py (contests), defaults.py, paper_table.py, growth.py, outliers.py and
sweeps.py measure; contest_tables.py, tables.py, figures.py, page.py and documents.py tell.
"""

from experiments.index.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
