"""Sizes and stages of an index, and the limits of both.

Longer than our usual file because the fields, their documentation, their checks and the presets belong together.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypeVar

from manyclass.errors import ConfigError

# Limits of the core (cpp/limits.h says why they are what they are, and a test compares).
MAX_BANDS = 65_535
MIN_WINDOW, MAX_WINDOW = 2, 16
MAX_BUCKET_BITS = 24
MAX_PROBED_CODES = 6  # codes of a band that may give way to their runner-up
SKETCH_STEP = 32
MAX_SKETCH_BITS = 4096
MAX_CELLS = 65_535
MAX_CELL_FEATURES = 65_536
MAX_BALANCED_FEATURES = 8192
MAX_THREADS = 255
# Limits of our own.
MAX_CLASSES = 2**32 - 2
MAX_FEATURES = 2**20  # of a file or a rule of thumb: more would be a mistake
WINDOWS = tuple(2**bits for bits in range(MIN_WINDOW.bit_length() - 1, MAX_WINDOW.bit_length()))

FLAT_SCAN_CLASSES = 400_000  # above this, tables beat a flat pass over the sketch: docs/how_it_works.md has the figure
CLASSES_PER_CELL = 256
EXACT_CLASSES = 2_000  # below this, every class gets an exact logit


@dataclass(frozen=True, kw_only=True)
class HashConfig:
    """Sizes of an index and which stages it has. The defaults are the paper's; brackets give its letters.

    Classes are found either by tables (`bands` > 0) or by a scan over a short sketch of every class (`scan_bits` > 0);
    re-ranked by a longer sketch (`sketch_bits` > 0) or by votes with norm and bias (`rescore`); and scored exactly.
    With neither tables nor scan, every class gets an exact logit. Mostly you want `for_problem` or `manyclass.tune`.

    window: int = 16. [k] Elements compared by one code: 2, 4, 8 or 16. Smaller for few features.
    codes: int = 3000. [P] Codes per vector. More per band make buckets smaller and more selective.
    bands: int = 1000. [M] Hash tables; must divide `codes`. More find more, and cost time and memory; 0 for none.
    keys: "exact" or "fast" = "exact". Compare 28 bits of each float, or 12 bits relative to the largest: faster, and
        needed for `probes`.
    probes: int = 1. Buckets read per band, on average, at most. Above 1 the likeliest buckets of all bands are read:
        for few bands and very many classes.
    skip_silent: bool = False. Ignore bands where a window of the query holds nothing but zeros. For ReLU outputs.
    breadth: int = 1. Classes that tables or scan hand on to the re-ranking, per candidate. Raise it for recall.
    rescore: bool = False. Rank by |x||w|f(votes) + bias instead of votes. For rows of unequal norms, or a bias.
    always: int = 0. Classes looked at for every query: those with the largest bias and norm. For a strong bias.
    scan_bits: int = 0. Sign bits per class that are scanned for every query; a multiple of 32. More find more.
    cells: int = 0. Parts of the scan, of which a query passes over the likeliest; 0 scans everything. One per 256
        classes speeds up a scan of 20,000 and more.
    cell_reach: int = 400. Candidates for which all cells are scanned; for fewer, the square root of that share.
        Raise it for speed, lower it for recall.
    sketch_bits: int = 0. Sign bits per class that re-rank what tables or scan found; a multiple of 32.
    balance: "none", "features" or "directions" = "none". Change coordinates so that rows and queries vary alike, which
        sketch, cells and codes then work in: scale each feature, or also turn all together. Needs a sample of queries
        when the index is built. Candidates are scored exactly on the rows themselves all the same.
    coordinates: int = 0. Of "directions": how many are kept, those that contribute most; 0 keeps all.
    candidates: int = 300. [K] Classes that get an exact logit, unless a search says otherwise. The first knob to turn.
    output: "softmax" or "logistic" = "softmax". What log_probs are: logistic where a query has several classes.
    seed: int = 0. Of the random windows and signs.
    """

    window: int = 16
    codes: int = 3000
    bands: int = 1000
    keys: Literal["exact", "fast"] = "exact"
    probes: int = 1
    skip_silent: bool = False
    breadth: int = 1
    rescore: bool = False
    always: int = 0
    scan_bits: int = 0
    cells: int = 0
    cell_reach: int = 400
    sketch_bits: int = 0
    balance: Literal["none", "features", "directions"] = "none"
    coordinates: int = 0
    candidates: int = 300
    output: Literal["softmax", "logistic"] = "softmax"
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in (int, "int") and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigError(f"{field.name}={value!r} is not a whole number; give an int")
            if field.type in (bool, "bool") and not isinstance(value, bool):
                raise ConfigError(f"{field.name}={value!r} is neither True nor False")
        _one_of("keys", self.keys, ("exact", "fast"))
        _one_of("output", self.output, ("softmax", "logistic"))
        _one_of("window", self.window, WINDOWS)
        _one_of("balance", self.balance, ("none", "features", "directions"))
        _between("coordinates", self.coordinates, 0, MAX_FEATURES)
        _between("seed", self.seed, 0, 2**63 - 1)
        _between("candidates", self.candidates, 1, 2**31 - 1)
        _between("breadth", self.breadth, 1, 2**20)
        _between("always", self.always, 0, 2**20)
        _between("bands", self.bands, 0, MAX_BANDS)
        _between("cells", self.cells, 0, MAX_CELLS)
        _between("cell_reach", self.cell_reach, 1, 2**31 - 1)
        for name in ("scan_bits", "sketch_bits"):
            bits = getattr(self, name)
            if bits % SKETCH_STEP or not 0 <= bits <= MAX_SKETCH_BITS:
                nearest = min(MAX_SKETCH_BITS, max(0, SKETCH_STEP * round(bits / SKETCH_STEP)))
                raise ConfigError(
                    f"{name}={bits} is not a multiple of {SKETCH_STEP} up to {MAX_SKETCH_BITS}; try {nearest}"
                )
        if self.bands and self.scan_bits:
            raise ConfigError(f"bands={self.bands} and scan_bits={self.scan_bits} both find classes; set one to 0")
        if self.cells and not self.scan_bits:
            raise ConfigError(
                f"cells={self.cells} are parts of a scan, and scan_bits=0 has none; set scan_bits or cells=0"
            )
        if self.sketch_bits and not (self.bands or self.scan_bits):
            raise ConfigError(f"sketch_bits={self.sketch_bits} re-ranks what others find; set bands or scan_bits")
        if self.coordinates and self.balance != "directions":
            raise ConfigError(
                f"coordinates={self.coordinates} are kept of directions, and balance={self.balance!r} has none; "
                f"set balance='directions' or coordinates=0"
            )
        if self.balance != "none" and not (self.bands or self.scan_bits):
            raise ConfigError(f"balance={self.balance!r} helps sketches and tables; set bands or scan_bits, or 'none'")
        if self.bands:
            self._check_tables()
        elif self.codes < 0:
            raise ConfigError(f"codes={self.codes} is negative; try 0")
        elif self.rescore or self.always or self.probes != 1:
            raise ConfigError("rescore, always and probes belong to tables, and bands=0 has none; set bands")

    def _check_tables(self) -> None:
        if self.codes < self.bands or self.codes % self.bands:
            nearest = max(1, round(self.codes / self.bands)) * self.bands
            raise ConfigError(f"bands={self.bands} does not divide codes={self.codes}; try codes={nearest}")
        if self.bucket_bits > MAX_BUCKET_BITS:
            most = MAX_BUCKET_BITS // self.code_bits * self.bands
            raise ConfigError(
                f"codes={self.codes} over bands={self.bands} makes {self.bucket_bits}-bit buckets, "
                f"the most is {MAX_BUCKET_BITS}; try codes={most} or more bands"
            )
        _between("probes", self.probes, 1, 2 ** min(MAX_PROBED_CODES, self.codes_per_band))
        if self.probes > 1 and self.keys != "fast":
            raise ConfigError(f"probes={self.probes} needs margins that mean something; set keys='fast'")
        if self.always and not (self.rescore or self.sketch_bits):
            raise ConfigError(f"always={self.always} needs a stage that can rank them; set rescore or sketch_bits")

    @property
    def codes_per_band(self) -> int:
        return self.codes // self.bands if self.bands else 0

    @property
    def code_bits(self) -> int:
        return self.window.bit_length() - 1

    @property
    def bucket_bits(self) -> int:
        """Bits of a bucket number: each band has 2 to this power buckets."""
        return self.codes_per_band * self.code_bits

    @property
    def pipeline(self) -> str:
        """The stages in words, e.g. 'tables → votes → exact'."""
        stages = ["tables"] if self.bands else ["scan"] if self.scan_bits else []
        if self.cells:
            stages.insert(0, "cells")
        if self.balance != "none":
            stages.insert(0, "balance")
        if self.bands and self.probes > 1:
            stages.append("probes")
        if self.bands and (self.probes == 1 or not self.sketch_bits):
            stages.append("votes")
        if self.sketch_bits:
            stages.append("sketch")
        elif self.rescore:
            stages.append("re-score")
        return " → ".join([*stages, "exact"])

    def with_(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked again."""
        return replace(self, **changes)

    def check_features(self, features: int) -> None:
        """Raise where this config cannot hash vectors of that width."""
        width = self.width(features)
        if self.bands and width < self.window:
            way_out = f"window={1 << (width.bit_length() - 1)}" if width > 1 else "bands=0"
            what = f"features={features}" if width == features else f"coordinates={width}"
            raise ConfigError(f"window={self.window} is wider than {what}; try {way_out}")
        if self.balance != "none" and features > MAX_BALANCED_FEATURES:
            raise ConfigError(
                f"balance={self.balance!r} needs features={features} to be at most {MAX_BALANCED_FEATURES}; try 'none'"
            )

        if self.cells and width > MAX_CELL_FEATURES:
            raise ConfigError(
                f"cells={self.cells} need features={features} to be at most {MAX_CELL_FEATURES}; try cells=0"
            )

    def width(self, features: int) -> int:
        """Return how many coordinates codes and sketches are made of."""
        return min(self.coordinates or features, features)

    def cells_scanned(self, candidates: int) -> int:
        """Return how many cells a query scans: all of them times the root of candidates / cell_reach, rounded up."""
        if candidates >= self.cell_reach:
            return self.cells
        return max(1, -(-math.isqrt(self.cells**2 * candidates * 2**20 // self.cell_reach) // 2**10))

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Return the paper's setting: window 16, 3000 codes in 1000 bands, top K by votes, exact logits."""
        return cls(**changes)

    @classmethod
    def paper_imagenet21k(cls, **changes: Any) -> Self:
        """Return the paper's setting for its first experiment, with the largest K it reports."""
        return cls(**{"candidates": 3000, **changes})

    @classmethod
    def exhaustive(cls, **changes: Any) -> Self:
        """Return a config without any approximation: exact logits of every class."""
        return cls(**{"bands": 0, "codes": 0, **changes})

    @classmethod
    def flat_sketch(cls, bits: int, longer: int = 0, **changes: Any) -> Self:
        """Return a config that scans a sketch of every class and scores the best exactly.

        bits: int. Sign bits per class that are scanned; a multiple of 32.
        longer: int = 0. Sign bits per class that re-rank what the scan found; 0 for no re-ranking.
        changes: other fields, e.g. cells=classes // 256.
        """
        sizes = {"bands": 0, "codes": 0, "scan_bits": bits, "sketch_bits": longer, "breadth": 16 if longer else 1}
        return cls(**{**sizes, "candidates": 100, **changes})

    @classmethod
    def probed_tables(cls, classes: int, features: int, bands: int = 32, **changes: Any) -> Self:
        """Return a config whose buckets grow with the classes: probed tables, then the sketch of what they hold.

        classes: int. Rows of the output layer; decides the number of buckets.
        features: int. Width of a row; decides the window.
        bands: int = 32. Hash tables. More find more, and cost time and memory.
        changes: other fields, e.g. candidates=300.
        """
        window = 4 if features < 512 else 8
        code_bits = window.bit_length() - 1
        planes = max(1, min(MAX_BUCKET_BITS // code_bits, round((math.log2(max(classes, 2)) - 2) / code_bits)))
        sizes = {
            "window": window,
            "codes": planes * bands,
            "bands": bands,
            "keys": "fast",
            "probes": 2 ** min(MAX_PROBED_CODES, planes),
            "skip_silent": True,
            "breadth": 128,
            "always": 64,
            "sketch_bits": 128,
            "candidates": 100,
        }
        return cls(**{**sizes, **changes})

    @classmethod
    def for_problem(
        cls, classes: int, features: int, memory: int | None = None, target: float = 0.99, **changes: Any
    ) -> Self:
        """Return a sensible config for a problem's size: rules of thumb. `manyclass.tune` measures on your own data.

        classes: int. Rows of the output layer.
        features: int. Width of a row.
        memory: int = None. Bytes the index may take beside the rows; None sets no limit.
        target: float = 0.99. Share of the exact accuracy to keep. Below .95 sketches are halved, above .99 doubled.
        changes: fields of the config to set in any case, e.g. candidates=100.
        """
        _between("classes", classes, 0, MAX_CLASSES)
        _between("features", features, 1, MAX_FEATURES)
        check_target(target)
        if memory is not None:
            _between("memory", memory, 1, 2**60)
        preferences = _preferences(cls, classes, features, float(target), changes)
        for config in preferences:
            if memory is None or classes * config.bytes_per_class(classes) <= memory:
                return config
        smallest = math.ceil(min(classes * config.bytes_per_class(classes) for config in preferences))
        raise ConfigError(
            f"memory={memory} is too little for {classes} classes: the smallest index takes about {smallest} bytes; "
            f"give at least that, or HashConfig.exhaustive()"
        )

    def bytes_per_class(self, classes: int) -> float:
        """Return the index's own bytes per class, beside the rows: an estimate; `memory_report` measures."""
        code_bytes = 2 if self.bucket_bits < 16 else 4
        id_bytes = 2 if self.probes == 1 else 4
        blocks = max(1, math.ceil(classes / 65_536)) if self.probes == 1 else 1
        headers = 12 * self.bands * 2**self.bucket_bits * blocks / max(1, classes) if self.bands else 0
        tables = self.bands * (code_bytes + 1.1 * id_bytes) + headers
        sketches = sum(bits / 8 + 8 for bits in (self.scan_bits, self.sketch_bits) if bits)
        positions = 9.0 if self.scan_bits else 0.0  # where each class is in the scan, and back; if it is there at all
        if self.cells:  # which cell a class is in, how far from its centre, and the blocks that are not full
            positions += 6 + self.cells * 16 * (self.scan_bits / 8 + 8) / max(1, classes)
        return 8 + tables + sketches + positions


_Config = TypeVar("_Config", bound=HashConfig)


def _preferences(
    cls: type[_Config], classes: int, features: int, target: float, changes: dict[str, Any]
) -> list[_Config]:
    """Return configs for a size, best first; later ones need less memory."""
    if classes <= EXACT_CLASSES:
        return [cls.exhaustive(**changes)]
    width = 1 << (features - 1).bit_length()
    bits = 128 if target < 0.95 else 256 if target <= 0.99 else 512
    # A quarter of a bit per feature: a trained layer of 20,976 × 4096 kept 96% of its accuracy with an eighth, 99.8%
    # with a quarter (K = 30; experiment imagenet21k).
    bits = min(32 * math.ceil(max(1, features / 1024) * bits / 32), 2 * max(32, width), MAX_SKETCH_BITS)
    flat = [cls.flat_sketch(b, **changes) for b in (bits, 128, 64, 32) if b <= bits]
    if not uses_tables(classes, features):
        return flat
    return [*(cls.probed_tables(classes, features, bands, **changes) for bands in (64, 48, 32)), *flat]


def uses_tables(classes: int, features: int) -> bool:
    """Return whether probed tables are the rule of thumb for this size, instead of a scan of every class."""
    return classes > FLAT_SCAN_CLASSES and features >= 16


def check_target(target: object) -> None:
    """Raise unless target is a share of the accuracy, above 0 and up to 1."""
    if isinstance(target, bool) or not (isinstance(target, float | int) and 0 < target <= 1):
        raise ConfigError(f"target={target!r} is not a share between 0 and 1; try 0.99")


def _between(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        nearest = min(high, max(low, value)) if isinstance(value, int) else low
        raise ConfigError(f"{name}={value!r} is not a whole number from {low} to {high}; try {nearest}")


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}; try {allowed[0]!r}")
