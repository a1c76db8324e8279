"""Around a training run: metrics on top-k ids, the run log, and a loop (`manyclass.training.loop`, needs torch)."""

from manyclass.training.metrics import Accuracy, AveragePrecision, Metric, Metrics, NDCGAt, PrecisionAt, RecallAt
from manyclass.training.run_log import RunLog, machine_card, read_log, source_state, without_overtaken

__all__ = [
    "Accuracy",
    "AveragePrecision",
    "Metric",
    "Metrics",
    "NDCGAt",
    "PrecisionAt",
    "RecallAt",
    "RunLog",
    "machine_card",
    "read_log",
    "source_state",
    "without_overtaken",
]
