"""PyTorch heads for many classes, and the optimizers that move only the rows they touch."""

from manyclass.torch.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from manyclass.torch.full_softmax import FullSoftmax
from manyclass.torch.head import OutputHead, TopK
from manyclass.torch.head_names import HEADS, make_head
from manyclass.torch.hierarchical_softmax import HierarchicalSoftmax
from manyclass.torch.meter import ApproximationWarning
from manyclass.torch.row_optim import RowAdagrad, RowAdam, RowSGD
from manyclass.torch.sampled_softmax import SampledSoftmax
from manyclass.torch.wta_softmax import WTASoftmax

__all__ = [
    "HEADS",
    "ApproximationWarning",
    "CheckpointInfo",
    "FullSoftmax",
    "HierarchicalSoftmax",
    "OutputHead",
    "RowAdagrad",
    "RowAdam",
    "RowSGD",
    "SampledSoftmax",
    "TopK",
    "WTASoftmax",
    "load_checkpoint",
    "make_head",
    "save_checkpoint",
]
