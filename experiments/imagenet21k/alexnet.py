"""AlexNet for small grey pictures: the paper's network below the classification layer.

Five convolutions and two dense layers as in Krizhevsky et al. 2012, with the width of one of their two towers. What
differs: the first layer sees 64 × 64 pixels in one channel, batch normalisation stands where local response
normalisation and dropout were, so that it learns within an hour on two cores.
"""

import torch
from torch import Tensor, nn

WIDTHS = (48, 128, 192, 192, 128)


class AlexNet(nn.Sequential):
    """(n, 1, 64, 64) → (n, features), after a rectifier. hidden: width of the dense layer before the last."""

    def __init__(self, features: int = 4096, hidden: int = 2048, widths: tuple[int, ...] = WIDTHS) -> None:
        first, second, third, fourth, fifth = widths
        super().__init__(
            *_convolution(1, first, 11, stride=4),
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
    """Return the products of one forward pass over (1, 1, side, side), counted layer by layer."""
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
