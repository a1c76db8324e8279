"""What an index knows of itself: what it chose, on what, and what to expect of it."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from manyclass.config import HashConfig

COUNTS = ("given", "fitted", "chosen_on", "judged_on", "classes", "k")


@dataclass(frozen=True)
class Expected:
    """What a search with so many candidates keeps on queries that nothing was fitted to or chosen by.

    microseconds: per query, in a batch and alone, where and when the index was built; None for a loaded index.
    """

    candidates: int
    agreement: float  # share of queries whose best class is the exact one
    recall: float  # share of the exact top k that the search returns
    batch_microseconds: float | None = None
    single_microseconds: float | None = None


@dataclass(frozen=True)
class Measured:
    """What was measured when an index was built, in plain numbers: the part of a report that is saved with it."""

    queries: str = "none"  # "real", "stand-ins" made from the rows, or "none"
    chosen: bool = False  # whether the config was chosen by measuring, or given
    given: int = 0  # queries in the sample
    fitted: int = 0  # of those, how many the balance was fitted to,
    chosen_on: int = 0  # the settings were chosen on,
    judged_on: int = 0  # and the result was judged on
    classes: int = 0  # there were at that time
    target: float = 0.99
    metric: Literal["top1", "recall"] = "top1"
    k: int = 10
    expected: tuple[Expected, ...] = ()
    drift: tuple[float, float] | None = None  # what early and late queries of the sample keep, where that differs

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it, without times: those belong to a machine and an hour."""
        plain = asdict(self)
        plain["expected"] = [[step.candidates, step.agreement, step.recall] for step in self.expected]
        plain["drift"] = None if self.drift is None else list(self.drift)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Measured":
        """Return what `as_dict` wrote down. Raises TypeError, ValueError or KeyError where it is something else."""
        steps = tuple(Expected(_whole(c), _share(a), _share(r)) for c, a, r in plain["expected"])
        drift = None if plain["drift"] is None else (_share(plain["drift"][0]), _share(plain["drift"][1]))
        if plain["queries"] not in ("real", "stand-ins", "none") or plain["metric"] not in ("top1", "recall"):
            raise ValueError("what was measured has unknown words")
        counts = {name: _whole(plain[name]) for name in COUNTS}
        if set(plain) != {entry.name for entry in fields(cls)} or not isinstance(plain["chosen"], bool):
            raise ValueError("what was measured has other parts")
        return cls(**{**plain, **counts, "target": _share(plain["target"]), "expected": steps, "drift": drift})


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _share(value: Any) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is no share")
    return float(value)


@dataclass(frozen=True)
class Report:
    """What an index chose, what it measured, and what to expect at which candidates. `print` it.

    met: whether the target was met on the judged queries; None where nothing was measured.
    seconds: of the build, by part ("choose", "build", "judge"); empty for a loaded index.
    """

    config: HashConfig
    classes: int
    features: int
    measured: Measured
    bytes_per_class: float
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def expected(self) -> tuple[Expected, ...]:
        return self.measured.expected

    @property
    def balanced(self) -> bool:
        return self.config.balance != "none"

    @property
    def kept(self) -> float | None:
        """What the target is about, at the config's own candidates."""
        at = next((step for step in self.expected if step.candidates == self.config.candidates), None)
        return None if at is None else at.agreement if self.measured.metric == "top1" else at.recall

    @property
    def met(self) -> bool | None:
        if not (self.config.bands or self.config.scan_bits):
            return True
        return None if self.kept is None else self.kept >= self.measured.target

    @property
    def warnings(self) -> list[str]:
        """What to know before trusting the figures, in sentences."""
        measured = self.measured
        found: list[str] = []
        if not (self.config.bands or self.config.scan_bits):
            return found
        if not measured.expected:
            found.append("nothing is known of what it keeps: no config was tried here. index.check(queries) measures")
            if measured.queries == "stand-ins":
                found.append("its balance was fitted to stand-ins made from the rows: give build real queries")
        elif measured.queries == "stand-ins":
            found.append(
                "measured on stand-ins made from the rows: real queries may be harder, and with a few thousand of "
                "them, build(rows, queries=...), the index would be faster and this report true"
            )
        if measured.expected and self.met is False:
            found.append(f"the target was missed: {self.kept:.4f} of {measured.target:g}; raise candidates or memory")
        if measured.queries == "real" and measured.expected:
            error = 2 * (measured.target * (1 - measured.target) / max(1, measured.judged_on)) ** 0.5
            if error > 0.5 * (1 - measured.target) + 0.003:
                found.append(
                    f"{measured.judged_on} judged queries tell a share to about ±{error:.3f}; give a few thousand"
                )
        if measured.drift is not None:
            early, late = measured.drift
            found.append(f"queries drift: early ones keep {early:.3f}, late ones {late:.3f}; give recent ones")
        if measured.classes and measured.classes != self.classes:
            found.append(f"{self.classes - measured.classes} classes were added since it was measured")
        return found

    def __str__(self) -> str:
        measured = self.measured
        bits = self.config.scan_bits or self.config.sketch_bits
        width = f", {bits} bits" if bits else ""
        coordinates = f" of {self.config.coordinates} directions" if self.config.coordinates else ""
        lines = [f"{self.classes:,} classes × {self.features} features: {self.config.pipeline}{width}{coordinates}"]
        how = "chosen" if measured.chosen else "given"
        lines.append(f"config {how}; candidates {self.config.candidates}; {self.bytes_per_class:.0f} bytes per class")
        if self.seconds:
            lines.append("seconds: " + ", ".join(f"{part} {took:.1f}" for part, took in self.seconds.items()))
        if measured.expected:
            lines.append(
                f"{measured.queries} queries: {measured.given or 'some'} given, {measured.fitted} fitted, "
                f"{measured.chosen_on} to choose, {measured.judged_on} judged; "
                f"target {measured.target:g} of {measured.metric} {'met' if self.met else 'missed'}"
            )
            recall = f"recall@{measured.k}"
            lines.append(f"{'candidates':>10}{'agreement':>11}{recall:>11}{'µs in batch':>13}{'µs alone':>10}")
            for step in measured.expected:
                times = (step.batch_microseconds, step.single_microseconds)
                batch, single = ("-" if each is None else f"{each:.0f}" for each in times)
                mark = " ← default" if step.candidates == self.config.candidates else ""
                lines.append(
                    f"{step.candidates:>10}{step.agreement:>11.4f}{step.recall:>11.4f}{batch:>13}{single:>10}{mark}"
                )
        return "\n".join([*lines, *(f"note: {warning}" for warning in self.warnings)])
