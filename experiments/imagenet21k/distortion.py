"""Random affine maps, blur, noise and contrast: one drawn glyph becomes as many examples as are asked for."""

import torch
import torch.nn.functional as F
from torch import Tensor

TURN, STRETCH, SHEAR, SHIFT = 0.12, 0.15, 0.12, 0.08  # radians; shares of the size, both ways
NOISE, CONTRAST = 0.12, 0.4


def distort(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Return float32 (n, 1, side, side) from uint8 pictures (n, side, side): distorted, then normalized."""
    count = len(pixels)

    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator)

    pictures = F.grid_sample(
        pixels.unsqueeze(1).float() / 255, _grids(between, pixels.shape[-1]), padding_mode="border", align_corners=False
    )
    sharp = between(0.3, 1.0, 1, 1, 1)
    pictures = sharp * pictures + (1 - sharp) * F.avg_pool2d(pictures, 3, 1, 1)
    light = between(1 - CONTRAST, 1 + CONTRAST, 1, 1, 1)
    noise = between(0, NOISE, 1, 1, 1) * torch.randn(pictures.shape, generator=generator)
    return normalized(light * pictures + noise)


def normalized(pictures: Tensor) -> Tensor:
    """Return pictures with mean 0 and variance 1 each: how bright one is says nothing of its class."""
    variance, mean = torch.var_mean(pictures, dim=(1, 2, 3), keepdim=True, correction=0)
    return (pictures - mean) * (variance + 1e-4).rsqrt()


def _grids(between, side: int) -> Tensor:  # type: ignore[no-untyped-def]
    turn, shear = between(-TURN, TURN), between(-SHEAR, SHEAR)
    width, height = between(1 - STRETCH, 1 + STRETCH), between(1 - STRETCH, 1 + STRETCH)
    cos, sin = turn.cos(), turn.sin()
    rows = [cos * width, (shear - sin) * height, between(-SHIFT, SHIFT), sin * width, cos * height,
            between(-SHIFT, SHIFT)]  # fmt: skip
    return F.affine_grid(torch.stack(rows, 1).view(-1, 2, 3), [len(turn), 1, side, side], align_corners=False)
