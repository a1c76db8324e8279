"""PyTorch heads for many classes, and the optimizers that move only the rows they touch."""

from manyclass._topk import TopK
from manyclass.torch.approximation_meter import ApproximationWarning
from manyclass.torch.candidate_softmax import CandidateSoftmax
from manyclass.torch.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from manyclass.torch.full_softmax import FullSoftmax
from manyclass.torch.gradient_clipping import clip_grad_norm_
from manyclass.torch.head import OutputHead
from manyclass.torch.hierarchical_softmax import HierarchicalSoftmax
from manyclass.torch.make_head import HEADS, make_head
from manyclass.torch.memory_budget import MemoryBudget, memory_budget
from manyclass.torch.priors import Prior
from manyclass.torch.row_head import SlowThreadsWarning
from manyclass.torch.row_optimizers import RowAdagrad, RowAdam, RowSGD
from manyclass.torch.sampled_softmax import SampledSoftmax
from manyclass.torch.sharded_checkpoint import load_sharded_checkpoint, save_sharded_checkpoint
from manyclass.torch.sharded_serving import save_index_shards
from manyclass.torch.sharded_softmax import ShardedSoftmax, leave_out_of_ddp
from manyclass.torch.wta_softmax import WTASoftmax

__all__ = [
    "HEADS",
    "ApproximationWarning",
    "CandidateSoftmax",
    "CheckpointInfo",
    "FullSoftmax",
    "HierarchicalSoftmax",
    "MemoryBudget",
    "OutputHead",
    "Prior",
    "RowAdagrad",
    "RowAdam",
    "RowSGD",
    "SampledSoftmax",
    "ShardedSoftmax",
    "SlowThreadsWarning",
    "TopK",
    "WTASoftmax",
    "clip_grad_norm_",
    "leave_out_of_ddp",
    "load_checkpoint",
    "load_sharded_checkpoint",
    "make_head",
    "memory_budget",
    "save_checkpoint",
    "save_index_shards",
    "save_sharded_checkpoint",
]
