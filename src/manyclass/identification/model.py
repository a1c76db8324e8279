"""The model that identifies: network, index over the classes with their names, and how a picture becomes an input.

It is a folder: model.json says what belongs together and names two files, the network (safetensors) and the index.
A save writes these two under new names and then replaces model.json, so that a reader finds the old model or the new
one, whole. One process saves into a folder at a time.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from manyclass._atomic_file import replacement, write_all
from manyclass._validation import check_count
from manyclass.errors import CorruptFileError, FileError, FileVersionError, InputError, InputTypeError
from manyclass.identification.pictures import read_square
from manyclass.identification.trunk_file import described, load_trunk, save_trunk
from manyclass.index import ClassIndex

KIND, VERSION, CARD = "manyclass identification model", 1, "model.json"
MEAN, SCALE = 0.5, 4.0  # of inputs: (share of full brightness - mean) · scale
TRIES = 2  # to open a folder in which another process replaces the model


@dataclass(frozen=True)
class Match:
    """One of the best matching classes. probability: by softmax over the candidates that were scored."""

    name: str
    number: int
    probability: float


@dataclass(frozen=True)
class Milliseconds:
    """What an answer took: reading the picture, the network, the look-up among the classes."""

    reading: float
    network: float
    classes: float

    @property
    def total(self) -> float:
        return self.reading + self.network + self.classes


@dataclass(frozen=True)
class Identified:
    """What was found for one picture, best match first."""

    matches: list[Match]
    milliseconds: Milliseconds


class IdentificationModel:
    """Identifies pictures: `load` one from a folder, or make it from a trained network and an index over its rows.

    trunk: nn.Sequential of plain layers, (n, 3, side, side) → (n, features), as the output layer sees them.
    index: ClassIndex over the rows of the output layer, with names.
    side: int. Pixels each way of what the network sees; pictures are cut to their middle square.
    """

    def __init__(self, trunk: nn.Sequential, index: ClassIndex, side: int) -> None:
        described(trunk)  # refuses what could not be saved
        if not isinstance(index, ClassIndex):
            raise InputTypeError(f"index is a {type(index).__name__}; give a ClassIndex over the rows of the layer")
        self.trunk, self.index, self.side = trunk.eval(), index, check_count("side", side)
        width = self._width()
        if width != index.features:
            raise InputError(
                f"trunk gives {width} features and index has {index.features}; give the two of one network"
            )

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.index.classes

    def identify(
        self, pictures: Iterable[Any], k: int = 5, *, candidates: int | None = None, threads: int | None = None
    ) -> list[Identified]:
        """Return the k best matches of each picture, one picture after the other.

        pictures: paths, pictures of Pillow or arrays uint8 (height, width, 3).
        candidates: int = None. Classes that are scored exactly; None takes the index's. More: surer, slower.
        threads: int = None. For the look-up among the classes; None uses all cores. The network has torch's.
        """
        if isinstance(pictures, str | os.PathLike | np.ndarray):
            raise InputTypeError(f"pictures is a single {type(pictures).__name__}; give a list of pictures")
        return [self._identified(picture, k, candidates, threads) for picture in pictures]

    @torch.inference_mode()
    def features(self, inputs: Tensor) -> Tensor:
        """Return what the network makes of frames (n, 3, side, side) from 0 to 1."""
        found: Tensor = self.trunk(as_input(inputs))
        return found

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model into a folder, which is made if it is not there; a model in it is replaced as a whole."""
        target = Path(os.path.realpath(folder))
        if target.exists() and not target.is_dir():
            raise FileError(f"{target} is a file; a model is a folder: choose another path")
        target.mkdir(parents=True, exist_ok=True)
        token = secrets.token_hex(6)
        names = {"trunk": f"trunk-{token}.safetensors", "classes": f"classes-{token}.mc"}
        card = {"kind": KIND, "version": VERSION, "side": self.side, **names}
        try:
            save_trunk(target / names["trunk"], self.trunk)
            self.index.save(target / names["classes"])
            with replacement(str(target / CARD)) as file:
                write_all(file, json.dumps(card, indent=1).encode() + b"\n")
        except BaseException:
            for name in names.values():
                (target / name).unlink(missing_ok=True)
            raise
        for old in [*target.glob("trunk-*.safetensors"), *target.glob("classes-*.mc")]:
            if old.name not in names.values():  # of the model before, or of a save that was killed
                with contextlib.suppress(OSError):
                    old.unlink()

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, mmap: bool = False) -> Self:
        """Return the model in a folder, every byte checked. mmap: leave the rows of the classes on the disk."""
        target = Path(folder)
        for left in reversed(range(TRIES)):
            card = _read_card(target)
            try:
                trunk, index = load_trunk(target / card["trunk"]), ClassIndex.load(target / card["classes"], mmap=mmap)
                break
            except FileNotFoundError as missing:
                if not left:
                    name = Path(str(missing.filename)).name
                    raise CorruptFileError(f"{target} lacks {name}, which its {CARD} names; save it again") from None
        return cls(trunk, index, card["side"])

    def _identified(self, picture: Any, k: int, candidates: int | None, threads: int | None) -> Identified:
        started = time.perf_counter()
        pixels = torch.from_numpy(read_square(picture, self.side).copy()).permute(2, 0, 1)
        read = time.perf_counter()
        features = self.features(pixels.float().div(255).unsqueeze(0))[0].numpy()
        seen = time.perf_counter()
        k = min(check_count("k", k), self.classes)
        scored = max(k, self.index.config.candidates) if candidates is None else candidates
        best = self.index.search(features, k, candidates=scored, threads=threads)
        ended = time.perf_counter()
        found = [(int(number), float(value)) for number, value in zip(best.classes, best.log_probs, strict=True)]
        matches = [Match(self.name(number), number, float(np.exp(value))) for number, value in found if number >= 0]
        return Identified(matches, Milliseconds(*(1000 * part for part in (read - started, seen - read, ended - seen))))

    def name(self, number: int) -> str:
        """Return what a class is called."""
        return f"class {number}" if self.index.names is None else self.index.names[number]

    def _width(self) -> int:
        try:
            return int(self.features(torch.zeros(1, 3, self.side, self.side)).shape[-1])
        except RuntimeError as problem:
            reason = str(problem).partition("\n")[0][:120]
            raise InputError(f"trunk does not take pictures (n, 3, {self.side}, {self.side}): {reason}") from None


def as_input(pictures: Tensor) -> Tensor:
    """Return pictures from 0 to 1 as a network of ours takes them."""
    return (pictures - MEAN) * SCALE


def _read_card(folder: Path) -> dict[str, Any]:
    """Return what model.json says, after a look at every field."""
    path = folder / CARD
    if not folder.is_dir() or not path.exists():
        raise FileError(f"{folder} is no identification model: it has no {CARD}; give the folder that `save` wrote")
    try:
        card: dict[str, Any] = json.loads(path.read_bytes())
        kind, version = card["kind"], int(card["version"])
        if kind == KIND and version > VERSION:
            raise FileVersionError(
                f"{folder} is a model of version {version}, this manyclass knows version {VERSION}; upgrade manyclass"
            )
        named = [card["trunk"], card["classes"]]
        if kind != KIND or version < 1 or any(Path(name).name != name for name in named) or not _is_side(card["side"]):
            raise ValueError("its fields are not those of a model")
    except (ValueError, KeyError, TypeError, OSError) as problem:
        raise CorruptFileError(f"{path} cannot be read ({problem}); save the model again") from None
    return card


def _is_side(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 4096
