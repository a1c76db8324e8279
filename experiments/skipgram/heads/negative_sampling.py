"""Negative sampling (Mikolov et al. 2013), the rule of word2vec: is this pair real, or made with a random word?

Here because it is no softmax: the library's heads estimate probabilities, this one log ratios. What it learns for a
pair is log(p(neighbour | word) / (negatives · noise(neighbour))), so that adding log noise ranks by probability. Unlike
word2vec's program it does not drop a negative that is the neighbour itself: only then is that exactly so.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass._topk import TopK
from manyclass._validation import check_count
from manyclass.torch import all_classes
from manyclass.torch.class_sampler import ClassSampler
from manyclass.torch.row_head import RowHead
from manyclass.torch.row_products import gather_rows, pair_logits

NOISE_POWER = 0.75


class NegativeSampling(RowHead):
    """A head with negatives that the whole batch shares: one dense product, where word2vec has a few for each pair.

    counts: how often each class occurs; noise is drawn in proportion to counts^0.75.
    negatives: int = 5. For each positive, in the mean. samples: int = 512. Draws that stand for them in a batch.
    """

    log_noise: Tensor

    def __init__(
        self, in_features: int, num_classes: int, counts: Tensor, *, negatives: int = 5, samples: int = 512,
        seed: int = 0, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, num_classes, bias=False, **settings)
        self.negatives, self.samples = check_count("negatives", negatives), check_count("samples", samples)
        noise = counts.double() ** NOISE_POWER
        self.sampler = ClassSampler(self.num_classes, noise.float(), seed)
        self.register_buffer("log_noise", (noise / noise.sum()).clamp_min(1e-30).log().float(), persistent=False)
        torch.nn.init.zeros_(self.weight)  # as word2vec's program has it: every pair is as likely as not

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        own = pair_logits(input, positives, self.weight, None, self._update)  # -inf where there is none
        there = positives >= 0
        drawn = self.sampler.draw(self.samples)
        share = (drawn.log_weights + self.sampler.log_probability(drawn.classes)).exp().float()  # times drawn / samples
        rows = gather_rows(self.weight, drawn.classes, self._update)
        of_noise = self.negatives * there.sum(1) * (F.softplus(input @ rows.T) @ share)
        return F.softplus(-own).masked_fill(~there, 0).sum(1) + of_noise

    def _topk(self, input: Tensor, k: int) -> TopK[Tensor]:
        return all_classes.topk(input, self.weight, self.log_noise, k)

    def _log_prob(self, input: Tensor, classes: Tensor | None) -> Tensor:
        return all_classes.log_prob(input, self.weight, self.log_noise, classes)

    def get_extra_state(self) -> Tensor:
        """Return the generator's state, for the state dict."""
        return self.sampler.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Go on drawing from where this state was taken."""
        self.sampler.generator.set_state(state.cpu().clone())
