"""The four layers that everything is measured on: two trained ones, embeddings, and made rows of unequal norm."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.datasets import han_layer, language_model, wordnet
from experiments.datasets.made_rows import off_centre, planted, unequal_norms
from experiments.datasets.missing import MissingDataError
from experiments.frame.stages import Run
from experiments.frame.wording import whole
from experiments.peers.problem import Problem

MILLION, MILLION_WIDTH, MADE_QUERIES = 1_000_000, 128, 12_000
Show = Callable[[float, str], None]


@dataclass(frozen=True)
class Layer:
    """A layer with its real and its quick form.

    load: from a folder of the user's, or None, and a function that is told (share, text) while it takes its time.
    quick: of (classes, features, queries).
    """

    title: str
    shape: tuple[int, int]
    text: str
    load: Callable[[Path | None, Show], Problem]
    quick: Callable[[int, int, int], Problem]


def _like_a_trained_layer(classes: int, features: int, queries: int) -> Problem:
    from experiments.datasets.imagenet_like import imagenet_like  # loads torch, which `report` does without

    return imagenet_like(classes, features, queries=queries)


LAYERS = {
    "language_model": Layer(
        "A language model's output layer", (language_model.TOKENS, language_model.WIDTH),
        "The output layer of SmolLM2-135M; queries are its hidden states on text, the label is the next token. Hidden "
        "states have a common mean two thirds of their length, and few directions carry most of their variance.",
        lambda folder, show: language_model.language_model(show), off_centre,
    ),
    "han": Layer(
        "A trained image layer", (han_layer.CHARACTERS, han_layer.WIDTH),
        "The output layer of the experiment `imagenet21k`, Han characters; queries are the features of held-out "
        "pictures, after a rectifier.",
        lambda folder, show: han_layer.han_layer(folder), _like_a_trained_layer,
    ),
    "wordnet": Layer(
        "WordNet's glosses", (wordnet.SYNSETS, wordnet.WIDTH),
        "Glosses embedded by a small sentence encoder. A query is a word with one of the example sentences that "
        "WordNet prints after the gloss, its label the gloss.",
        lambda folder, show: wordnet.wordnet(show), planted,
    ),
    "million": Layer(
        "A million rows of unequal norm", (MILLION, MILLION_WIDTH),
        "Made rows of lognormal length (sigma .5), with biases. A query is a row with half of its features missing, "
        "and noise. The exact winner is mostly another, longer row, and a search that misses the long rows has more "
        "labels right than the exact product.",
        lambda folder, show: unequal_norms(MILLION, MILLION_WIDTH, MADE_QUERIES), unequal_norms,
    ),
}  # fmt: skip


def open_layer(run: Run, stage: str, name: str, quick: tuple[int, int, int]) -> Problem | None:
    """Return a layer, in a quick run a made one; None, told and recorded, where it cannot be made."""
    layer = LAYERS[name]
    if run.options.quick:
        return layer.quick(*quick)
    try:
        with run.progress(100, "% of the layer") as show:
            return layer.load(run.options.data, lambda share, text: show(100 * share, text))
    except MissingDataError as missing:
        run.console.print(f"  left out: {missing}", highlight=False, markup=False)
        record = {"stage": stage, "kind": "missing", "layer": name, "reason": missing.reason}
        if not run.records.done(**record):
            run.records.write(**record, install=missing.install)
        return None


def layer_in_words(name: str, quick: bool) -> str:
    """Return what rows and queries are."""
    layer = LAYERS[name]
    if quick:
        return "Made rows stand in its place in a quick run."
    return f"{whole(layer.shape[0])} × {whole(layer.shape[1])}. {layer.text}"
