"""What a step of a sharded head computes, chosen alike on every rank: nothing here differs among them but the rows.

Targets, random numbers, lists of what was found and counts are the same on all ranks, because all of them see the
examples of all. What only the rank with the rows can tell, candidates and exact logits, is exchanged: the best few.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass.torch.approximation_meter import DEPTH, EXAMPLES, sampling_noise
from manyclass.torch.sharded_predictions import ShardedPredictions
from manyclass.torch.step_classes import StepClasses


class ShardedChoices(ShardedPredictions):
    """The part of a sharded head that finds candidates in training, and measures what they are worth."""

    def _looked_up(self, x: Tensor, refresh: bool = False) -> Tensor:
        """Return class ids: of all ranks, best first, where classes are shared; else those of this rank alone."""
        if refresh:
            self.index.refresh(self.weight, self.bias)
        count = min(self._retrieved, self.num_classes)
        each = min(count, self.shards.most_rows) if self.shared else self.shards.candidates_each(count)
        with torch.no_grad():
            found, logits = self._ranked_here(x, each, catch_up=not self.training)
        if self.shared:
            return self._best_of_all(logits, found, count)[1]
        everywhere = self.ranks.all_gather(logits, "candidates").permute(1, 0, 2).flatten(1)
        least = everywhere.topk(min(count, everywhere.shape[1]), 1).values[:, -1:]
        return found.masked_fill(logits < least, -1)

    def _best_of_all(self, values: Tensor, ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the `count` largest values of all ranks per example, and their ids; each gives equally many."""
        values = self.ranks.all_gather(values, "candidates").permute(1, 0, 2).flatten(1)
        ids = self.ranks.all_gather(ids, "candidates").permute(1, 0, 2).flatten(1)
        values, order = values.sort(dim=1, descending=True, stable=True)
        return values[:, :count], ids.gather(1, order)[:, :count]

    def _largest_of_all(self, values: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Return the largest values of all ranks, and their class ids. values: (examples, rows) of this rank."""
        best = values.topk(min(depth, values.shape[1]), 1)
        missing = (0, min(depth, self.shards.most_rows) - best.values.shape[1])
        ids = F.pad(self.shards.ids_of(best.indices), missing, value=-1)
        return self._best_of_all(F.pad(best.values, missing, value=-torch.inf), ids, depth)

    def _total(self, log_part: Tensor) -> Tensor:
        """Return the log of a sum over all ranks, of the logs of their parts."""
        return self.ranks.all_gather(log_part, "a normaliser").logsumexp(0)

    @torch.no_grad()
    def _measured(self, x: Tensor, positives: Tensor) -> Tensor:
        exact = self.layer.all_logits(x[:EXAMPLES])
        total = self._total(exact.logsumexp(1))
        probabilities = exact.sigmoid() if self.output == "logistic" else (exact - total[:, None]).exp()
        rows = self.shards.rows_for(positives)
        others = probabilities.index_fill(1, rows[rows >= 0], 0)
        likeliest, ids = self._largest_of_all(others, self.mining.candidates)
        there = ids >= 0
        self.mining.note_noise(
            sampling_noise(likeliest.masked_fill(~there, 0), self._chance(ids.clamp_min(0), positives))
        )
        return exact

    @torch.no_grad()
    def _note_step(
        self, classes: StepClasses, positives: Tensor, distinct: Tensor, pull: Tensor, exact: Tensor | None
    ) -> None:
        if self.index.built is not None:
            self.index.schedule.note_pull(distinct, pull)
        if exact is not None:
            seen = classes.without_tail(positives[: len(exact)])
            seen = seen.masked_fill(~self.shards.here(seen), -1)
            values, best = self._largest_of_all(exact, min(DEPTH, self.num_classes))
            found = (best[:, :, None] == seen[:, None, :]).any(2)  # each by the rank that has it
            found = self.ranks.all_gather(found.int(), "what was found").amax(0)[~values.isneginf()]
            rows = self.shards.rows_for(seen)
            inside = exact.gather(1, rows.clamp_min(0)).masked_fill(rows < 0, -torch.inf).logsumexp(1)
            kept = self._total(inside) - self._total(exact.logsumexp(1))
            self.meter.note(values.shape[1], found, kept, self.index.age())
        self.meter.count(len(distinct), self.shards.rows)
