"""PyTorch heads for many classes, and the optimizers that move only the rows they touch."""

from manyclass.torch.head import OutputHead, TopK

__all__ = ["OutputHead", "TopK"]
