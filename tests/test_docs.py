"""The documents tell the truth: their Python runs, their links lead somewhere, their commands exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNNABLE = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*RUNNABLE, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^(?P<mark><!-- no-run -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"\bmake (?:[A-Z]+=\w+ )?([a-z]+(?:-[a-z]+)*)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_blocks(path: Path) -> list[str]:
    """Return the code of each Python block, moved to its line in the file so that a traceback points there."""
    text = path.read_text(encoding="utf-8")
    found = [match for match in FENCE.finditer(text) if match["language"] == "python" and not match["mark"]]
    return ["\n" * text.count("\n", 0, match.start("code")) + match["code"] for match in found]


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", RUNNABLE, ids=name)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one file share a namespace and an empty working directory."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": path.stem}
    for code in python_blocks(path):
        exec(compile(code, str(path), "exec"), namespace)


def test_blocks_are_found_and_only_torch_is_left_out() -> None:
    assert len(python_blocks(ROOT / "README.md")) >= 5
    assert len(python_blocks(ROOT / "docs" / "serving.md")) >= 10
    for path in RUNNABLE:
        for match in FENCE.finditer(path.read_text(encoding="utf-8")):
            assert not match["mark"] or match["language"] == "sh" or "torch" in match["code"]


@pytest.mark.parametrize("path", LINKED, ids=name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(prose(path)):
        if target.startswith(("https://", "#")):
            continue
        wanted = (path.parent / target.partition("#")[0]).resolve()
        assert wanted.is_relative_to(ROOT), f"{target} leaves the repository"
        assert wanted.exists(), f"{name(path)} links to {target}"


@pytest.mark.parametrize("path", RUNNABLE, ids=name)
def test_figure_markers_are_closed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    opened = re.findall(r"<!-- figures:(\w+) -->", text)
    assert opened == re.findall(r"<!-- /figures:(\w+) -->", text)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_help_lists_the_commands_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = "\n".join([*re.findall(r"`([^`\n]+)`", text), *(match["code"] for match in FENCE.finditer(text))])
    named = set(COMMAND.findall(code))
    assert {"demo", "test"} <= named
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert named <= {line.split()[0] for line in listed.splitlines() if line.strip()}


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 60
