"""A job for `manyclass train`: skip-gram, the paper's second task; every word tells its neighbours.

    manyclass train examples/downpour_skipgram.py --workers 4 --shards 2 --staleness bounded:4

The text is made on the spot: sentences stay within a family of words. The word vectors are the trunk here, and dense:
workers exchange all of them with their server every step, so take more than one step between two exchanges
(--trunk-every) where there are many words.
"""

import torch
from torch import Tensor, nn

from manyclass.distributed import HeadSettings, Job, ServerRule

FAMILY, WIDTH, BATCH, NEIGHBOURS = 10, 64, 256, 4


def batch(words: int, number: int, count: int = BATCH) -> tuple[Tensor, Tensor]:
    """Return words (count,), and the neighbours of each (count, 4): several targets per example."""
    generator = torch.Generator().manual_seed(number)
    centre = torch.randint(words, (count,), generator=generator)
    places = torch.randint(FAMILY, (count, NEIGHBOURS), generator=generator)
    return centre, centre[:, None] // FAMILY * FAMILY + places


class WordVectors(nn.Module):
    """A vector for each word."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(words, WIDTH, generator=torch.Generator().manual_seed(0)))

    def forward(self, words: Tensor) -> Tensor:
        return self.weight[words]


def job(quick: bool = False) -> Job:
    """Return the job; quick: small enough for a test."""
    words = 1_000 if quick else 20_000
    return Job(
        trunk=lambda: WordVectors(words),
        batches=lambda number: batch(words, number),
        head=HeadSettings(classes=words, features=WIDTH, rule=ServerRule(lr=0.5, momentum=0.9)),
        trunk_rule=ServerRule(lr=2.0),
        steps=300 if quick else 6000,
        test=lambda: [batch(words, 10**9, 1000)],
        learned=0.2 if quick else None,  # the best word is one of four that were drawn of a family of ten
    )
