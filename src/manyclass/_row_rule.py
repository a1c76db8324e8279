"""One step of a row optimizer as thirteen numbers: what Python hands to the core, or to its NumPy twin."""

from typing import NamedTuple, Self

import numpy as np

SGD, ADAGRAD, ADAM = 0, 1, 2


class RowRule(NamedTuple):
    """One step of an optimizer, with all that is the same for every row worked out in double precision."""

    kind: int  # SGD, ADAGRAD or ADAM
    scale: float = 1.0  # the gradient is multiplied by it first: -1 climbs, 1/n makes a mean of a sum
    step: float = 0.0
    weight_decay: float = 0.0  # SGD, Adagrad: added to the gradient, times the weight
    keep: float = 1.0  # Adam: the weight is multiplied by it, independently of the gradient
    first_decay: float = 0.0
    first_share: float = 1.0
    second_decay: float = 0.0
    second_share: float = 1.0
    correction: float = 1.0
    eps: float = 0.0
    nesterov: bool = False
    noise: int = 0  # rows kept as bfloat16: what rounds them up or down, 64 bits, other ones at every step

    @classmethod
    def sgd(
        cls,
        *,
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        scale: float = 1.0,
    ) -> Self:
        return cls(
            SGD,
            scale=scale,
            step=lr,
            weight_decay=weight_decay,
            first_decay=momentum,
            first_share=1.0 - dampening,
            nesterov=nesterov,
        )

    @classmethod
    def adagrad(
        cls, *, lr: float, time: float, lr_decay: float = 0.0, weight_decay: float = 0.0, eps: float, scale: float = 1.0
    ) -> Self:
        """Return step number `time` (the first is 1)."""
        return cls(ADAGRAD, scale=scale, step=lr / (1 + (time - 1) * lr_decay), weight_decay=weight_decay, eps=eps)

    @classmethod
    def adam(
        cls,
        *,
        lr: float,
        time: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
        scale: float = 1.0,
    ) -> Self:
        """Return step number `time` (the first is 1), with weight decay as in AdamW."""
        first, second = betas
        return cls(
            ADAM,
            scale=scale,
            step=lr / (1 - first**time),
            keep=1 - lr * weight_decay,
            first_decay=first,
            first_share=1 - first,
            second_decay=second,
            second_share=1 - second,
            correction=(1 - second**time) ** 0.5,
            eps=eps,
        )

    @property
    def uses_first(self) -> bool:
        return self.kind != SGD or np.float32(self.first_decay) != 0

    @property
    def uses_second(self) -> bool:
        return self.kind == ADAM
