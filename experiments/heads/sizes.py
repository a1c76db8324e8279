"""How large everything is, in a full and in a quick run, and the names of special runs."""

from dataclasses import dataclass

TOUCHED_FIRST, LAZY = "touched first (default)", "lazy momentum"


@dataclass(frozen=True)
class LearningSizes:
    """Of the runs that are compared step by step. every: steps between evaluations; periods: lengths of a round."""

    classes: int
    steps: int
    every: int
    tests: int
    tasks: tuple[str, ...]  # the last is the task of the smaller comparisons
    seeds: tuple[int, ...]
    periods: tuple[int, ...]


@dataclass(frozen=True)
class StepSizes:
    """Of the steps that are timed."""

    classes: int
    features: int
    batch: int
    candidates: int


@dataclass(frozen=True)
class SecondsSizes:
    """Of the runs that train for the same seconds."""

    classes: int
    features: int
    seconds: float
    every: float
    tests: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class ServingSizes:
    """Of a head that is served: queries to it, training steps beside, changes of classes in one that is larger."""

    classes: int
    features: int
    queries: int
    batch: int
    steps: int
    changed_classes: int
    changes: int


@dataclass(frozen=True)
class Sizes:
    """Of all stages. draws: of the tail, for each number of samples."""

    steps: tuple[StepSizes, ...]
    paper_setting: StepSizes
    learning: LearningSizes
    samples: tuple[int, ...]
    draws: int
    demo: SecondsSizes
    serving: ServingSizes


FULL = Sizes(
    steps=tuple(StepSizes(classes, 128, 256, 300) for classes in (10_000, 100_000, 1_000_000, 10_000_000)),
    paper_setting=StepSizes(1_200_000, 512, 32, 3000),
    learning=LearningSizes(
        10_000, 3000, 250, 20_000, ("random points", "wordnet"), (0, 1, 2), periods=(10, 100, 1000, 10_000)
    ),
    samples=(8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    draws=500,
    demo=SecondsSizes(100_000, 64, 20.0, 2.5, 1000, (0, 1, 2)),
    serving=ServingSizes(100_000, 64, 4000, 256, 50, 5_000_000, 100),
)
QUICK = Sizes(
    steps=(StepSizes(2_000, 32, 32, 50), StepSizes(20_000, 32, 32, 50)),
    paper_setting=StepSizes(12_000, 64, 8, 300),
    learning=LearningSizes(1_000, 300, 50, 1000, ("random points",), (0,), periods=(10, 1000)),
    samples=(8, 32, 128),
    draws=50,
    demo=SecondsSizes(5_000, 32, 1.5, 0.3, 300, (0,)),
    serving=ServingSizes(5_000, 32, 200, 32, 10, 20_000, 20),
)


def sizes_of(quick: bool) -> Sizes:
    """Return the sizes of a run."""
    return QUICK if quick else FULL
