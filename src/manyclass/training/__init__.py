"""Around a training run: metrics on top-k ids, the run log, and a loop (`manyclass.training.loop`, needs torch)."""

from manyclass.training.metrics import Accuracy, AveragePrecision, Metric, Metrics, NDCGAt, PrecisionAt, RecallAt

__all__ = [
    "Accuracy",
    "AveragePrecision",
    "Metric",
    "Metrics",
    "NDCGAt",
    "PrecisionAt",
    "RecallAt",
]
