"""The paper's third experiment: identify the video that a frame is from, among 120 thousand and among 1.2 million.

The videos: camera.py (where the camera looks), scenes.py, photographs.py, films.py (three sources), videos.py (what
they have in common), batches.py (frames made ahead). The run: plan.py (sizes), network.py, training.py, parts.py,
features.py, motion.py, million.py, answers.py, stages.py (the list). The report: results.py, figures.py, page.py with
page_million.py, goals.py, documents.py.
"""

from experiments.video_id.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
