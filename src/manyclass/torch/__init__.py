"""PyTorch layer of manyclass: output heads for very many classes, and optimizers for their rows."""

from manyclass.torch.row_optim import RowAdagrad, RowAdam, RowSGD

__all__ = ["RowAdagrad", "RowAdam", "RowSGD"]
