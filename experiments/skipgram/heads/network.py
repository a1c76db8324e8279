"""The network of skip-gram: a vector for each word, and an output layer over all words that tells its neighbours."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

import manyclass.torch as mct
from experiments.skipgram.text.examples import Batch
from manyclass.torch.row_products import gather_rows


class InputVectors(nn.Module):
    """A vector for each word; only the vectors of a batch get gradients, and its repeated words add up."""

    def __init__(self, words: int, features: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        start = (torch.rand(words, features, generator=generator) - 0.5) / features  # word2vec's
        self.weight = nn.Parameter(start)

    def forward(self, batch: Batch) -> Tensor:
        """Return the vector of each example's word, (examples, features)."""
        return gather_rows(self.weight, batch.distinct).index_select(0, batch.words)


class SkipGram(nn.Module):
    """Word vectors and an output layer. forward gives the mean loss of a batch."""

    def __init__(self, vectors: InputVectors, head: mct.OutputHead) -> None:
        super().__init__()
        self.vectors, self.head = vectors, head

    def forward(self, batch: Batch) -> Tensor:
        loss: Tensor = self.head(self.vectors(batch), batch.neighbours)
        return loss

    @torch.no_grad()
    def log_probs(self, words: Tensor) -> Tensor:
        """Return exact log probabilities of every neighbour, (n, words), whatever the head approximates in training."""
        training, head = self.training, self.head
        self.eval()
        x = self.vectors.weight.detach()[words]
        with head.exact() if isinstance(head, mct.CandidateSoftmax) else nullcontext():
            found: Tensor = head.log_prob(x)
        self.train(training)
        return found
