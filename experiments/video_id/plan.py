"""How large everything is: the full run, and the quick one that shows the same in three minutes."""

from dataclasses import dataclass

from experiments.frame.stages import Options


@dataclass(frozen=True, kw_only=True)
class TrunkSizes:
    """Sizes of an AlexNet."""

    features: int  # width of the layer below the classes
    hidden: int  # width of the dense layer before it
    widths: tuple[int, ...]  # channels of the five convolutions


@dataclass(frozen=True, kw_only=True)
class FewerVideos:
    """Sizes of the training with fewer videos, where every output layer can finish: what they learn step by step."""

    classes: int
    steps: int
    candidates: int  # of the paper's layer: the same share of the classes as with all videos


@dataclass(frozen=True, kw_only=True)
class Series:
    """Sizes of the controlled series: the same videos, ever more camera motion, the same steps."""

    classes: int
    motions: tuple[float, ...]
    frames: int  # for training, of each video
    steps: int
    batch: int
    candidates: int  # of the paper's layer: a share of the classes as small as the paper's 3000 of 1.2 million
    tests: int
    seeds: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Million:
    """Sizes of the stages with made scenes, 1.2 million of them in the full run."""

    classes: int
    trunk: TrunkSizes  # light: every frame of every scene passes through it
    light_classes: int  # scenes that it is trained on
    light_steps: int
    light_batch: int
    light_rate: float
    frames: int  # of each scene whose features are kept for training
    chunk: int  # scenes at a time
    tests: int  # frames of second halves
    batch: int
    rate: float  # of Adagrad, which does better here than SGD with momentum in the same time
    seconds: float  # of training of the output layer
    bottleneck: TrunkSizes  # the large trunk with as few features, whose step is measured
    step_batch: int
    measured_steps: int
    candidates: tuple[int, ...]  # for the answer to one query
    queries: int  # whose answers are timed and judged


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of one run of the experiment."""

    side: int = 32  # pixels of a frame each way
    frames: int = 64  # of each video; the first half is for training
    scenes: int  # made videos, where no others are given
    trunk: TrunkSizes
    warm_up_classes: int  # that the network learns first, each of them more often
    warm_up_steps: int
    warm_up_batch: int
    warm_up_rate: float
    warm_up_final_rate: float  # share of it at the end; of the light network's, too
    batch: int = 32  # the paper's
    rates: tuple[float, ...] = (0.1, 0.05, 0.005, 0.001)  # the paper's
    rate_classes: int  # videos on which each rate is tried
    rate_steps: int  # for which it is
    fewer: FewerVideos
    steps: int  # of the output layers with the whole network over all videos: fixed beforehand
    slow_steps: dict[str, int]  # of those whose steps are so long that only these take about as long as ours
    final_rate: float  # share of the rate at the end; with few passes rows that are met late must not come off short
    trunk_share: float  # of the rate, for the network below, which has learned something already
    candidates: int  # K of the paper's layer
    tests: int  # frames of second halves for the final accuracy
    curve_tests: int  # of them, for the points of a curve
    points: int  # of a curve
    kept_frames: int  # of each video whose features are kept
    frozen_seconds: float  # of training of each output layer on kept features
    frozen_batch: int
    variance_videos: int
    measured_steps: int  # for a step's parts; four times as many of our own layer
    series: Series
    million: Million


FULL = Plan(
    scenes=120_000,
    trunk=TrunkSizes(features=4096, hidden=512, widths=(32, 96, 128, 128, 96)),
    warm_up_classes=3_000,
    warm_up_steps=2_000,
    warm_up_batch=128,
    warm_up_rate=0.05,
    warm_up_final_rate=0.05,
    rate_classes=4_000,
    rate_steps=250,
    fewer=FewerVideos(classes=8_000, steps=1_500, candidates=200),
    steps=11_250,  # three passes, of which the points of a curve are quarters
    slow_steps={"full": 100, "wta": 500},
    final_rate=0.5,
    trunk_share=0.1,
    candidates=3000,
    tests=4_000,
    curve_tests=1_500,
    points=12,
    kept_frames=4,
    frozen_seconds=60,
    frozen_batch=256,
    variance_videos=15_000,
    measured_steps=16,
    series=Series(
        classes=4_000, motions=(0.25, 0.5, 1.0, 1.5, 2.0), frames=8, steps=400, batch=64, candidates=10, tests=2_000,
        seeds=(0, 1, 2),
    ),
    million=Million(
        classes=1_200_000,
        trunk=TrunkSizes(features=256, hidden=512, widths=(24, 48, 64, 64, 64)),
        light_classes=6_000,
        light_steps=3_500,
        light_batch=256,
        light_rate=0.1,
        frames=8,
        chunk=4_000,
        tests=10_000,
        batch=512,
        rate=0.02,
        seconds=600,
        bottleneck=TrunkSizes(features=256, hidden=2048, widths=(48, 128, 192, 192, 128)),
        step_batch=32,
        measured_steps=16,
        candidates=(5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000),
        queries=4_000,
    ),
)  # fmt: skip
QUICK = Plan(
    frames=16,
    scenes=600,
    trunk=TrunkSizes(features=128, hidden=96, widths=(16, 24, 32, 32, 24)),
    warm_up_classes=300,
    warm_up_steps=150,
    warm_up_batch=96,
    warm_up_rate=0.1,
    warm_up_final_rate=0.1,
    rate_classes=300,
    rate_steps=20,
    fewer=FewerVideos(classes=200, steps=60, candidates=10),
    steps=200,
    slow_steps={"wta": 160},
    final_rate=0.5,
    trunk_share=0.1,
    candidates=30,
    tests=600,
    curve_tests=300,
    points=6,
    kept_frames=4,
    frozen_seconds=2,
    frozen_batch=64,
    variance_videos=600,
    measured_steps=8,
    series=Series(
        classes=300, motions=(0.25, 0.5, 1.0, 1.5, 2.0), frames=4, steps=60, batch=32, candidates=8, tests=300,
        seeds=(0,),
    ),
    million=Million(
        classes=6_000,
        trunk=TrunkSizes(features=64, hidden=64, widths=(12, 16, 24, 24, 24)),
        light_classes=600,
        light_steps=150,
        light_batch=128,
        light_rate=0.1,
        frames=8,
        chunk=500,
        tests=600,
        batch=256,
        rate=0.05,
        seconds=8,
        bottleneck=TrunkSizes(features=64, hidden=96, widths=(16, 24, 32, 32, 24)),
        step_batch=32,
        measured_steps=8,
        candidates=(5, 10, 30, 100),
        queries=300,
    ),
)  # fmt: skip


def plan_of(options: Options) -> Plan:
    """Return the sizes of a run."""
    return QUICK if options.quick else FULL
