"""How large everything is, in a full and in a quick run, and the names of special runs."""

from dataclasses import dataclass

RATE_FACTORS = (1 / 3, 1.0, 3.0)  # of a task's learning rate: those that every head tries
LEARNERS = ("full", "candidate", "wta")  # compared step by step, as tables and figures have them
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
class WideSizes:
    """Of the head that fills a machine's memory."""

    classes: int
    features: int
    batch: int
    steps: int


@dataclass(frozen=True)
class TaskSizes:
    """Of the runs on one task; all of it fixed before anything is measured."""

    classes: int
    seconds: float  # of training, for each learning rate that is tried, too
    rate: float  # the learning rate in the middle of those that are tried
    batch: int = 256
    tests: int = 2000  # examples that every tenth of a run is judged by
    full: bool = True  # a step of full softmax takes less than a second
    skewed: bool = False  # classes are met unequally often
    steps: int = 0  # of the comparison step by step; 0: full softmax does not finish there


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
class LiteralSizes:
    """Of what explains the paper's rule. commons, noises: lengths, where what tells a class is one long."""

    classes: int
    features: int
    steps: int
    commons: tuple[float, ...]
    noises: tuple[float, ...]
    task_examples: int  # of a task, among which classes are met twice


@dataclass(frozen=True)
class Sizes:
    """Of all stages. draws: of the tail, for each number of samples."""

    steps: tuple[StepSizes, ...]
    paper_setting: StepSizes
    learning: LearningSizes
    samples: tuple[int, ...]
    draws: int
    tasks: dict[str, TaskSizes]
    seeds: tuple[int, ...]  # of the runs on tasks
    serving: ServingSizes
    literal: LiteralSizes
    ten_million: WideSizes


FULL = Sizes(
    steps=tuple(StepSizes(classes, 128, 256, 300) for classes in (10_000, 100_000, 1_000_000, 10_000_000)),
    paper_setting=StepSizes(1_200_000, 512, 32, 3000),
    learning=LearningSizes(
        10_000, 3000, 250, 20_000, ("random points", "wordnet"), (0, 1, 2), periods=(10, 100, 1000, 10_000)
    ),
    samples=(8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    draws=500,
    tasks={
        "demo": TaskSizes(100_000, 15, 0.3, skewed=True, steps=300),
        "families": TaskSizes(100_000, 15, 0.3, skewed=True, steps=300),
        "wordnet": TaskSizes(117_659, 20, 0.1),  # 300 steps of full softmax, ten minutes, learn 1% of it
        "han": TaskSizes(20_976, 40, 0.03, full=False),
        "places": TaskSizes(40_981, 15, 0.05, skewed=True, steps=400),
        "articles": TaskSizes(264_308, 25, 0.05, batch=512, tests=1000, full=False, skewed=True),
    },
    seeds=(0, 1, 2),
    serving=ServingSizes(100_000, 64, 4000, 256, 50, 5_000_000, 100),
    literal=LiteralSizes(2_000, 64, 600, (0.0, 1.0, 2.0, 4.0), (0.5, 1.0, 2.0), 20_000),
    ten_million=WideSizes(10_000_000, 256, 256, 50),
)
QUICK = Sizes(
    steps=(StepSizes(2_000, 32, 32, 50), StepSizes(20_000, 32, 32, 50)),
    paper_setting=StepSizes(12_000, 64, 8, 300),
    learning=LearningSizes(1_000, 300, 50, 1000, ("random points",), (0,), periods=(10, 1000)),
    samples=(8, 32, 128),
    draws=50,
    tasks={
        "demo": TaskSizes(3000, 0.2, 0.3, tests=200, skewed=True, steps=30),
        "families": TaskSizes(3000, 0.2, 0.3, tests=200, skewed=True, steps=30),
        "wordnet": TaskSizes(2000, 0.2, 0.1, tests=200),
        "han": TaskSizes(500, 0.2, 0.03, tests=200, full=False),
        "places": TaskSizes(2000, 0.2, 0.1, batch=64, tests=200, skewed=True, steps=30),
        "articles": TaskSizes(2000, 0.2, 0.1, tests=200, full=False, skewed=True),
    },
    seeds=(0,),
    serving=ServingSizes(5_000, 32, 200, 32, 10, 20_000, 20),
    literal=LiteralSizes(200, 32, 20, (0.0, 4.0), (0.5,), 500),
    ten_million=WideSizes(20_000, 32, 32, 10),
)


def seconds_stage(task: str) -> str:
    """Return the name of the stage in which heads learn a task for the same seconds."""
    return f"seconds_{task}"


def per_step_stage(task: str) -> str:
    """Return the name of the stage in which a task is learned step by step beside full softmax."""
    return f"per_step_{task}"


def minutes_of(sizes: TaskSizes, seeds: int, heads: int, quick: bool) -> float:
    """Return about how long so many heads take on a task on two cores: training, and for each run start and judging."""
    tried = len(RATE_FACTORS)
    start = 0.1 if quick else 1.0  # seconds
    judging = 8e-9 * sizes.tests * sizes.classes  # of one point of a curve
    return heads * ((sizes.seconds + start) * (tried + seeds) + judging * (tried + 10 * seeds)) / 2 / 60


def sizes_of(quick: bool) -> Sizes:
    """Return the sizes of a run."""
    return QUICK if quick else FULL
