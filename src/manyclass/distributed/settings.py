"""The output layer of a distributed job: its sizes, how classes are chosen, and how servers move its rows."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from manyclass._validation import check_count
from manyclass.config import HashConfig
from manyclass.distributed.row_rules import ServerRule
from manyclass.errors import ConfigError

__all__ = ["HeadSettings"]


@dataclass(frozen=True, kw_only=True)
class HeadSettings:
    """An output layer that is spread over shards.

    classes, features: its sizes. bias: whether it has one.
    shared: True (default): all examples of a batch compute the same classes, those of the batch, hard ones found for
        some of its examples, and a random tail that stands for all the rest. False: each example its own, as in the
        paper: its positives and `candidates` retrieved ones, nothing else.
    candidates: of each example, with shared=False.
    mined_examples, mined_every, mined_candidates: with shared=True, for how many examples hard classes are looked up,
        every how many steps of a worker, and how many for each.
    tail: random classes per step that stand, weighted, for those that are not computed; with shared=True.
    config: how classes are retrieved; None: what suits the size of a shard.
    refresh_steps: look-ups in which every class is hashed anew once, in turn. refresh_limit: at most so many at a time.
    rule: how shards move the rows. seed: of first weights and random classes.
    """

    classes: int
    features: int
    bias: bool = True
    shared: bool = True
    candidates: int = 300
    mined_examples: int = 32
    mined_every: int = 4
    mined_candidates: int = 16
    tail: int = 256
    config: HashConfig | None = None
    refresh_steps: int = 1000
    refresh_limit: int = 1000
    rule: ServerRule = field(default_factory=ServerRule)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("classes", "features", "candidates", "mined_every", "mined_candidates", "refresh_steps",
                     "refresh_limit"):  # fmt: skip
            check_count(name, getattr(self, name))
        for name in ("mined_examples", "tail", "seed"):
            check_count(name, getattr(self, name), low=0)
        if not self.shared and self.tail:
            raise ConfigError(f"tail={self.tail} with shared=False, the paper's rule, which has none; give tail=0")
        if self.config is not None:
            self.config.check_features(self.features)

    @classmethod
    def paper(cls, classes: int, features: int, **changes: Any) -> Self:
        """Return the paper's layer: own candidates by winner-take-all tables, no tail, lazy momentum 0.9."""
        rule = ServerRule(lr=0.001, momentum=0.9, lazy=True)
        made = cls(classes=classes, features=features, shared=False, tail=0, config=HashConfig.paper(), rule=rule)
        return replace(made, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON keeps them."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Return the settings that `to_json` gave."""
        config = None if saved["config"] is None else HashConfig(**saved["config"])
        return cls(**saved | {"config": config, "rule": ServerRule.from_json(saved["rule"])})
