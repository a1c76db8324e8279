"""README and docs say what the committed records give, to the digit, and no number that looks measured besides."""

import re
from pathlib import Path

import pytest

import experiments
from experiments.frame.documents import MARKED, ROOT, as_markdown, documents, filled_in, texts_of, unknown_names
from experiments.frame.page import Table
from experiments.frame.records import Records
from experiments.frame.stages import Experiment
from manyclass.errors import ConfigError

DOCUMENTS = documents()

# Numbers that look measured and are not: part of the sentence → reason.
ALLOWED = {
    "more than 20% of the classes": "the limit above which a head warns",
    "momentum 0.9": "a setting",
}

MEASURED = re.compile(
    r"""(?<![\w.])(?:
        \d[\d,.]*(?:×(?!\d)|\s?(?:%|µs|ms|GB/s|times\b))  # 57×, 99.8%, 142 µs; 64 × 64 and 64×64 are sizes
        | \d[\d,.]*\s(?:s|seconds|minutes|hours|min)\b
        | 0?\.\d+\b  # .97 and 0.97
    )""",
    re.VERBOSE,
)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Return what the committed records give."""
    return texts_of(map(experiments.find, experiments.EXPERIMENTS))


def folder_of(path: Path) -> Path:
    return path.parent.relative_to(ROOT)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_everything_between_markers_is_what_the_records_give(path: Path, texts: dict[str, str]) -> None:
    document = path.read_text(encoding="utf-8")
    assert filled_in(document, texts, folder_of(path)) == document, "run: python -m experiments documents"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_marker_is_known(path: Path, texts: dict[str, str]) -> None:
    assert unknown_names(path.read_text(encoding="utf-8"), texts) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_a_part_of_a_sentence_does_not_begin_its_line(path: Path) -> None:
    """Markdown takes a line that begins with a comment as HTML, and would show its table or emphasis as they are."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(("<!-- figures:", "<!-- /figures:")):
            assert line.endswith("-->"), line
            assert line.count("<!--") == 1, line


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if "figures:demo" in path.read_text()], ids=name)
def test_a_changed_digit_is_noticed_wherever_it_is(path: Path, texts: dict[str, str]) -> None:
    document = path.read_text(encoding="utf-8")
    digits = [place for match in MARKED.finditer(document) if match["name"] in texts
              for place in range(match.start("text"), match.end("text")) if document[place].isdigit()]  # fmt: skip
    assert digits
    for place in digits[:: max(1, len(digits) // 50)]:
        wrong = document[:place] + str((int(document[place]) + 1) % 10) + document[place + 1 :]
        assert filled_in(wrong, texts, folder_of(path)) != wrong
        assert filled_in(wrong, texts, folder_of(path)) == document
    more = document[: digits[0]] + "1" + document[digits[0] :]  # 162× → 1162×
    assert filled_in(more, texts, folder_of(path)) == document


# Numbers outside of markers


def measured_numbers(document: str) -> list[str]:
    """Return the lines of prose with a number that looks measured, outside of markers, code and tables of settings."""
    prose = CODE.sub("", MARKED.sub("", document))
    lines = [re.sub(r"`[^`]*`", "", line) for line in prose.splitlines() if not is_row_of_settings(line)]
    return [line for line in lines if MEASURED.search(without_allowed(line))]


def is_row_of_settings(line: str) -> bool:
    """Return whether a line belongs to a table that begins its rows with code: options, variables, stages."""
    return line.startswith("| `")


def without_allowed(line: str) -> str:
    for part in ALLOWED:
        line = line.replace(part, "")
    return line


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_numbers_that_look_measured_stand_between_markers(path: Path) -> None:
    assert measured_numbers(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    ["It is 57× as fast.", "It keeps 99.8%.", "A query takes 142 µs.", "It takes 3.2 ms.", "It took 34 min.",
     "After 20 seconds of it.", "It reads 25 GB/s.", "Recall is .97 there.", "Recall is 0.97 there.",
     "| manyclass | 57× |"],
)  # fmt: skip
def test_a_number_that_looks_measured_is_seen(line: str) -> None:
    assert measured_numbers(line)


@pytest.mark.parametrize(
    "line",
    ["64 × 64 pixels, version 1.2, K = 300, 100,000 classes and momentum 0.9.", "`--seconds 2 s`", "| `x` | 5 ms |",
     "On 2 <!-- figures:x -->57×<!-- /figures:x --> cores.", "```sh\nsleep 3 s\n```"],
)  # fmt: skip
def test_a_number_that_is_a_setting_or_between_markers_is_not(line: str) -> None:
    assert not measured_numbers(line)


def test_what_is_allowed_is_still_there() -> None:
    prose = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    assert [part for part in ALLOWED if part not in prose] == []


# How texts are filled in


def test_a_block_stands_on_lines_of_its_own_and_a_part_of_a_sentence_in_its_line() -> None:
    document = "It is <!-- figures:a -->old<!-- /figures:a -->.\n\n<!-- figures:b -->\n<!-- /figures:b -->\n"
    filled = filled_in(document, {"a": "new", "b": "one line"})
    assert filled == (
        "It is <!-- figures:a -->new<!-- /figures:a -->.\n\n<!-- figures:b -->\none line\n<!-- /figures:b -->\n"
    )
    assert filled_in(filled, {"a": "new", "b": "one line"}) == filled


def test_links_lead_to_the_same_file_from_every_document() -> None:
    document = "See <!-- figures:a --><!-- /figures:a -->."
    text = {"a": "[r](experiments/results/x.md), [h](#here), [w](https://example.org)"}
    assert "[r](experiments/results/x.md), [h](#here), [w](https://example.org)" in filled_in(document, text)
    assert "[r](../experiments/results/x.md), [h](#here)" in filled_in(document, text, Path("docs"))


def test_an_unknown_marker_is_left_alone_and_named() -> None:
    document = "<!-- figures:nobody -->1<!-- /figures:nobody -->"
    assert filled_in(document, {"a": "2"}) == document
    assert unknown_names(document, {"a": "2"}) == ["nobody"]


def test_two_experiments_cannot_have_the_same_text(tmp_path: Path) -> None:
    def experiment(name: str) -> Experiment:
        (tmp_path / name).mkdir()
        return Experiment(name, "", lambda _: [], lambda *_: None, documents=lambda records: {"a": name})  # type: ignore[arg-type,return-value]

    with pytest.raises(ConfigError, match="'a' of experiment two has the name of another"):
        texts_of([experiment("one"), experiment("two")], tmp_path)


def test_an_experiment_without_committed_results_has_no_texts(tmp_path: Path) -> None:
    def needs_records(records: Records) -> dict[str, str]:
        raise AssertionError("there are none")

    assert texts_of([Experiment("x", "", lambda _: [], None, documents=needs_records)], tmp_path) == {}  # type: ignore[arg-type]


def test_a_table_becomes_markdown() -> None:
    table = Table(["name", "ms"], [["a", 1], ["b", 2]], "caption", emphasised={1})
    assert as_markdown(table) == "| name | ms |\n| --- | ---: |\n| a | 1 |\n| **b** | **2** |"
