"""How much of everything: the full run, and the quick one that shows the same in three minutes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of one run of the experiment."""

    features: int  # width of the layer below the classes
    hidden: int  # width of the dense layer before it
    widths: tuple[int, ...]  # channels of the five convolutions
    drawn_classes: int  # random stroke characters, where no fonts are used
    batch: int
    warm_up_every: int  # the network first learns every so many-th class alone, each of them more often
    warm_up_steps: int
    base_steps: int  # training of the network with all classes
    rates: tuple[float, float]  # learning rates at the start: network, output layer
    final_rate: float  # share of them at the end; the decay between is exponential
    examples: int  # pictures whose features are kept for training output layers
    tests: int  # held-out pictures, at most
    curve_tests: int  # of them, for the points of a learning curve
    peer_tests: int  # of them, for judging other libraries: a graph takes up to 30 ms for each
    softmax_epochs: float  # passes of the approximate layer before the exact one
    softmax_steps: int  # steps of the exact layer
    softmax_batch: int
    head_seconds: float  # training time of each output layer on kept features
    batches: tuple[int, ...]
    candidates: tuple[int, ...]


FULL = Plan(
    features=4096,
    hidden=2048,
    widths=(48, 128, 192, 192, 128),  # one of AlexNet's two towers
    drawn_classes=20_000,
    batch=256,
    warm_up_every=16,
    warm_up_steps=600,
    base_steps=1900,
    rates=(0.1, 0.03),
    final_rate=0.05,
    examples=240_000,
    tests=42_000,
    curve_tests=4_000,
    peer_tests=4_000,
    softmax_epochs=2,
    softmax_steps=160,
    softmax_batch=1024,
    head_seconds=180,
    batches=(1, 2, 4, 8, 16, 32, 64, 128),
    candidates=(10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000),
)
QUICK = Plan(
    features=512,
    hidden=256,
    widths=(24, 48, 64, 64, 48),
    drawn_classes=4000,
    batch=128,
    warm_up_every=8,
    warm_up_steps=120,
    base_steps=140,
    rates=(0.1, 0.1),
    final_rate=0.1,
    examples=16_000,
    tests=3_000,
    curve_tests=500,
    peer_tests=500,
    softmax_epochs=1,
    softmax_steps=30,
    softmax_batch=512,
    head_seconds=2,
    batches=(1, 8, 64),
    candidates=(10, 30, 100, 300, 1000, 3000),
)
