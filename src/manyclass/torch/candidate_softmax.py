"""The output layer over many classes that computes few of them: candidates of an index, positives, a random tail.

A training step reads as one line in `_losses`: prepare the input, refresh the index, choose classes (step_classes.py),
the loss with its gradients (shared_loss.py), which move the rows (row_step.py).

Longer than our usual file because it is the whole public face of the head, most of it signatures and docstrings.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyclass._index_state import Progress
from manyclass._topk import TopK
from manyclass._validation import Ids, check_count, check_ids, check_names
from manyclass.config import HashConfig
from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.torch import all_classes, predictions
from manyclass.torch.add_remove_classes import REMOVED, ChangingClasses
from manyclass.torch.approximation_meter import (
    EXAMPLES,
    likeliest_others,
    sampling_noise,
    usual_meter,
)
from manyclass.torch.class_sampler import ClassSampler
from manyclass.torch.class_targets import Targets
from manyclass.torch.head import Output, Reduction, checked_output, reshaped, squares_add_up
from manyclass.torch.head_index import HeadIndex
from manyclass.torch.linear_conversion import FromLinear, folded, linear_over
from manyclass.torch.mining import Mining
from manyclass.torch.predictions import Normalizer, checked_normalizer
from manyclass.torch.priors import PriorSetting
from manyclass.torch.recent_inputs import RecentInputs
from manyclass.torch.refresh_schedule import RefreshSchedule
from manyclass.torch.row_head import MakeOptimizer, RowUpdateMode
from manyclass.torch.row_products import ClassLayer
from manyclass.torch.shared_loss import shared_losses
from manyclass.torch.step_classes import (
    RecentClasses,
    StepClasses,
    own_classes,
    own_losses,
    sampled_outside,
    shared_classes,
)
from manyclass.torch.tail_and_targets import TailAndTargets

CANDIDATES = 300  # of a head that is told nothing
MEAN_RATE = 0.01  # share of a new batch in the running mean of the inputs
DRAWS = 128  # random classes of a step by default
MANY_TARGETS = 256  # part of the sample, beside which so few draws are enough, and at first fewer
PER_PASS, FEWEST_DRAWS = 8, 16  # beside so many targets: draws for each pass over the classes, and the fewest
FOR_EACH_LACKING = 2  # draws more; tried with the videos of experiments/video_id, at 32 targets
ESTIMATE_SAMPLES = 512  # random classes behind an estimated normaliser where the head has no tail


_EXACT_HEADS: ContextVar[frozenset[int]] = ContextVar("manyclass_exact_heads", default=frozenset())


class CandidateSoftmax(FromLinear, ChangingClasses):
    """Output layer over many classes that computes few of them: use it in place of nn.Linear and CrossEntropyLoss.

    in_features, num_classes: sizes of the layer.
    candidates: int, default that of `config`, or 300. Classes that are retrieved for each example in `topk` and
        `log_prob`, and in training with shared=False; more come closer to the exact answer, and are slower. Training
        with shared=True has `mined_candidates` instead.
    output: "softmax" (default), or "logistic": every class is a yes/no question.
    shared: bool = True. All examples of a batch use the same classes, its positives, the tail and what mining found:
        one dense product, and it learns better (docs/training.md). False: every example its own, as in the paper.
    mined_examples: int = 0. With shared=True, examples of a batch for which candidates are looked up. None by default:
        next to a light network the time is better spent on more steps. Where the network below takes most of a step,
        give it the batch, so that every example meets the classes it confuses (docs/training.md, "When to mine").
    mined_every: int = 1. Steps from one such look-up to the next, at least; more while hard classes hold little
        probability, as at the start of training.
    mined_candidates: int = 16. Classes retrieved for each of these examples.
    remembered: int = 2. How many of them its class keeps, for its next examples; 4 bytes each per class met.
    tail: int. Random classes per batch that stand, weighted, for all the rest in the normaliser; 0: none. By default
        128. Where the batch's targets are part of the sample, two more for each that it has fewer than 256; and beside
        256 or more, 8 for each pass over the classes that training has made, at least 16 and at most 128.
    tail_sampler: "batch" (default): uniform, and with shared=True the batch's own targets, where they are for all, are
        part of the sample, each weighted by how rare it was among the last million (tail_and_targets.py). "uniform":
        only the draws stand for the rest; "counted": half of them uniform, half as often as each class was among the
        last million targets; "log_uniform", for classes numbered from the most frequent on; or a tensor of frequencies
        (num_classes,). However they are drawn, the normaliser is estimated without bias.
    targets_for_all: bool = True. With shared=True, the targets of a batch are computed for all its examples, each of
        which learns what it is not. False: for their own example alone, and hard and random classes for all. Where
        examples have many targets, as words have neighbours, that takes a fraction of the time.
    prior: where the bias starts: None (default), a number, counts, Prior(counts, examples) or "counted", see
        HeadWithPrior.
    normalize: bool = False. Cosine logits; give a temperature well below 1 with it.
    temperature: float = 1.0. Divides the logits.
    subtract_mean: bool = False. Subtract a running mean from the inputs: for features with a large common part.
    config: HashConfig, default chosen by size. How classes are retrieved. Above 400,000 classes the default makes less
        effort than an index for serving; to serve such a head, give it `HashConfig.for_problem(classes, features)`.
    refresh_steps: int = 1000. Searches in training in which every class is re-hashed once, in turn.
    refresh_limit: int = 1000. Classes re-hashed before a search, at most.
    touched_first: bool = True. Beside the turn, re-hash the rows that the last step moved most.
    meter_every: int, default classes / 250, at least 10, and four times that where nothing is mined. Steps between two
        comparisons of a few examples with all classes, by which mining knows what it is worth; 0: never, and it goes on
        as often as it may. See `head.meter`.
    names: class names, saved with a checkpoint.
    seed: int = 0. Of the random tail.
    bias, ignore_index, reduction, device, dtype: as for nn.Linear and CrossEntropyLoss. dtype=torch.bfloat16 halves the
        memory of rows and optimizer, with a float32 bias.
    label_smoothing, class_weight: float = 0.0, tensor (num_classes,) = None. Of softmax, as in CrossEntropyLoss, where
        the latter is called `weight`. What is spread over all classes is estimated with the tail. New classes weigh 1.
    row_update, row_optimizer: who moves the rows, see RowHead.

    Every positive always counts, once.
    """

    input_mean: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        candidates: int | None = None,
        output: Output = "softmax",
        shared: bool = True,
        mined_examples: int = 0,
        mined_every: int = 1,
        mined_candidates: int = 16,
        remembered: int = 2,
        tail: int | None = None,
        tail_sampler: str | Tensor = "batch",
        targets_for_all: bool = True,
        prior: PriorSetting = None,
        normalize: bool = False,
        temperature: float = 1.0,
        subtract_mean: bool = False,
        config: HashConfig | None = None,
        refresh_steps: int = 1000,
        refresh_limit: int = 1000,
        touched_first: bool = True,
        meter_every: int | None = None,
        names: Sequence[str] | None = None,
        seed: int = 0,
        bias: bool = True,
        row_update: RowUpdateMode = "gradient",
        row_optimizer: MakeOptimizer | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if config is not None and not isinstance(config, HashConfig):
            raise InputTypeError(f"config is a {type(config).__name__}; pass a HashConfig")
        super().__init__(
            in_features, num_classes, bias=bias, row_update=row_update, row_optimizer=row_optimizer,
            ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing, class_weight=class_weight,
            device=device, dtype=dtype, budget={"config": config, "index": True, "normalize": bool(normalize)},
        )  # fmt: skip
        if isinstance(temperature, bool) or not isinstance(temperature, float | int) or not 0 < temperature < 1e30:
            raise ConfigError(f"temperature={temperature!r} is not a positive number; try 1.0")
        if config is not None:
            config.check_features(in_features)
        self.output = checked_output(output, label_smoothing, class_weight)
        if candidates is None:
            candidates = CANDIDATES if config is None else config.candidates
        self._candidates = check_count("candidates", candidates)
        self.shared, self.targets_for_all = bool(shared), bool(targets_for_all)
        self.mining = Mining(
            examples=mined_examples, every=mined_every, candidates=mined_candidates, remembered=remembered
        )
        self.tail = None if tail is None else check_count("tail", tail, low=0)
        self.normalize = bool(normalize)
        self.temperature = float(temperature)
        self.names = None if names is None else check_names("names", names, self.num_classes)
        counts = isinstance(tail_sampler, str) and tail_sampler == "counted"
        with_targets = isinstance(tail_sampler, str) and tail_sampler == "batch"
        self._prepare_prior(prior, self.output, bias=bias, temperature=self.temperature, counts_for_draws=counts)
        self._set_bias_start()
        self.sampler = ClassSampler(
            self.num_classes,
            "uniform" if with_targets else tail_sampler,
            seed,
            counts=self.target_counts,
            argument="tail_sampler",
        )
        samples_targets = with_targets and self.shared and self.tail != 0 and self.targets_for_all
        self.tail_and_targets = TailAndTargets(self.num_classes) if samples_targets else None
        mines = bool(self.mining.examples) or not self.shared
        self.meter = usual_meter(self.num_classes, meter_every, heeded=mines)
        schedule = RefreshSchedule(period=refresh_steps, limit=refresh_limit, touched_first=bool(touched_first))
        self.index = HeadIndex(config, schedule, candidates=self._retrieved, unit_rows=self.normalize)
        self._recent = RecentClasses()
        self.register_buffer("input_mean", torch.zeros(in_features) if subtract_mean else None)
        self.register_load_state_dict_post_hook(_forget_index)

    @property
    def candidates(self) -> int:
        """Classes per example that are retrieved: what was asked for, or all."""
        return min(self._candidates, self.num_classes)

    @candidates.setter
    def candidates(self, value: int) -> None:
        self._candidates = check_count("candidates", value)

    @property
    def pipeline(self) -> str:
        """The stages of retrieval in words."""
        return self.index.config_for(self.num_classes, self.in_features).pipeline

    @property
    def layer(self) -> ClassLayer:
        """Weight, bias and settings that make the logits; rows move in backward where `row_update` is "fused"."""
        removed = self.removed if len(self.removed) else None
        return ClassLayer(self.weight, self.bias, self._update, self.normalize, self.temperature, removed)

    @contextlib.contextmanager
    def exact(self) -> Iterator[Self]:
        """Within this context nothing is approximated: losses, topk and log_prob use all classes.

        Of this thread (or asynchronous task) only: others that use the head meanwhile go on as they are.
        """
        token = _EXACT_HEADS.set(_EXACT_HEADS.get() | {id(self)})
        try:
            yield self
        finally:
            _EXACT_HEADS.reset(token)

    @property
    def _nothing_approximated(self) -> bool:
        return id(self) in _EXACT_HEADS.get()

    def rebuild(self, ids: Any = None, *, progress: Progress | None = None) -> None:
        """Hash rows as they are now.

        ids: classes whose rows you changed by hand; None (default): all, for instance before the head is served. A
            head notices changes of its weights by itself, and then hashes all of them: naming the few is cheaper.
        progress: where all are hashed, called with (rows done, rows in all). None (default): on a terminal, with rich
            installed, a bar appears if it takes seconds.
        """
        if progress is not None and not callable(progress):
            raise InputTypeError(f"progress={progress!r} cannot be called; give a function of (done, total)")
        if ids is None:
            self.index.build(self.weight, self.bias, progress)
            return
        known = check_ids("ids", ids.numpy() if isinstance(ids, Tensor) else ids, self.num_classes)
        self.index.rebuild(self._rows_of(np.unique(known)), self.weight, self.bias)

    def _rows_of(self, ids: Ids) -> Ids:
        """Return the rows that hold these classes."""
        return ids

    def shortlist(self, x: Tensor, count: int) -> Tensor:
        """Return ids of `count` candidates per example, likeliest first; where that is all classes, in their order.

        By the rows as they are now, or, in training mode, as the index has them, which is what a step looks up.
        x: (examples, in_features), as `prepared` returns inputs.
        """
        if count >= self.num_classes:  # tables would leave out those without a vote
            every = torch.arange(self.num_classes).index_fill_(0, self.removed, -1)
            return every.expand(len(x), -1)
        if not self.training:
            self.index.catch_up(self.weight, self.bias)
        return self.index.shortlist(x, count, self.weight, self.bias)

    def prepared(self, input: Tensor) -> Tensor:
        """Return what the rows are multiplied with: the input, less the mean and of length one where asked for."""
        x = input.double() if self.weight.dtype == torch.float64 else input.float()
        if self.input_mean is not None:
            x = x - self.input_mean.to(x.dtype)
        return _unit(x) if self.normalize else x

    @torch.no_grad()
    def to_linear(self) -> nn.Linear:
        """Return an nn.Linear with the same logits; it shares the weight unless temperature or mean change it.

        Where classes were removed its bias is a copy, -inf for those.
        """
        if self.normalize:
            raise ConfigError("normalize=True: cosine logits are no linear layer; keep the head, or train without")
        if self.input_mean is None and self.temperature == 1 and not len(self.removed):
            return super().to_linear()
        weight, bias = folded(self.weight, self.bias, self.input_mean, self.temperature)
        bias = weight.new_zeros(self.num_classes) if bias is None else bias
        if self.input_mean is not None or self.temperature != 1:  # biases that would not follow if the rows moved
            weight = nn.Parameter(weight.clone() if weight is self.weight else weight)
        return linear_over(weight, nn.Parameter(bias.index_fill(0, self.removed, -torch.inf)))

    @torch.compiler.disable
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss. Where a step looks candidates up, it first re-hashes its share of the classes."""
        return super().forward(input, target)

    @torch.compiler.disable
    def topk(
        self,
        input: Tensor,
        k: int = 10,
        *,
        candidates: int | None = None,
        exclude: Tensor | None = None,
        normalizer: Normalizer = "candidates",
    ) -> TopK[Tensor]:
        """Return the k best of `candidates` retrieved classes.

        In evaluation, with rows that have not moved since they were hashed (`rebuild` after training), the index
        answers by itself: several times as fast, and side by side on many threads.

        candidates: int, default that of the head. More: closer to the exact answer, slower.
        normalizer: of the log_probs. "candidates" (default): over them, as in the paper; "estimated": over them and a
            random sample of the rest; "exact": over all classes, at the cost of all their logits.
        exclude: class ids (..., n) that are left out, padded with -1; as many more candidates are retrieved.
        """
        if exclude is None and normalizer == "candidates" and not self.training:
            answer = self._by_index_alone(input, k, self._candidates if candidates is None else candidates)
            if answer is not None:
                return answer
        return self._checked_topk(input, k, candidates, exclude, normalizer)

    def _by_index_alone(self, input: Tensor, k: int, candidates: int) -> TopK[Tensor] | None:
        """Return the index's own answer, which has all that is asked for; None where anything is unusual.

        Nothing is checked here that need not be: the way for everything else does, and says what is wrong. Looking up
        `self.weight` takes a module a microsecond; a weight that is no parameter (parametrized) is unusual.
        """
        weight, bias, mean = self._parameters.get("weight"), self._parameters.get("bias"), self._buffers["input_mean"]
        if weight is None or (bias is None and self.bias is not None):
            return None
        shape = input.shape if type(input) is Tensor else ()
        if not shape or shape[-1] != self.in_features or self.output != "softmax" or self.temperature != 1:
            return None
        if input.dtype != torch.float32 or not input.is_cpu or not weight.is_cpu:
            return None
        candidates = min(candidates, self.num_classes) if type(candidates) is int else 0
        if type(k) is not int or not 0 < k <= candidates or self._nothing_approximated:
            return None
        if candidates == self.num_classes:  # all of them, those without a vote, too
            return None
        x = input.detach() if len(shape) == 2 else input.detach().reshape(-1, shape[-1])
        if self.normalize or mean is not None:
            x = self.prepared(x)
        self.index.catch_up(weight, bias)
        best = self.index.answer(x, k, candidates, weight, bias)
        return best if best is None or len(shape) == 2 else reshaped(best, (*shape[:-1], k))

    def _checked_topk(
        self, input: Tensor, k: int, candidates: int | None, exclude: Tensor | None, normalizer: Normalizer
    ) -> TopK[Tensor]:
        wanted = self.candidates if candidates is None else min(check_count("candidates", candidates), self.num_classes)
        if check_count("k", k) > wanted and not self._nothing_approximated:
            raise InputError(f"k={k} is more than candidates={wanted}; raise candidates")
        if exclude is not None and isinstance(exclude, Tensor) and exclude.dim():
            wanted = min(wanted + exclude.shape[-1], self.num_classes)
        return super().topk(input, k, exclude=exclude, candidates=wanted, normalizer=checked_normalizer(normalizer))

    @torch.compiler.disable
    def log_prob(
        self, input: Tensor, classes: Tensor | None = None, *, normalizer: Normalizer = "candidates"
    ) -> Tensor:
        """Return log probabilities of all classes, -inf (the paper's zero) for those not retrieved; or of given ones.

        Given classes count as candidates of their example. normalizer: as for `topk`.
        """
        return super().log_prob(input, classes, normalizer=checked_normalizer(normalizer))

    def extra_settings(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the tensors, as JSON would."""
        self.index.forget_if_changed(self.weight, self.bias)  # who loads it could not tell
        kept = {"names": self.names, "meter_steps": self.meter.steps, "mining": self.mining.settings()}
        if self.tail_and_targets is not None:
            kept["targets"] = self.tail_and_targets.settings()
        return kept | {"tables": self.index.settings()}

    def extra_tensors(self, index: bool = True) -> dict[str, Tensor]:
        """Return what a checkpoint keeps beside the parameters: removed classes, random tail, mining, and the index."""
        self.index.forget_if_changed(self.weight, self.bias)
        state = {"generator": self.sampler.generator.get_state(), REMOVED: self.removed}
        parts = {"mining": self.mining.tensors(), "tables": self.index.tensors() if index else {}}
        if self.tail_and_targets is not None:
            parts["targets"] = self.tail_and_targets.tensors()
        if self.index.inputs is not None:
            parts["inputs"] = self.index.inputs.tensors()
        return state | {f"{part}.{name}": tensors[name] for part, tensors in parts.items() for name in tensors}

    def check_restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        """Raise a FileError if `restore` could not take this over; change nothing."""
        self.index.check_saved(settings["tables"], _beginning_with("tables.", tensors), self.weight)

    def restore(self, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
        """Take over what `extra_tensors` and `extra_settings` gave; nothing changes if anything does not fit."""
        names = settings["names"]
        names = None if names is None else check_names("names", names, self.num_classes)
        removed = self._checked_removed(tensors.get(REMOVED))
        index = self.index.restored(settings["tables"], _beginning_with("tables.", tensors), self.weight, self.bias)
        index.inputs = None
        if settings["tables"].get("inputs") and self.index.config is None:
            index.inputs = RecentInputs(self.in_features)
            index.inputs.restore(_beginning_with("inputs.", tensors), settings["tables"]["inputs"])
        if self.tail_and_targets is not None and "targets" in settings:  # absent before there was any: they begin anew
            self.tail_and_targets.restore(_beginning_with("targets.", tensors), settings["targets"])
        self.sampler.generator.set_state(tensors["generator"])
        if "mining" in settings:  # a checkpoint from before there was any goes on without lists
            self.mining.restore(_beginning_with("mining.", tensors), settings["mining"], self.num_classes)
        self.names, self.index, self.meter.steps = names, index, int(settings["meter_steps"])
        self._set_removed(removed)

    def reset_parameters(self) -> None:
        """Draw weight and bias as nn.Linear does; the bias starts at the prior, the running mean again."""
        super().reset_parameters()
        self._set_bias_start()
        if self.input_mean is not None:
            self.input_mean.zero_()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, candidates={self.candidates}, {self.pipeline}"

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        if self.training and self.input_mean is not None:
            self._follow_mean(input.detach())
        x = self.prepared(input)
        if self._nothing_approximated:
            return self._exact_losses(x, positives)
        again = self._recent.computed_before(positives) if self.training else None
        learning = self.training and torch.is_grad_enabled() and again is None
        if learning:
            self.index.note_inputs(x.detach(), self.meter.steps)
        exact = self._measured(x.detach(), positives) if learning and self.meter.due() else None
        classes = self._step_classes(x.detach(), positives, learning) if again is None else again
        targets = self._targets(positives, classes.ids, classes.log_weights)
        losses, distinct, pull = self._losses_over(x, classes, targets)
        if learning:
            self._recent.keep(positives, classes)
            self._note_step(classes, positives, distinct, pull, exact)
        return losses

    def _follow_mean(self, input: Tensor) -> None:
        """Let the running mean follow; not in a step that is computed again, nor by inputs that may be refused yet."""
        if torch._C._current_graph_task_id() < 0 and squares_add_up(input):
            assert self.input_mean is not None
            self.input_mean.lerp_(input.mean(0).to(self.input_mean.dtype), MEAN_RATE)

    def _exact_losses(self, x: Tensor, positives: Tensor) -> Tensor:
        """Return the losses over all classes, of inputs as `prepared` returns them."""
        targets = self._targets(positives) if self._weighs_targets else None
        logistic = self.output == "logistic"
        return all_classes.losses(*self.layer.plain(x), positives, logistic=logistic, targets=targets)

    def _losses_over(self, x: Tensor, classes: StepClasses, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
        """Return the losses over the classes of a step, the distinct ones, and how far the step pulls each."""
        layer, logistic = self.layer, self.output == "logistic"
        if self.shared:
            found = shared_losses(layer, x, classes, targets, logistic=logistic)
            return found.losses, classes.ids, found.pull
        logits = layer.own_logits(x, classes.ids)
        return own_losses(logits, classes, targets, logistic), *classes.pulled(logits.detach(), targets.positives)

    def _step_classes(self, x: Tensor, positives: Tensor, learning: bool) -> StepClasses:
        """Return the classes that this step computes."""
        if not self.shared:
            found = self._looked_up(x, learning)
            return own_classes(found, positives, tail=self._draws(), sampler=self._random_classes())
        hard = self._mined(x, positives) if learning else self._looked_up(x)
        if learning and self.tail_and_targets is not None:
            return self.tail_and_targets.classes(hard, positives, self._draws(positives), self.sampler)
        for_all, draws = self.targets_for_all or not self.training, self._draws()
        return shared_classes(hard, positives, tail=draws, sampler=self._random_classes(), targets_for_all=for_all)

    def _draws(self, positives: Tensor | None = None) -> int:
        """Return how many random classes a step draws. positives: of a batch whose targets may be a part of them."""
        if self.tail is not None:
            return self.tail
        if positives is None or self.tail_and_targets is None or not self.tail_and_targets.at_random:
            return DRAWS
        lacking = MANY_TARGETS - _present(positives)
        if lacking > 0:
            return DRAWS + FOR_EACH_LACKING * lacking
        passes = self.tail_and_targets.counts.targets / self.sampler.classes_left
        return min(DRAWS, max(FEWEST_DRAWS, round(PER_PASS * passes)))

    def _mined(self, x: Tensor, positives: Tensor) -> Tensor:
        """Return hard classes for a step: found for some of its examples, and remembered by the classes of all."""
        found = torch.empty(0, dtype=torch.int64)
        if not self.mining.examples and not self.mining.knows_any:
            return found
        if self.mining.due():
            examples, keys = self.mining.chosen(positives, self.num_classes)
            found = self._looked_up(x[examples], refresh=True)
            self.mining.remember(keys, found)
        recalled = self.mining.recalled(positives, self.num_classes)
        if len(self.removed):
            recalled = recalled[~self.sampler.removed.holds(recalled)]
        return torch.cat([found.reshape(-1), recalled])

    def _looked_up(self, x: Tensor, refresh: bool = False) -> Tensor:
        """Return candidates of examples, likeliest first; refresh: first re-hash the step's share of the classes."""
        if refresh:
            self.index.refresh(self.weight, self.bias)
        count = min(self._retrieved, self.num_classes)
        found = self.shortlist(x, count)
        if not self.shared or found.shape[1] <= count < self.num_classes:
            return found
        # Few classes come all at once, and in no order.
        values, ids = self.layer.all_logits(x).sort(dim=1, descending=True, stable=True)
        return ids.masked_fill(values.isneginf(), -1)[:, :count]

    @property
    def _retrieved(self) -> int:
        """Candidates that a training step looks up for an example."""
        return self.mining.candidates if self.shared else self._candidates

    def _random_classes(self) -> ClassSampler:
        """Return where random classes come from: in evaluation always the same ones, and training does not notice."""
        return self.sampler if self.training else ClassSampler(self.num_classes, removed=self.sampler.removed)

    @torch.no_grad()
    def _measured(self, x: Tensor, positives: Tensor) -> Tensor:
        """Return the logits of all classes for the first examples, and tell mining what it is worth."""
        exact = self.layer.all_logits(x[:EXAMPLES])
        likeliest, ids = likeliest_others(exact, positives, self.mining.candidates, self.output == "logistic")
        self.mining.note_noise(sampling_noise(likeliest, self._chance(ids, positives)))
        return exact

    def _chance(self, ids: Tensor, positives: Tensor) -> Tensor:
        """Return how likely each class is in a step with these positives that mines nothing."""
        if self.tail_and_targets is None or not self.tail_and_targets.at_random:
            return -torch.expm1(-self._draws() * self.sampler.log_probability(ids).exp())
        targets, left = _present(positives), self.sampler.classes_left
        found = self.tail_and_targets.chance(ids.numpy(), targets, len(positives), self._draws(positives), left)
        return torch.from_numpy(found)

    @torch.no_grad()
    def _note_step(
        self, classes: StepClasses, positives: Tensor, distinct: Tensor, pull: Tensor, exact: Tensor | None
    ) -> None:
        """Tell index and meter what this step is about to change: these classes, by so much.

        exact: logits of all classes of a few examples, where the meter compares.
        """
        if self.index.built is not None:
            self.index.schedule.note_pull(distinct, pull)
        if exact is not None:
            self.meter.compare(exact, classes.without_tail(positives[: len(exact)]), self.index.age())
        self.meter.count(len(distinct), self.num_classes)

    def _topk(self, input: Tensor, k: int, candidates: int = 0, normalizer: Normalizer = "candidates") -> TopK[Tensor]:
        x, layer, logistic = self.prepared(input), self.layer, self.output == "logistic"
        if self._nothing_approximated:
            return all_classes.topk(*layer.plain(x), k, logistic=logistic)
        self.index.catch_up(self.weight, self.bias)
        found = self.shortlist(x, candidates)
        return predictions.topk(layer, x, found, k, logistic, normalizer, self._others_at_random)

    def _log_prob(self, input: Tensor, classes: Tensor | None, normalizer: Normalizer = "candidates") -> Tensor:
        x, layer, logistic = self.prepared(input), self.layer, self.output == "logistic"
        if classes is not None and len(self.removed):
            classes = classes.masked_fill(self.sampler.removed.holds(classes), -1)
        if self._nothing_approximated:
            return all_classes.log_prob(*layer.plain(x), classes, logistic=logistic)
        self.index.catch_up(self.weight, self.bias)
        found = self.shortlist(x, self.candidates)
        return predictions.log_prob(layer, x, found, classes, logistic, normalizer, self._others_at_random)

    def _others_at_random(self, classes: Tensor) -> tuple[Tensor, Tensor]:
        return sampled_outside(classes, self._draws() or ESTIMATE_SAMPLES, self._random_classes())

    def _weights_replaced(self) -> None:
        super()._weights_replaced()
        self.index.forget()


def _present(positives: Tensor) -> int:
    """Return how many positives (examples, n) there are; every example has one, the first of its row."""
    return len(positives) if positives.shape[1] == 1 else int((positives >= 0).sum())


def _beginning_with(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): part for name, part in tensors.items() if name.startswith(prefix)}


def _unit(x: Tensor) -> Tensor:
    """Return vectors of length one, also of those whose squares are beyond their type."""
    lengths = x.detach().norm(dim=1)
    if not lengths.isfinite().all():
        x = x / x.detach().abs().amax(1, keepdim=True).clamp_min(1)
    return F.normalize(x)


def _forget_index(head: nn.Module, _: Any) -> None:
    """Loaded rows are in the old place: the index over them does not notice by itself."""
    assert isinstance(head, CandidateSoftmax)
    head.index.forget()
