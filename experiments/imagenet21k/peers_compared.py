"""Every peer over the same trained layer: what it keeps, its time per query, its build time and memory."""

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

from experiments.frame.stages import Run
from experiments.peers import Contestant
from experiments.peers.bfloat16 import TorchBfloat16
from experiments.peers.exact import FastestExact, TorchSoftmax
from experiments.peers.faiss_peers import FaissFlatPQ, FaissHNSW, FaissIVFPQ
from experiments.peers.hnswlib_peer import Hnswlib
from experiments.peers.manyclass_peer import Manyclass
from experiments.peers.measuring import LARGE_BATCH, build_timed, measure_setting
from experiments.peers.peer import Peer, Setting
from experiments.peers.problem import Problem
from experiments.peers.scann_peer import Scann
from manyclass.config import HashConfig
from manyclass.tuning import tune

STAGE = "peers"
BATCHES = (64, LARGE_BATCH)
NOTHING_LOST = 0.999  # of accuracy and of the exact winners; what takes longer than that is not worth measuring
TARGET = 0.99  # accuracy kept that manyclass is tuned for

# A quick run has one of each kind, at few settings.
QUICK_CONTESTANTS: tuple[Contestant, ...] = (
    partial(Manyclass, pipeline="default"),
    partial(Manyclass, pipeline="paper"),
    TorchSoftmax,
    FastestExact,
    TorchBfloat16,
    FaissHNSW,
    Hnswlib,
    partial(FaissIVFPQ, dims_per_code=8, most_probed=1.0),
    partial(FaissFlatPQ, dims_per_code=8),
    partial(Scann, to_all_leaves=True),
)
CONTESTANTS: tuple[Contestant, ...] = (
    *QUICK_CONTESTANTS,
    *(partial(FaissIVFPQ, dims_per_code=dims, most_probed=1.0) for dims in (4, 16)),
    *(partial(FaissFlatPQ, dims_per_code=dims) for dims in (4, 16, 32)),
)
QUICK_SETTINGS = 4


def run(run: Run, layer: Problem, contestants: Iterable[Contestant] | None = None) -> None:
    """Write one record per (peer, setting) that the records lack; a library that is absent is recorded as missing."""
    if contestants is None:
        contestants = QUICK_CONTESTANTS if run.options.quick else CONTESTANTS
    contestants = list(contestants)
    config = tuned_config(run, layer)
    if config is not None:
        contestants.append(partial(Manyclass, pipeline="tuned", config=config))
    work = []
    for contestant in contestants:
        peer = contestant(layer.classes, layer.features, run.options.threads)
        settings = settings_left(run, peer)
        if settings:
            work.append((contestant, settings))
    completed = 0
    with run.progress(sum(len(settings) for _, settings in work), "settings") as show:
        for contestant, settings in work:
            peer = contestant(layer.classes, layer.features, run.options.threads)  # a new one: the last is let go
            show(completed, f"building {peer.name}")
            try:
                built = build_timed(peer, layer.rows, layer.bias)
            except ImportError as absent:
                _record_missing(run, peer, absent)
                completed += len(settings)
                continue
            for setting in settings:
                show(completed, f"{peer.name} {_words(setting)}")
                if not _covered(run, peer, setting):
                    _measure(run, layer, peer, setting, built)
                completed += 1


def settings_left(run: Run, peer: Peer) -> list[Setting]:
    """Return the settings of a peer that are neither recorded nor made needless by one that is."""
    key = {"stage": STAGE, "kind": "result", "peer": peer.name}
    wanted = spread(peer.settings(), QUICK_SETTINGS) if run.options.quick else peer.settings()
    unmeasured = [setting for setting in wanted if not run.records.done(setting=setting, **key)]
    return [setting for setting in unmeasured if not _covered(run, peer, setting)]


def spread(settings: list[Setting], count: int) -> list[Setting]:
    """Return at most so many of the settings, from the first to the last."""
    if len(settings) <= count:
        return settings
    return [settings[round(place * (len(settings) - 1) / (count - 1))] for place in range(count)]


def tuned_config(run: Run, layer: Problem) -> HashConfig | None:
    """Return the fastest config that `manyclass.tune` finds, None if that is the default's. Tuned once per run."""
    default = HashConfig.for_problem(layer.classes, layer.features)
    if not run.records.done(stage=STAGE, kind="tuning"):
        run.console.print("  tuning manyclass to this layer", highlight=False)
        tuned = tune(
            layer.rows, layer.queries, layer.labels,
            target=TARGET, bias=layer.bias, threads=run.options.threads,
        )  # fmt: skip
        chosen = tuned.config if tuned.met else default
        run.records.write(
            stage=STAGE, kind="tuning", target=TARGET, met=tuned.met, config=asdict(chosen), stages=chosen.pipeline
        )
    recorded: dict[str, Any] | None = run.records.last(stage=STAGE, kind="tuning")
    config = HashConfig(**recorded["config"]) if recorded else default
    return None if config.with_(candidates=default.candidates) == default else config


def _measure(run: Run, layer: Problem, peer: Peer, setting: Setting, built: dict[str, Any]) -> None:
    min_seconds = 0.02 if run.options.quick else 0.5
    measured = measure_setting(peer, layer, setting, BATCHES, min_seconds)
    kept = measured["accuracy_kept"]
    nothing_lost = kept is not None and min(kept, measured["agreement"]) >= NOTHING_LOST
    run.records.write(
        stage=STAGE, kind="result", peer=peer.name, setting=setting, **measured, **built, nothing_lost=nothing_lost
    )


def _covered(run: Run, peer: Peer, setting: Setting) -> bool:
    """Return whether a setting that is no larger in any knob already loses nothing: this one can only be slower."""
    key = {"stage": STAGE, "kind": "result", "peer": peer.name, "nothing_lost": True}
    return any(run.records.done(setting=smaller, **key) for smaller in peer.settings() if _no_larger(smaller, setting))


def _no_larger(smaller: Setting, setting: Setting) -> bool:
    return smaller != setting and all(
        not isinstance(value, str) and smaller[knob] <= value for knob, value in setting.items()
    )


def _record_missing(run: Run, peer: Peer, absent: ImportError) -> None:
    run.console.print(f"  {peer.name} is missing ({absent}): {peer.install}", highlight=False, markup=False)
    record = {"stage": STAGE, "kind": "missing", "peer": peer.name, "reason": str(absent), "install": peer.install}
    if not run.records.done(**record):
        run.records.write(**record)


def _words(setting: Setting) -> str:
    return ", ".join(f"{knob} {value}" for knob, value in setting.items())
