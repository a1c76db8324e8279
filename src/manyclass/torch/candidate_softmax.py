"""The paper's output layer: exact logits for the classes that winner-take-all tables find, gradients for those only."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyclass._validation import check_count, check_names
from manyclass.config import HashConfig
from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.torch import add_remove_classes as editing
from manyclass.torch import all_classes as exact
from manyclass.torch.approximation_meter import EXAMPLES, ApproximationMeter
from manyclass.torch.class_sampler import ClassSampler
from manyclass.torch.head import TopK
from manyclass.torch.head_index import Tables
from manyclass.torch.row_head import RowHead
from manyclass.torch.row_products import array, gather_rows
from manyclass.torch.step_classes import Chosen, logits_of, own_logits, sampled_outside, shared_logits

Loss = Literal["softmax", "logistic"]
Normalizer = Literal["candidates", "estimated", "exact"]
MEAN_RATE = 0.01  # share of a new batch in the running mean of the inputs
SHARED_RANKS = 16  # ranks that a batch of a few hundred examples looks at
ESTIMATE_SAMPLES = 512  # random classes behind an estimated normaliser where the head has no tail


class CandidateSoftmax(RowHead):
    """Output layer over many classes that computes few of them: use it in place of nn.Linear and CrossEntropyLoss.

    candidates [K]: classes per example that get an exact logit. shared: all examples of a batch use the union of
    their best candidates, cut to `shared_limit` by rank; one dense product, and it learns better (docs/training.md).
    shared=False: every example its own, as in the paper. tail: random classes per batch that stand for all the rest
    in the normaliser. Every positive always counts, once.
    paper_exact: the literal rule of the paper: own candidates by votes of 1000 bands, no tail, round-robin refresh.
    normalize: cosine logits. temperature: divides the logits. center: subtract a running mean from the inputs.
    config: how classes are retrieved. refresh_steps, refresh_limit, touched_first: see Tables.
    """

    input_mean: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        candidates: int = 300,
        loss: Loss = "softmax",
        shared: bool = True,
        shared_limit: int = 2048,
        tail: int = 2048,
        paper_exact: bool = False,
        normalize: bool = False,
        temperature: float = 1.0,
        center: bool = False,
        config: HashConfig | None = None,
        refresh_steps: int = 1000,
        refresh_limit: int = 1000,
        touched_first: bool = True,
        meter_every: int = 100,
        names: Sequence[str] | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(in_features, num_classes, **settings)
        if loss not in get_args(Loss):
            raise ConfigError(f"loss={loss!r} is unknown; choose 'softmax' or 'logistic'")
        if isinstance(temperature, bool) or not isinstance(temperature, float | int) or not 0 < temperature < 1e30:
            raise ConfigError(f"temperature={temperature!r} is not a positive number; try 1.0")
        if config is not None and not isinstance(config, HashConfig):
            raise InputTypeError(f"config is a {type(config).__name__}; pass a HashConfig")
        if paper_exact:
            shared, tail, touched_first = False, 0, False
            config = config or HashConfig.paper()
        if config is not None:
            config.check_features(in_features)
        self._candidates = check_count("candidates", candidates)
        self.loss = loss
        self.shared = bool(shared)
        self.shared_limit = check_count("shared_limit", shared_limit)
        self.tail = check_count("tail", tail, low=0)
        self.normalize = bool(normalize)
        self.temperature = float(temperature)
        self.names = None if names is None else check_names("names", names, self.num_classes)
        self.sampler = ClassSampler(self.num_classes, seed=seed)
        self.meter = ApproximationMeter(meter_every)
        self.tables = Tables(
            config,
            candidates=SHARED_RANKS if self.shared else self.candidates,
            period=refresh_steps,
            limit=refresh_limit,
            touched_first=bool(touched_first),
            unit_rows=self.normalize,
        )
        self.register_buffer("input_mean", torch.zeros(in_features) if center else None)
        self._exact = False
        self.register_load_state_dict_post_hook(_drop_tables)

    @property
    def candidates(self) -> int:
        """Classes per example that get an exact logit: what was asked for, or all."""
        return min(self._candidates, self.num_classes)

    @candidates.setter
    def candidates(self, value: int) -> None:
        self._candidates = check_count("candidates", value)

    @property
    def pipeline(self) -> str:
        """The stages of retrieval in words."""
        return self.tables.config_for(self.num_classes, self.in_features).pipeline

    @property
    def draws(self) -> ClassSampler:
        """Where random classes come from: in evaluation the same ones each time, and training goes on undisturbed."""
        return self.sampler if self.training else ClassSampler(self.num_classes, seed=0)

    @contextlib.contextmanager
    def exact(self) -> Iterator[Self]:
        """Within this context nothing is approximated: losses, topk and log_prob use all classes."""
        before, self._exact = self._exact, True
        try:
            yield self
        finally:
            self._exact = before

    @classmethod
    def from_linear(cls, linear: nn.Linear, **settings: Any) -> Self:
        """Return a head over the layer's own weight and bias: shared with it, not copied."""
        if not isinstance(linear, nn.Linear):
            raise InputTypeError(f"linear is a {type(linear).__name__}; pass the nn.Linear to approximate")
        head = cls(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta", **settings)
        head._replace("weight", linear.weight)
        head._replace("bias", linear.bias)
        return head

    @torch.no_grad()
    def to_linear(self) -> nn.Linear:
        """Return an nn.Linear with the same logits; it shares the weight unless temperature or mean change it."""
        if self.normalize:
            raise ConfigError("normalize=True: cosine logits are no linear layer; keep the head, or train without")
        linear = nn.Linear(self.in_features, self.num_classes, bias=self.bias is not None, device="meta")
        linear.weight = self.rows.weight
        if self.rows.bias is not None:
            linear.bias = self.rows.bias
        if self.input_mean is not None or self.temperature != 1:
            bias = self.weight.new_zeros(self.num_classes) if self.bias is None else self.bias
            if self.input_mean is not None:
                bias = bias - self.weight @ self.input_mean.to(self.weight.dtype)
            linear.weight = nn.Parameter(self.weight / self.temperature)
            linear.bias = nn.Parameter(bias / self.temperature)
        return linear

    def add_classes(
        self,
        count: int | None = None,
        *,
        rows: Tensor | None = None,
        bias: Tensor | None = None,
        names: Sequence[str] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> range:
        """Add classes, `count` random ones or these rows, and return their ids; the optimizer's state grows along."""
        return editing.add_classes(self, count, rows, bias, names, [optimizer] if optimizer else [])

    def remove_classes(self, ids: Any, *, optimizer: torch.optim.Optimizer | None = None) -> Tensor:
        """Remove classes; the others move up. Returns, for every new id, the id it had before."""
        return editing.remove_classes(self, ids, [optimizer] if optimizer else [])

    @torch.compiler.disable
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss. In training mode this also re-hashes the step's share of the classes."""
        return super().forward(input, target)

    @torch.compiler.disable
    def topk(
        self, input: Tensor, k: int = 10, *, candidates: int | None = None, normalizer: Normalizer = "candidates"
    ) -> TopK:
        """Return the k best of `candidates` retrieved classes.

        log_probs are normalised over the candidates (paper); "estimated": over them and a random sample of the rest;
        "exact": over all classes, at the cost of all their logits.
        """
        wanted = self.candidates if candidates is None else min(check_count("candidates", candidates), self.num_classes)
        if check_count("k", k) > wanted and not self._exact:
            raise InputError(f"k={k} is more than candidates={wanted}; raise candidates")
        return super().topk(input, k, candidates=wanted, normalizer=_checked(normalizer))

    @torch.compiler.disable
    def log_prob(
        self, input: Tensor, classes: Tensor | None = None, *, normalizer: Normalizer = "candidates"
    ) -> Tensor:
        """Return log probabilities of all classes, -inf (the paper's zero) for those not retrieved; or of given ones.

        Given classes count as candidates of their example.
        """
        return super().log_prob(input, classes, normalizer=_checked(normalizer))

    def shortlist(self, x: Tensor, count: int) -> Tensor:
        """Return ids of `count` candidates per example, likeliest first, from the tables as they are."""
        index, wanted = self.tables.over(self.weight, self.bias), min(count, self.num_classes)
        return torch.from_numpy(index.shortlist(array(x.float()), wanted, threads=torch.get_num_threads()))

    def extra_settings(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the tensors, as JSON would."""
        return {"names": self.names, "meter_steps": self.meter.steps, "tables": self.tables.settings()}

    def extra_tensors(self, tables: bool = True) -> dict[str, Tensor]:
        """Return what a checkpoint keeps beside the parameters: the state of the random tail, and the tables."""
        kept = self.tables.tensors() if tables else {}
        return {"generator": self.sampler.generator.get_state()} | {f"tables.{name}": kept[name] for name in kept}

    def check_restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        """Raise a FileError if `restore` could not take this over; change nothing."""
        kept = {name: part for name, part in tensors.items() if name.startswith("tables.")}
        self.tables.check_saved(settings["tables"], kept, self.weight)

    def restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        """Take over what `extra_tensors` and `extra_settings` gave; nothing changes if anything does not fit."""
        names = settings["names"]
        names = None if names is None else check_names("names", names, self.num_classes)
        kept = {name.removeprefix("tables."): part for name, part in tensors.items() if name.startswith("tables.")}
        tables = self.tables.restored(settings["tables"], kept, self.weight)
        self.sampler.generator.set_state(tensors["generator"])
        self.names, self.tables, self.meter.steps = names, tables, int(settings["meter_steps"])

    def reset_parameters(self) -> None:
        """Draw weight and bias as nn.Linear does; the running mean starts again."""
        super().reset_parameters()
        if self.input_mean is not None:
            self.input_mean.zero_()

    def _weights_replaced(self) -> None:
        super()._weights_replaced()
        self.tables.drop()

    def _prepared(self, input: Tensor) -> Tensor:
        """Return what the rows are multiplied with."""
        wide = self.weight.dtype == torch.float64
        x = input.double() if wide else input.float()
        if self.input_mean is not None:
            x = x - self.input_mean.to(x.dtype)
        return F.normalize(x) if self.normalize else x

    def _all_classes(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return inputs, weight and bias whose plain product gives the logits of all classes."""
        weight, bias, update = self.weight, self.bias, self._update
        if update is not None:
            everything = torch.arange(self.num_classes)
            weight = gather_rows(weight, everything, update)
            bias = None if bias is None else gather_rows(bias, everything, update)
        weight = F.normalize(weight.to(x.dtype)) if self.normalize else weight.to(x.dtype)
        return x / self.temperature, weight, None if bias is None else bias.to(x.dtype) / self.temperature

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        if self.training and self.input_mean is not None:
            self.input_mean.lerp_(input.detach().mean(0).to(self.input_mean.dtype), MEAN_RATE)
        x = self._prepared(input)
        logistic = self.loss == "logistic"
        if self._exact:
            return exact.losses(*self._all_classes(x), positives, logistic=logistic)
        learning = self.training and torch.is_grad_enabled()
        if learning:
            self.tables.refresh(self.weight, self.bias)
        if self.shared:
            chosen = shared_logits(self, x, positives)
        else:
            chosen = own_logits(self, x, positives, self.shortlist(x, self.candidates))
        if learning:
            self._note(x.detach(), chosen, positives)
        of_positives = chosen.positives.masked_fill(positives < 0, 0).sum(1)
        if logistic:
            return (F.softplus(chosen.values) * chosen.log_weights.exp()).sum(1) - of_positives
        return (chosen.values + chosen.log_weights).logsumexp(1) - of_positives / (positives >= 0).sum(1)

    @torch.no_grad()
    def _note(self, x: Tensor, chosen: Chosen, positives: Tensor) -> None:
        """Tell tables and meter what this step is about to change."""
        distinct, pull = _pull_of(chosen, positives, self.shared)
        first = pull.topk(min(len(pull), self.tables.limit)).indices
        self.tables.touched = array(distinct[first])
        if self.meter.due():
            few = slice(0, EXAMPLES)
            logits = F.linear(*self._all_classes(x[few]))
            self.meter.compare(logits, chosen.classes[few].masked_fill(chosen.log_weights[few] != 0, -1))
            mean, largest = self.tables.age()
            self.meter.readings |= {"table_age_mean": mean, "table_age_max": float(largest)}
        self.meter.count(len(distinct), self.num_classes)

    def _topk(self, input: Tensor, k: int, candidates: int = 0, normalizer: Normalizer = "candidates") -> TopK:
        x = self._prepared(input)
        logistic = self.loss == "logistic"
        if self._exact:
            return exact.topk(*self._all_classes(x), k, logistic=logistic)
        classes = self._ascending(self.shortlist(x, candidates))
        values, order = logits_of(self, x, classes).sort(dim=1, descending=True, stable=True)  # of equals the lowest id
        best = values[:, :k]
        classes = classes.gather(1, order)
        shift = F.logsigmoid(best) if logistic else best - self._log_normalizer(x, classes, values, normalizer)
        return TopK(classes[:, :k], shift)

    def _log_prob(self, input: Tensor, classes: Tensor | None, normalizer: Normalizer = "candidates") -> Tensor:
        x = self._prepared(input)
        logistic = self.loss == "logistic"
        if self._exact:
            return exact.log_prob(*self._all_classes(x), classes, logistic=logistic)
        found = self.shortlist(x, self.candidates)
        if classes is not None:
            found = found.masked_fill((found[:, :, None] == classes[:, None, :]).any(2), -1)
            repeated = torch.ones(classes.shape[1], classes.shape[1], dtype=torch.bool).tril(-1)
            again = ((classes[:, :, None] == classes[:, None, :]) & repeated).any(2)
            found = torch.cat([classes.masked_fill(again, -1), found], 1)
        values = logits_of(self, x, found)
        normalized = F.logsigmoid(values) if logistic else values - self._log_normalizer(x, found, values, normalizer)
        if classes is not None:
            if again.any():  # a class that is asked for twice counts once, and is answered twice
                first = (classes[:, :, None] == classes[:, None, :]).int().argmax(2)
                return normalized.gather(1, first)
            return normalized[:, : classes.shape[1]]
        everything = x.new_full((len(x), self.num_classes + 1), -torch.inf)
        return everything.scatter_(1, found.where(found >= 0, self.num_classes), normalized)[:, :-1]

    def _log_normalizer(self, x: Tensor, classes: Tensor, values: Tensor, how: Normalizer) -> Tensor:
        if how == "exact":
            return exact.log_normalizer(*self._all_classes(x))[:, None]
        if how == "estimated":
            tail, log_weights = sampled_outside(self, classes, self.tail or ESTIMATE_SAMPLES)
            values = torch.cat([values, logits_of(self, x, tail) + log_weights.to(x.dtype)], 1)
        total = values.logsumexp(1, keepdim=True)
        return total.masked_fill(total.isneginf(), 0)  # nothing found: -inf for every class, not NaN

    @staticmethod
    def _ascending(classes: Tensor) -> Tensor:
        """Return ids in order, absent ones (-1) last."""
        last = torch.iinfo(classes.dtype).max
        ordered = classes.masked_fill(classes < 0, last).sort(1).values
        return ordered.masked_fill(ordered == last, -1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, candidates={self.candidates}, {self.pipeline}"


def _pull_of(chosen: Chosen, positives: Tensor, shared: bool) -> tuple[Tensor, Tensor]:
    """Return the distinct classes of a step and how far it pulls each: its probabilities, and 1 per positive."""
    share = (chosen.values + chosen.log_weights).softmax(1)
    if shared:
        distinct, pull = chosen.classes[0], share.sum(0)
    else:
        distinct, places = torch.unique(chosen.classes, return_inverse=True)
        pull = share.new_zeros(len(distinct)).index_add_(0, places.reshape(-1), share.reshape(-1))
        if len(distinct) and distinct[0] < 0:
            distinct, pull = distinct[1:], pull[1:]
    of_positives = torch.searchsorted(distinct, positives[positives >= 0])
    return distinct, pull.index_add(0, of_positives, torch.ones(len(of_positives), dtype=pull.dtype))


def _checked(normalizer: Normalizer) -> Normalizer:
    if normalizer not in get_args(Normalizer):
        raise ConfigError(f"normalizer={normalizer!r} is unknown; choose {', '.join(get_args(Normalizer))}")
    return normalizer


def _drop_tables(head: nn.Module, _: Any) -> None:
    """Loaded rows are in the old place: the tables over them do not notice by themselves."""
    assert isinstance(head, CandidateSoftmax)
    head.tables.drop()
