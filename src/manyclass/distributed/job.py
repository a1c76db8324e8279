"""A training job: a small Python file that names model, data and output layer; the same for every engine.

    from manyclass.distributed import HeadSettings, Job

    def job(quick=False):
        return Job(trunk=make_trunk, batches=batch_number, head=HeadSettings(...), steps=10_000, test=test_batches)

Workers on other machines get the text of the file, and run it: what it imports has to be installed there.
"""

import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyclass._validation import check_count
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.settings import HeadSettings
from manyclass.errors import ConfigError, InputTypeError

__all__ = ["Job", "JobText"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained.

    trunk: makes the torch module below the output layer, input → (examples, head.features); called once per replica.
        The first weights are those of the one that is made first.
    batches: batch number → (input, targets): the same whenever it is asked for, so that a batch whose worker died can
        be done by another. Targets are class ids (examples,), or (examples, n) padded with -1.
    head: the output layer. steps: batches in all. trunk_rule: how the trunk's server moves its parameters.
    test: makes the batches to evaluate on; None: no evaluation. learned: the accuracy that a run has to reach, or it
        counts as failed; None: none.
    """

    trunk: Callable[[], Any]
    batches: Callable[[int], tuple[Any, Any]]
    head: HeadSettings
    steps: int
    trunk_rule: ServerRule = field(default_factory=ServerRule)
    test: Callable[[], Iterable[tuple[Any, Any]]] | None = None
    learned: float | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        for name in ("trunk", "batches", "test"):
            given = getattr(self, name)
            if not callable(given) and not (name == "test" and given is None):
                raise InputTypeError(f"{name} is a {type(given).__name__}, which cannot be called; give a function")
        if not isinstance(self.head, HeadSettings):
            raise InputTypeError(f"head is a {type(self.head).__name__}; give a HeadSettings")
        if self.learned is not None and self.test is None:
            raise ConfigError(f"learned={self.learned} without test; give batches to evaluate on")


@dataclass(frozen=True)
class JobText:
    """A job as text, which can be sent to where it is to run. name: for messages; quick: the smaller version of it."""

    name: str
    text: str
    quick: bool = False

    @classmethod
    def read(cls, path: Path, quick: bool = False) -> "JobText":
        """Return the text of a job file; one that is not there, or no text, is a ConfigError."""
        try:
            return cls(str(path), path.read_text(), quick)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the job file {path} cannot be read ({error}); give the path of a Python file") from None

    @classmethod
    def built_in(cls) -> "JobText":
        """Return the job of `manyclass train --quick`."""
        path = Path(__file__).with_name("quick_job.py")
        return cls("--quick", path.read_text(), True)

    def job(self) -> Job:
        """Run the text and return its job. Whatever it raises becomes a ConfigError that names the line."""
        module = types.ModuleType("manyclass_job")
        module.__file__ = self.name
        try:
            with _imported(module):
                exec(compile(self.text, self.name, "exec"), module.__dict__)
                make = getattr(module, "job", None)
                if not callable(make):
                    raise ConfigError(f"{self.name} has no function job(quick=False); add one that returns a Job")
                made = make(quick=True) if self.quick else make()
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{self.name}{_line_of(error, self.name)}: {type(error).__name__}: {error}") from error
        if not isinstance(made, Job):
            raise ConfigError(f"job() of {self.name} returned a {type(made).__name__}; return a manyclass Job")
        return made


@contextmanager
def _imported(module: types.ModuleType) -> Iterator[None]:
    """Let a module count as imported while it runs: dataclasses, for one, look up the module of their annotations."""
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before


def _line_of(error: Exception, name: str) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    return f", line {lines[-1]}" if lines else ""
