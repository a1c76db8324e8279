"""AlexNet for small pictures: the paper's network below the classification layer.

Five convolutions and two dense layers as in Krizhevsky et al. 2012, usually with the width of one of their two towers.
What differs: the first layer sees few pixels, in one channel or three, and batch normalisation stands where local
response normalisation and dropout were, so that it learns within an hour on two cores.
"""

import torch
from torch import Tensor, nn

from manyclass.errors import ConfigError


class AlexNet(nn.Sequential):
    """(n, channels, side, side) → (n, features), after a rectifier. hidden: width of the dense layer before the last.

    side: 16, 32, 48, 64, …: the first layer steps so far that 16 × 16 places are left, and looks at 11 pixels each way
    where there are 64, at 7 where there are 32.
    """

    def __init__(self, features: int, hidden: int, widths: tuple[int, ...], channels: int = 1, side: int = 64) -> None:
        if side < 16 or side % 16:
            raise ConfigError(f"side={side} is not a multiple of 16; try {max(16, 16 * round(side / 16))}")
        first, second, third, fourth, fifth = widths
        stride = side // 16
        super().__init__(
            *_convolution(channels, first, 2 * stride + 3, stride),
            nn.MaxPool2d(3, 2, 1),  # 16 × 16 → 8 × 8
            *_convolution(first, second, 5),
            nn.MaxPool2d(3, 2, 1),  # → 4 × 4
            *_convolution(second, third, 3),
            *_convolution(third, fourth, 3),
            *_convolution(fourth, fifth, 3),
            nn.MaxPool2d(2),  # → 2 × 2
            nn.Flatten(),
            nn.Linear(4 * fifth, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, features, bias=False),
            nn.BatchNorm1d(features),
            nn.ReLU(),
        )


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return [layer, nn.BatchNorm2d(outputs), nn.ReLU()]


@torch.no_grad()
def multiply_adds(network: nn.Module, picture: Tensor) -> int:
    """Return the products of one forward pass over (1, channels, side, side), counted layer by layer."""
    counted = 0

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal counted
        weight = layer.weight
        assert isinstance(weight, Tensor)
        counted += output.numel() * weight[0].numel()

    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    modes = [(module, module.training) for module in network.modules()]
    try:
        network.eval()
        network(picture)
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode
    return counted
