"""A stand-in for the paper's setting: 21,900 classes read off the 4096 ReLU activations of a trained AlexNet.

No trained network ships with the library, so its last layer is written down in closed form. Images are
points of a latent space in which classes cluster into families (as breeds of dog do); a random ReLU layer
turns them into activations with many exact zeros and a common mean. Rows and biases are those of the shrinkage
linear discriminant for these activations, the layer that training on them would approach.

The constants are calibrated, not predicted. They are the last of five settings tried, kept because a plain
simulation of the paper's pipeline (330 bands, 200 queries) then kept .82 / .90 / .98 of the accuracy at
K = 30 / 300 / 3000, close to the .83 / .90 / .98 the paper reports for the real network with 1000 bands. The
first settings (OWN_SHARE = SHRINKAGE = .5, WITHIN_CLASS = 1.7 to 2.4) kept .13-.25 / .25-.37 / .59-.61. So times
on this set mean something; that any pipeline keeps the accuracy on it says little about a real network.
"""

from dataclasses import dataclass

import torch

from experiments.peers.problem import Problem

LATENT = 64
FAMILIES = 1000
OWN_SHARE = 0.08  # share of a class's latent variance that its family does not have; sets the exact accuracy
WITHIN_CLASS = 1.0  # latent spread of one class's images, in units of the spread of the classes
FEATURE_NOISE = 0.5  # activation noise that is independent per feature
MEAN_OFFSET = -0.7  # before the ReLU, in units of a feature's scale; sets the share of zeros
COMMON_OFFSET = -0.3  # the same for every feature, whatever its scale: weak features fire rarely
SHRINKAGE = 0.9  # share of the within-class covariance replaced by its diagonal


@dataclass(frozen=True)
class ReluLayer:
    """Random layer from latent points to activations: relu(z @ mixing + offset + noise)."""

    mixing: torch.Tensor  # (latent, features)
    offset: torch.Tensor  # (features,); mostly negative, which makes most activations zero

    @classmethod
    def random(cls, features: int, generator: torch.Generator) -> "ReluLayer":
        """Return a layer whose features differ in scale and in how often they fire."""
        mixing = torch.randn(LATENT, features, generator=generator) / LATENT**0.5
        scale = torch.exp(0.3 * torch.randn(features, generator=generator))
        offset = (MEAN_OFFSET + 0.6 * torch.randn(features, generator=generator)) * scale + COMMON_OFFSET
        return cls(mixing * scale, offset)

    def sample(self, latents: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return the activations of one noisy image per latent class centre."""
        latents = latents + WITHIN_CLASS * torch.randn(latents.shape, generator=generator)
        preactivation = latents @ self.mixing + self.offset
        preactivation += FEATURE_NOISE * torch.randn(preactivation.shape, generator=generator)
        return preactivation.relu_()

    def mean(self, latents: torch.Tensor) -> torch.Tensor:
        """Return the expected activations of each class: E max(0, N(m, s²)) = m·Φ(m/s) + s·φ(m/s)."""
        spread = (WITHIN_CLASS**2 * self.mixing.square().sum(0) + FEATURE_NOISE**2).sqrt()
        centre = latents @ self.mixing + self.offset
        standard = centre / spread
        density: torch.Tensor = torch.exp(-0.5 * standard.square()) / (2 * torch.pi) ** 0.5
        below: torch.Tensor = torch.special.ndtr(standard)
        means: torch.Tensor = centre * below + spread * density
        return means


def class_centres(classes: int, generator: torch.Generator) -> torch.Tensor:
    """Return latent class centres (classes, latent); most of their variance is shared within a family."""
    families = torch.randn(FAMILIES, LATENT, generator=generator)
    own = torch.randn(classes, LATENT, generator=generator)
    member_of = torch.randint(FAMILIES, (classes,), generator=generator)
    centres: torch.Tensor = (1 - OWN_SHARE) ** 0.5 * families[member_of] + OWN_SHARE**0.5 * own
    return centres


def discriminant(means: torch.Tensor, residuals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows (classes, features) and bias (classes,) of the shrinkage linear discriminant."""
    covariance = residuals.T @ residuals / len(residuals)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * torch.diag(covariance.diagonal())
    rows = torch.cholesky_solve(means.T, torch.linalg.cholesky(shrunk)).T
    bias = -0.5 * (rows * means).sum(1)
    # The same vector subtracted from all rows changes no ranking; gradients of softmax rows sum to zero, so
    # trained rows are centred.
    return (rows - rows.mean(0)).contiguous(), bias - bias.mean()


def fold_bias_into_rows(
    rows: torch.Tensor, bias: torch.Tensor, common: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the layer of least norm that gives the mean activation `common` the same logits.

    Gradient descent from zero moves along the input (common, 1), so it leaves most of the bias in the rows.
    """
    per_unit = bias / (common @ common + 1)
    return rows + per_unit[:, None] * common, per_unit


def imagenet_like(classes: int = 21_900, features: int = 4096, queries: int = 2000, seed: int = 3) -> Problem:
    """Return rows, bias, queries and labels. Cost: about a minute at 21,900 × 4096."""
    generator = torch.Generator().manual_seed(seed)
    centres = class_centres(classes, generator)
    layer = ReluLayer.random(features, generator)
    means = layer.mean(centres)
    measured = torch.randint(classes, (2 * features,), generator=generator)  # two images per feature: well conditioned
    activations = layer.sample(centres[measured], generator)
    rows, bias = discriminant(means, activations - means[measured])
    rows, bias = fold_bias_into_rows(rows, bias, activations.mean(0))
    labels = torch.randint(classes, (queries,), generator=generator)
    images = layer.sample(centres[labels], generator)
    return Problem(rows.numpy(), bias.numpy(), images.numpy(), labels.numpy())
