"""PyTorch heads for many classes, and the optimizers that move only the rows they touch."""

from manyclass.torch.head import OutputHead, TopK
from manyclass.torch.row_optim import RowAdagrad, RowAdam, RowSGD
from manyclass.torch.wta_softmax import WTASoftmax

__all__ = ["OutputHead", "RowAdagrad", "RowAdam", "RowSGD", "TopK", "WTASoftmax"]
