"""Best classes and log probabilities over ranks: each answers for its own classes, for the inputs of all."""

from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass._topk import TopK
from manyclass._validation import check_count
from manyclass.errors import InputError
from manyclass.torch import all_classes
from manyclass.torch.candidate_softmax import CandidateSoftmax
from manyclass.torch.class_ids import among, first_places
from manyclass.torch.class_shards import ClassShards
from manyclass.torch.head import check_overflow, reshaped, without
from manyclass.torch.predictions import Normalizer, checked_normalizer, ranked
from manyclass.torch.ranks import Ranks, Said


class ShardedPredictions(CandidateSoftmax):
    """The half of a sharded head that answers questions. It has the rows of `shards`, and `ranks` have the others'."""

    ranks: Ranks
    shards: ClassShards

    def shortlist(self, x: Tensor, count: int) -> Tensor:
        """Return ids of `count` candidates per example among this rank's classes; nothing is exchanged."""
        return self.shards.ids_of(self._rows_found(x, count, catch_up=not self.training))

    @torch.compiler.disable
    @torch.no_grad()
    def topk(
        self,
        input: Tensor,
        k: int = 10,
        *,
        candidates: int | None = None,
        exclude: Tensor | None = None,
        normalizer: Normalizer = "candidates",
    ) -> TopK[Tensor]:
        """Return the k best classes of all ranks for each of this rank's inputs.

        candidates: int, default that of the head. Of all ranks together; each looks up its share and some more.
        exclude, normalizer: as for CandidateSoftmax.
        """
        flat, left_out, wanted = input, None, self.candidates

        def prepare() -> Said:
            nonlocal flat, left_out, wanted
            flat = self._flat(input)
            left_out = None if exclude is None else self._excluded(exclude, input.shape[:-1])
            if candidates is not None:
                wanted = min(check_count("candidates", candidates), self.num_classes)
            limit = self.num_classes if self._nothing_approximated else wanted
            if check_count("k", k) > limit:
                raise InputError(f"k={k} is more than candidates={limit}; raise candidates")
            same = {"k": k, "candidates": wanted, **self._agreed(flat, normalizer)}
            return Said((len(flat), 0 if left_out is None else left_out.shape[1]), same)

        sizes = self.ranks.meet("topk", prepare)
        counts, more = [size[0] for size in sizes], max(size[1] for size in sizes)
        with torch.autocast("cpu", enabled=False):
            x = self.prepared(self.ranks.gather_rows(flat, counts, "gathering inputs"))
            found = self._best_here(
                x, min(k + more, self.num_classes), min(wanted + more, self.num_classes), normalizer
            )
            best = self._best(*self._received(counts, *found))
        if left_out is not None:
            best = without(best, left_out, k)
        assert best.logits is not None
        best = TopK(classes=best.classes[:, :k], log_probs=best.log_probs[:, :k], logits=best.logits[:, :k])
        check_overflow(flat, best.log_probs)
        return reshaped(best, (*input.shape[:-1], k))

    def _best(self, ids: Tensor, logits: Tensor, log_parts: Tensor) -> TopK[Tensor]:
        """Return the best of what all ranks have found (ranks, examples, k), of equal ones the lowest id."""
        k = ids.shape[2]
        ids, logits = _side_by_side(ids), _side_by_side(logits)
        order = ids.masked_fill(ids < 0, torch.iinfo(ids.dtype).max).sort(1).indices
        logits, better = logits.gather(1, order).sort(dim=1, descending=True, stable=True)
        ids, logits = ids.gather(1, order).gather(1, better)[:, :k], logits[:, :k]
        return TopK(classes=ids, log_probs=self._log_probs(logits, log_parts), logits=logits)

    def _log_probs(self, logits: Tensor, log_parts: Tensor) -> Tensor:
        """Return log probabilities (examples, n), given the logs of the normaliser's parts (ranks, examples)."""
        if self.output == "logistic":
            return F.logsigmoid(logits)
        total = log_parts.logsumexp(0)
        return logits - total.masked_fill(total.isneginf(), 0)[:, None]  # nothing found: -inf for all, not NaN

    def _best_here(self, x: Tensor, k: int, candidates: int, normalizer: Normalizer) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids and logits (examples, k) of this rank's best, and the log of its part of the normaliser."""
        if self._nothing_approximated:
            inputs, weight, bias = self.layer.plain(x)
            best = all_classes.topk(inputs, weight, bias, min(k, self.shards.rows))
            assert best.logits is not None
            total = all_classes.log_normalizer(inputs, weight, bias)
            return (*_padded(self.shards.ids_of(best.classes), best.logits, k), total)
        each = max(self.shards.candidates_each(candidates), min(k, self.shards.most_rows))
        ids, logits = self._ranked_here(x, each)
        return (*_padded(ids[:, :k], logits[:, :k], k), self._log_part(x, ids, logits, normalizer))

    @torch.compiler.disable
    @torch.no_grad()
    def log_prob(
        self, input: Tensor, classes: Tensor | None = None, *, normalizer: Normalizer = "candidates"
    ) -> Tensor:
        """Return log probabilities of all classes, -inf for those not retrieved; or of given ones, of any rank."""
        flat, wanted = input, torch.empty(0, 0, dtype=torch.int64)

        def prepare() -> Said:
            nonlocal flat, wanted
            flat = self._flat(input)
            wanted = wanted.new_empty(len(flat), 0) if classes is None else self._wanted(classes, input)
            same = {"classes given": int(classes is not None), **self._agreed(flat, normalizer)}
            return Said((len(flat), wanted.shape[1]), same)

        sizes = self.ranks.meet("log_prob", prepare)
        counts, width = [size[0] for size in sizes], max(size[1] for size in sizes)
        with torch.autocast("cpu", enabled=False):
            x = self.prepared(self.ranks.gather_rows(flat, counts, "gathering inputs"))
            padded = F.pad(wanted, (0, width - wanted.shape[1]), value=-1)
            given = _once(self.shards.rows_for(self.ranks.gather_rows(padded, counts, "gathering classes")))
            ids, logits, log_parts = self._received(counts, *self._all_here(x, given, normalizer))
            if classes is None:
                every = logits.new_full((len(flat), self.num_classes + 1), -torch.inf)  # the last takes what is absent
                places = _side_by_side(ids)
                places = places.where(places >= 0, self.num_classes)
                values = every.scatter_(1, places, _side_by_side(logits))[:, :-1]
            else:  # a class that is asked for twice counts once, and is answered twice
                values = logits[:, :, : wanted.shape[1]].amax(0).gather(1, first_places(wanted))
            found = self._log_probs(values, log_parts)
        check_overflow(flat, found)
        return found.reshape(*input.shape[:-1], found.shape[-1])

    def _all_here(self, x: Tensor, given: Tensor, normalizer: Normalizer) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids and logits of the given rows and of what else is found, and the log of the normaliser's part."""
        everything = self._nothing_approximated
        each = self.shards.most_rows if everything else self.shards.candidates_each(self.candidates)
        found = self._rows_found(x, each)
        if given.shape[1]:
            found = found.masked_fill(among(found, given), -1)
        rows = torch.cat([given, found], 1)
        ids, logits = self.shards.ids_of(rows), self.layer.own_logits(x, rows)
        log_part = self._log_part(x, ids, logits, normalizer)
        return (*_padded(ids, logits, max(rows.shape[1], given.shape[1] + each)), log_part)

    def _ranked_here(self, x: Tensor, count: int, *, catch_up: bool = True) -> tuple[Tensor, Tensor]:
        """Return ids and logits, (examples, count), of this rank's candidates, best first; -1 and -inf where absent."""
        rows, logits = ranked(self.layer, x, self._rows_found(x, count, catch_up=catch_up))
        return _padded(self.shards.ids_of(rows[:, :count]), logits[:, :count], count)

    def _rows_found(self, x: Tensor, count: int, *, catch_up: bool = True) -> Tensor:
        """Return rows of this rank. catch_up: first re-hash all that have moved, as everybody but a step wants."""
        if count >= self.shards.rows:  # tables would leave out those without a vote
            return torch.arange(self.shards.rows).expand(len(x), -1)
        if catch_up:
            self.index.catch_up(self.weight, self.bias)
        return self.index.shortlist(x, count, self.weight, self.bias)

    def _log_part(self, x: Tensor, ids: Tensor, logits: Tensor, normalizer: Normalizer) -> Tensor:
        """Return the log of this rank's part of the normaliser. ids, logits: what it has found for each example."""
        if normalizer == "exact":
            return all_classes.log_normalizer(*self.layer.plain(x))
        if normalizer == "estimated":
            others, log_weights = self._others_at_random(ids)
            drawn = self.layer.own_logits(x, self.shards.rows_for(others))
            logits = torch.cat([logits, drawn + log_weights.to(x.dtype)], 1)
        return logits.logsumexp(1)

    def _agreed(self, flat: Tensor, normalizer: Any) -> dict[str, int]:
        """Return what all ranks must ask alike."""
        number = get_args(Normalizer).index(checked_normalizer(normalizer))
        wide = int(flat.dtype == torch.float64)
        return {"normalizer": number, "exact()": int(self._nothing_approximated), "float64 input": wide}

    def _received(self, counts: list[int], *parts: Tensor) -> tuple[Tensor, ...]:
        """Return what all ranks have found for this rank's examples, (ranks, examples, ...) each."""
        return tuple(self.ranks.to_owners(part, counts, "answers") for part in parts)


def _padded(ids: Tensor, logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return both with so many columns, -1 and -inf where there is nothing."""
    missing = (0, width - ids.shape[1])
    return F.pad(ids, missing, value=-1), F.pad(logits, missing, value=-torch.inf)


def _side_by_side(parts: Tensor) -> Tensor:
    """(ranks, examples, n) → (examples, ranks · n)."""
    return parts.permute(1, 0, 2).flatten(1)


def _once(rows: Tensor) -> Tensor:
    """Return rows with -1 in place of those that stand further left already: each counts once."""
    return rows.masked_fill(first_places(rows) != torch.arange(rows.shape[1]), -1)
