"""The stage that asks saved vectors: nearest words and analogies through the index, with their milliseconds."""

import statistics

import numpy as np

from experiments.frame.stages import Run
from experiments.skipgram.measuring.head_stages import vectors_file
from experiments.skipgram.vectors.lookup import Lookup
from manyclass.errors import FileError

ASKED, SHOWN = 200, 8


def ask_vectors(run: Run, heads: list[str]) -> None:
    """Ask the vectors of the first output layer that has some: frequent words for their nearest ones."""
    if run.records.done(stage="lookup", kind="result"):
        return
    head = next((head for head in heads if vectors_file(run, head).exists()), None)
    if head is None:
        raise FileError("no output layer has saved its vectors yet; train one first")
    lookup = Lookup.load(vectors_file(run, head))
    asked = np.linspace(0, min(20_000, len(lookup.words)) - 1, ASKED).astype(int)
    answers = [(lookup.words[number], lookup.nearest(lookup.words[number])) for number in asked]
    right = 0
    for number, (_, answer) in zip(asked, answers, strict=True):
        cosines = lookup.rows @ lookup.rows[number]
        cosines[number] = -np.inf
        right += answer.words[0][0] == lookup.words[int(cosines.argmax())]
    shown = [[word, [near for near, _ in answer.words[:SHOWN]]] for word, answer in answers[:: ASKED // SHOWN]]
    run.records.write(
        stage="lookup", kind="result", head=head, classes=len(lookup.words), asked=ASKED, agrees=right / ASKED,
        milliseconds=statistics.median(answer.milliseconds for _, answer in answers), nearest=shown,
    )  # fmt: skip
