"""One output layer learns a text: until its CPU seconds, or its words, are used up; resumable, evaluated on the way.

CPU seconds are those of all threads of the process, the one that makes batches included: two cores busy for a second
are two of them, and what else runs on the machine counts little. Evaluations and checkpoints cost none.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import manyclass.torch as mct
from experiments.skipgram.evaluation.analogies import Floats
from experiments.skipgram.heads.contestants import Contestant, Frequencies, made
from experiments.skipgram.heads.network import InputVectors, SkipGram
from experiments.skipgram.text.examples import Examples, made_ahead
from manyclass.errors import ConfigError, DivergedError, InputError
from manyclass.torch.checkpoint import checkpoint_info, load_checkpoint, save_checkpoint

Evaluate = Callable[[SkipGram], dict[str, Any]]
Show = Callable[[float, str], None]
CHECKPOINT_EVERY = 600.0  # CPU seconds, beside one at each evaluation
LEAST_RATE = 1e-3  # share of a falling rate that is left at the end
LOSS_MEMORY = 0.99


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long to learn: CPU seconds or words, one of them; evaluations: on the way, evenly, the last at the end."""

    seconds: float | None = None
    words: int | None = None
    evaluations: int = 1

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.words is None):
            raise ConfigError(f"seconds={self.seconds} and words={self.words}; give one of them")

    @property
    def total(self) -> float:
        """All of it, in its unit."""
        return float((self.words if self.seconds is None else self.seconds) or 0)

    @property
    def unit(self) -> str:
        """What it is counted in."""
        return "words" if self.seconds is None else "CPU seconds"


@dataclass
class Progress:
    """How far a run has come. cpu_seconds: of all threads; seconds: as a clock has it; loss: a running mean."""

    step: int = 0
    words: int = 0
    pairs: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    loss: float = 0.0
    curve: list[dict[str, Any]] = field(default_factory=list)

    def spent(self, budget: Budget) -> float:
        """Return how much of the budget is used up."""
        return self.words if budget.seconds is None else self.cpu_seconds

    def totals(self) -> dict[str, Any]:
        """Return everything but the curve."""
        return {name: value for name, value in asdict(self).items() if name != "curve"}


class Learner:
    """Network, optimizer and examples of one run, with its checkpoint."""

    def __init__(
        self, contestant: Contestant, examples: Examples, words: Frequencies, features: int, seed: int, checkpoint: Path
    ) -> None:
        head = made(contestant, features, words, seed)
        self.network = SkipGram(InputVectors(len(words.counts), features, seed), head)
        dense = list(head.parameters()) if contestant.every_class else []
        self.rate, self.falls = contestant.rate, contestant.falls
        self.optimizer = mct.RowAdagrad([self.network.vectors.weight, *dense], lr=self.rate)
        self.examples, self.checkpoint, self.progress = examples, checkpoint, Progress()
        before = checkpoint_info(checkpoint).extra if checkpoint.exists() else {}
        if before.pop("rate", None) == self.rate:  # of another rate: it begins anew
            self.progress = Progress(**before)
            load_checkpoint(checkpoint, self.network, self.optimizer)

    def learn(self, budget: Budget, evaluate: Evaluate, show: Show = lambda done, text: None) -> Progress:
        """Go on until the budget is used up, and return how far it has come."""
        progress = self.progress
        batches = made_ahead(self.examples.batch, progress.step)
        saved = progress.cpu_seconds
        self.network.train()
        try:
            while progress.spent(budget) < budget.total:
                cpu, clock = time.process_time(), time.perf_counter()
                batch = next(batches)
                if self.falls:
                    self._set_rate(self.rate * max(1 - progress.spent(budget) / budget.total, LEAST_RATE))
                self._step(batch)
                progress.cpu_seconds += time.process_time() - cpu
                progress.seconds += time.perf_counter() - clock
                share = min(1.0, progress.spent(budget) / budget.total)
                show(min(progress.spent(budget), budget.total), f"loss {progress.loss:.3f}")
                if math.floor(share * budget.evaluations + 1e-9) > len(progress.curve):
                    progress.curve.append(progress.totals() | evaluate(self.network))
                    saved = -math.inf
                if progress.cpu_seconds - saved > CHECKPOINT_EVERY:
                    kept = asdict(progress) | {"rate": self.rate}
                    save_checkpoint(self.checkpoint, self.network, self.optimizer, extra=kept)
                    saved = progress.cpu_seconds
        finally:
            batches.close()
        return progress

    def _set_rate(self, rate: float) -> None:
        """Set the learning rate of all vectors, of words and of the output layer."""
        for optimizer in (self.optimizer, getattr(self.network.head, "row_optimizer", None)):
            for group in optimizer.param_groups if optimizer else ():
                group["lr"] = rate

    def _step(self, batch: Any) -> None:
        if len(batch):
            loss = self.network(batch)
            value = float(loss.detach())
            if not math.isfinite(value):
                raise DivergedError(f"the loss of step {self.progress.step} is {value}; lower the learning rate")
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.progress.words += len(batch)
            self.progress.pairs += batch.pairs
            memory = LOSS_MEMORY if self.progress.step else 0.0
            self.progress.loss = memory * self.progress.loss + (1 - memory) * value
        self.progress.step += 1
        if not self.progress.words and self.progress.step >= self.examples.batches:
            raise InputError("no word of the whole text has a neighbour; give lines of more than one known word")


def vectors_of(network: SkipGram) -> Floats:
    """Return the word vectors, (words, features)."""
    found: Floats = network.vectors.weight.detach().numpy()
    return found
