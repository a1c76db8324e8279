"""The stages of the experiment in order.

torch is loaded when something is to be run, not by `report` and `doctor`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.frame.needs import Need, package
from experiments.frame.stages import Experiment, Options, Run, Stage
from experiments.video_id.documents import texts
from experiments.video_id.page import make_page

if TYPE_CHECKING:
    from experiments.video_id.plan import Plan
    from experiments.video_id.videos import Videos

Work = Callable[[Run], None]
OfVideos = Callable[[Run, "Videos", "Plan"], None]


def stages(options: Options) -> list[Stage]:
    """Return the stages in order, with the minutes they take on 2 cores."""
    from experiments.video_id.plan import plan_of
    from experiments.video_id.training import HEADS

    options.heads_among(HEADS)
    plan = plan_of(options)
    return [*video_stages(options, plan), *million_stages(options, plan)]


def video_stages(options: Options, plan: "Plan") -> list[Stage]:
    """Return the stages with the videos that are given."""
    from experiments.video_id import answers, features, motion, parts, training

    def stage(name: str, title: str, full: float, quick: float, work: OfVideos, *after: str) -> Stage:
        of_run = with_chosen_threads(lambda run: work(run, videos_of(run, plan), plan))
        return options.stage(name, title, full, quick, of_run, *after)

    def step_parts(run: Run, videos: "Videos", plan: "Plan") -> None:
        parts.run_parts(run, "step_parts", videos, plan.trunk, plan.batch, plan.measured_steps, plan.candidates)

    return [
        stage("frames", "open the videos, a contact sheet of some", 2, 0.05, training.run_frames),
        stage("warm_up", "train the network on some of the videos", 5, 0.15, training.run_warm_up, "frames"),
        stage("rates", "try the paper's learning rates with every output layer", 8, 0.3, training.run_rates,
              "warm_up"),
        stage("fewer_videos", "train the whole network on fewer videos, every output layer to the end", 20, 0.3,
              training.run_fewer_videos, "rates"),
        stage("end_to_end", "train the whole network with every output layer", 55, 0.5, training.run_end_to_end,
              "rates"),
        stage("step_parts", "what a step's time goes into", 2, 0.1, step_parts, "frames"),
        stage("features", "keep the features of frames of all videos", 4, 0.1, features.run_features, "end_to_end"),
        stage("frozen", "train output layers on the kept features", 12, 0.3, features.run_frozen, "features"),
        stage("variance", "how far the frames of a video lie apart", 1, 0.05, features.run_variance, "end_to_end"),
        stage("motion", "the same videos with ever more camera motion", 12, 0.2, motion.run_motion, "end_to_end"),
        stage("model", "save the model that identifies, and ask it", 4, 0.05, answers.run_model, "end_to_end"),
    ]  # fmt: skip


def million_stages(options: Options, plan: "Plan") -> list[Stage]:
    """Return the stages with very many made scenes."""
    from experiments.video_id import answers, million, parts

    def stage(
        name: str, title: str, full: float, quick: float, work: Callable[[Run, "Plan"], None], *after: str
    ) -> Stage:
        return options.stage(name, title, full, quick, with_chosen_threads(lambda run: work(run, plan)), *after)

    def million_steps(run: Run, plan: "Plan") -> None:
        scenes, sizes = million.scenes_of(run, plan), plan.million
        steps, batch = sizes.measured_steps, sizes.step_batch
        parts.run_parts(run, "million_steps", scenes, sizes.bottleneck, batch, steps, plan.candidates)

    return [
        stage("light_trunk", "train a light network on fewer scenes (than 1.2 million)", 4, 0.1,
              million.run_light_trunk),
        stage("scene_features", "pass frames of all scenes through it", 20, 0.15, million.run_scene_features,
              "light_trunk"),
        stage("million", "train the output layer over all scenes", 16, 0.2, million.run_million, "scene_features"),
        stage("million_steps", "what a step over all scenes takes", 4, 0.1, million_steps),
        stage("latency", "one query among all scenes", 5, 0.1, answers.run_latency, "million"),
    ]  # fmt: skip


def with_chosen_threads(work: Work) -> Work:
    """Return the work of a stage, done with as many of torch's threads as the user chose."""

    def run_with_threads(run: Run) -> None:
        import torch

        torch.set_num_threads(run.options.threads)
        work(run)

    return run_with_threads


def videos_of(run: Run, plan: "Plan") -> "Videos":
    """Return the videos, read into the cache if this is the first time; a quick run takes few of them."""
    from experiments.video_id.videos import fewer, open_videos

    with run.progress(100, "% of the videos") as show:
        videos = open_videos(
            run.options.data, run.cache, scenes=plan.scenes, frames=plan.frames, side=plan.side,
            seed=run.options.seed, show=lambda share, text: show(100 * share, text),
        )  # fmt: skip
    return fewer(videos, plan.scenes) if run.options.quick else videos


def needs() -> list[Need]:
    """Return what only films need."""
    return [package("av", "video files as --data; frame folders and photographs need nothing",
                    "pip install '.[video]'", optional=True)]  # fmt: skip


EXPERIMENT = Experiment(
    "video_id", "The paper's third experiment: which of 120 thousand to 1.2 million videos a frame is from",
    stages, make_page, needs, texts,
)  # fmt: skip
