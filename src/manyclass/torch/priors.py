"""Where the biases of a head start: at what is known of the classes before any input is seen.

With logistic outputs every class is a yes/no question. A bias of 0 answers it with p = ½: of ten thousand labels five
thousand are predicted at first, and most of a training goes into unlearning that. The log odds of how often a class is
right is the bias that a network without inputs would learn; with a softmax, the log of that frequency.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from manyclass._validation import check_count
from manyclass.errors import ConfigError, InputError, InputTypeError
from manyclass.torch.class_frequencies import checked_frequencies, smoothed
from manyclass.torch.head import Output, OutputHead
from manyclass.torch.target_counts import FOR_A_START, FOR_DRAWS, TargetCounts
from manyclass.torch.weight_watch import announce_moved


@dataclass(frozen=True)
class Prior:
    """How often each class was right, counts (num_classes,), among so many examples: where logistic biases start."""

    counts: Tensor
    examples: int


ENOUGH = FOR_A_START // 2  # targets after which the bias follows no more: what is kept must still begin with the first
PriorSetting = float | Tensor | Prior | Literal["counted"] | None


class HeadWithPrior(OutputHead):
    """A head whose bias starts at a prior, given or counted in its first batches.

    prior: None: as nn.Linear with a softmax; with logistic outputs every class is as likely as that one of all is
        right. A number: that probability for every class, logistic outputs only. A tensor of counts (num_classes,): the
        log frequency, softmax only. Prior(counts, examples): either. "counted": the targets of the first batches are
        counted, and each time their number has doubled, up to 65,536, the bias moves by what is known better by then.
    """

    bias: nn.Parameter | None
    target_counts: TargetCounts | None

    def _prepare_prior(
        self,
        prior: PriorSetting,
        output: Output,
        *,
        bias: bool,
        temperature: float = 1.0,
        counts_for_draws: bool = False,
    ) -> None:
        """Check and keep the prior, and count targets where it, or a sampler, wants that."""
        if not bias and prior is not None:
            raise ConfigError("prior is given, and bias=False leaves nothing to start there; set bias=True")
        self._logistic, self._temperature = output == "logistic", temperature
        self._counts_prior = isinstance(prior, str)
        self._unmet_start: Tensor | None = None  # of a class that comes later, where counts tell
        self._known_start = self._checked_start(prior) if bias else None
        remembered = FOR_DRAWS if counts_for_draws else FOR_A_START
        needed = self._counts_prior or counts_for_draws
        self.target_counts = TargetCounts(self.num_classes, remembered) if needed else None

    def _checked_start(self, prior: PriorSetting) -> Tensor | None:
        """Return where biases start, float64, one or (num_classes,); None: as nn.Linear."""
        if prior is None or isinstance(prior, str):
            if prior not in (None, "counted"):
                raise ConfigError(f"prior={prior!r} is unknown; choose 'counted', or give a number or counts")
            # One of all classes is right. With as few as one or two that is no better than p = ½.
            return _one_number(-math.log(max(1, self.num_classes - 1))) if self._logistic else None
        if isinstance(prior, Prior):
            examples = check_count("prior.examples", prior.examples)
            counts = checked_frequencies("prior.counts", prior.counts, self.num_classes)
            if counts.max() > examples:
                at = int(counts.argmax())
                raise InputError(f"prior.counts[{at}]={counts[at].item():g} is more than prior.examples={examples}")
            return self._start_of_all(counts, examples)
        if isinstance(prior, Tensor) and prior.dim():
            if self._logistic:
                raise ConfigError(
                    "prior is counts alone, and a logistic output asks of how many: Prior(counts, examples)"
                )
            return self._start_of_all(checked_frequencies("prior", prior, self.num_classes), 1)
        if isinstance(prior, bool) or not isinstance(prior, float | int):
            raise InputTypeError(
                f"prior is a {type(prior).__name__}; give a number, Prior(counts, examples) or 'counted'"
            )
        if not self._logistic:
            raise ConfigError(f"prior={prior} for every class says nothing to a softmax; give counts (num_classes,)")
        if not 0 < prior < 1:
            raise InputError(f"prior={prior} is no probability between 0 and 1; give for instance 0.001")
        return _one_number(math.log(prior) - math.log1p(-prior))

    def _start_of_all(self, counts: Tensor, examples: float) -> Tensor:
        """Return the biases that go with counts, and keep that of a class that was never met."""
        self._unmet_start = self._start_unmet(counts, examples)
        return self._start(counts, examples)

    def _start_unmet(self, counts: Tensor, examples: float) -> Tensor:
        """Return the bias of a class that was never met, beside such counts."""
        return self._start(torch.cat([counts.double(), _one_number(0.0)[None]]), examples)[-1]

    def _start(self, counts: Tensor, examples: float) -> Tensor:
        """Return the biases that go with counts (num_classes,) of so many examples, float64."""
        positive = smoothed(counts.double())
        if not self._logistic:
            return (positive / positive.sum()).log()
        rate = (positive / examples).clamp_max(1 - 0.5 / max(1.0, examples))  # not all yes: the next may be a no
        return rate.log() - (-rate).log1p()

    def _set_bias_start(self) -> None:
        """Put the bias where training starts; counts begin again."""
        if self.target_counts is not None:
            self.target_counts.forget()
        if self._known_start is not None and self.bias is not None:
            with torch.no_grad():
                self.bias.copy_((self._known_start * self._temperature).to(self.bias.dtype).expand_as(self.bias))

    def _start_of_new_classes(self, count: int) -> Tensor:
        """Return biases of classes that come later: 0, or those of classes that were never met."""
        return (self._start_of_later_classes() * self._temperature).float().expand(count)

    def _start_of_later_classes(self) -> Tensor:
        counts = self.target_counts
        if self._counts_prior and counts is not None and counts.known:
            return self._start_unmet(counts.counts, counts.known * counts.examples / counts.targets)
        if self._unmet_start is not None:
            return self._unmet_start
        return torch.zeros(()) if self._known_start is None else self._known_start

    def _prior_of_added(self, count: int) -> None:
        """Follow with counts and start when classes were added."""
        if self._known_start is not None and self._known_start.dim():
            self._known_start = torch.cat([self._known_start, self._start_of_later_classes().expand(count)])
        if self.target_counts is not None:
            self.target_counts.add_classes(count)

    def _prior_of_kept(self, kept: Tensor) -> None:
        """Follow when the classes kept, ascending, got the ids from 0 on."""
        if self._known_start is not None and self._known_start.dim():
            self._known_start = self._known_start[kept]
        if self.target_counts is not None:
            self.target_counts.keep_classes(kept)

    def _note_targets(self, positives: Tensor) -> None:
        """Count a batch that is about to be learned, and let the bias follow where it is due."""
        counts = self.target_counts
        if counts is None or not (self.training and torch.is_grad_enabled()):
            return
        if torch._C._current_graph_task_id() >= 0:  # activation checkpointing computes the step again in backward
            return
        moves = self._counts_prior and self.bias is not None and self.bias.requires_grad
        before, follows = counts.targets, moves and counts.targets < ENOUGH
        if follows:
            _refuse_processes()
        counts.add(positives)
        if follows:
            self._follow(counts, min(_power_of_two(counts.targets), ENOUGH), _power_of_two(before))

    @torch.no_grad()
    def _follow(self, counts: TargetCounts, now: int, before: int) -> None:
        """Move the bias by what the first targets say more of the classes; what it has learned meanwhile stays."""
        if now == before or (before and counts.targets > counts.remembered):  # a batch so large that the first are gone
            return
        assert self.bias is not None
        per_target = counts.examples / counts.targets
        new = self._start(counts.of_first(now), now * per_target)
        if before:
            old: Tensor | float = self._start(counts.of_first(before), before * per_target)
        else:
            old = 0.0 if self._known_start is None else self._known_start
        self.bias.data.add_(((new - old) * self._temperature).to(self.bias.dtype))
        announce_moved(self.bias, None)  # an index need not be built anew for it: its rounds will follow


def _one_number(value: float) -> Tensor:
    """Return it as a float64 tensor on the CPU, also where a head is made on the meta device."""
    return torch.tensor(value, dtype=torch.float64, device="cpu")


def _power_of_two(number: int) -> int:
    """Return the largest power of two that is not above a number; 0 of 0."""
    return 1 << (number.bit_length() - 1) if number else 0


def _refuse_processes() -> None:
    """Raise where processes would each move the bias by the examples of their own."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if distributed and torch.distributed.get_world_size() > 1:
        raise ConfigError("prior='counted' counts in one process; count before training: Prior(counts, examples)")
