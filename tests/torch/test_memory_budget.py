"""What a head takes is known before it is taken: computed, printed, refused."""

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from manyclass import HashConfig, InputError
from manyclass._machine import available_memory
from manyclass.errors import ConfigError, MemoryBudgetError
from manyclass.torch import (
    CandidateSoftmax,
    HierarchicalSoftmax,
    RowAdagrad,
    RowAdam,
    RowSGD,
    SampledSoftmax,
    memory_budget,
)
from manyclass.torch.row_step import untouched_zeros

budgets = sys.modules["manyclass.torch.memory_budget"]  # the package has the function under this name
GB = 10**9


def with_memory(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    monkeypatch.setattr(budgets, "available_memory", lambda: size)


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [(None, 0), (RowSGD, 0), (partial(RowSGD, momentum=0.9), 0), (RowAdagrad, 1), (RowAdam, 2),
     (partial(RowSGD, momentum=0.9, row_momentum="lazy"), 1)],
    ids=str,
)  # fmt: skip
def test_ten_million_classes_are_computed_not_allocated(optimizer: Any, states: int) -> None:
    budget = memory_budget(256, 10_000_000, dtype=torch.bfloat16, optimizer=optimizer)
    assert budget.rows == 5_120_000_000
    assert budget.bias == 40_000_000
    assert budget.states == states * budget.rows
    assert budget.index > 0
    assert budget.total == sum(budget.parts().values())
    assert memory_budget(256, 10_000_000, optimizer=optimizer).rows == 2 * budget.rows


def test_ten_million_classes_of_256_fit_in_23_gigabytes_with_adagrad(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 23 * GB)
    assert memory_budget(256, 10_000_000, dtype=torch.bfloat16, optimizer=RowAdagrad).fits
    assert not memory_budget(256, 10_000_000, optimizer=RowAdam).fits


def test_the_index_is_about_what_it_then_takes() -> None:
    classes, features = 20_000, 32
    config = HashConfig.probed_tables(classes, features)
    head = CandidateSoftmax(features, classes, config=config)
    head.rebuild()
    assert head.index.built is not None
    report = head.index.built.memory_report()
    measured = classes * sum(size for part, size in report.items() if part != "rows")
    assert memory_budget(features, classes, config=config).index == pytest.approx(measured, rel=0.35)
    assert memory_budget(features, classes, index=False).index == 0
    plain, cosine = (memory_budget(features, classes, config=config, normalize=unit) for unit in (False, True))
    assert cosine.index - plain.index == plain.rows


def test_it_prints_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 21 * GB)
    text = str(memory_budget(256, 10_000_000, dtype=torch.bfloat16, optimizer=RowAdagrad))
    lines = dict(line.rsplit("  ", 1) for line in text.splitlines()[1:])
    assert text.startswith("10,000,000 classes × 256, bfloat16\n")
    assert {name.strip() for name in lines} == {
        "rows", "bias", "optimizer states", "index", "one step", "total", "available"
    }  # fmt: skip
    assert "5.12 GB" in text
    with_memory(monkeypatch, None)
    assert "unknown" in str(memory_budget(8, 10))
    assert memory_budget(8, 10).fits


@pytest.mark.parametrize("make", [CandidateSoftmax, SampledSoftmax, HierarchicalSoftmax])
def test_a_head_that_cannot_fit_is_refused_before_memory_is_taken(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 10**8)
    with pytest.raises(MemoryBudgetError, match=r"rows .* GB.*bfloat16.*fewer features.*MANYCLASS_MEMORY_CHECK"):
        make(256, 2**30)  # a terabyte
    assert issubclass(MemoryBudgetError, MemoryError)
    with pytest.raises(MemoryBudgetError, match="no state"):
        make(256, 2**30, dtype=torch.bfloat16, row_update="fused", row_optimizer=RowAdagrad)


def test_a_head_on_the_meta_device_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 10**6)
    assert SampledSoftmax(256, 10_000_000, device="meta").weight.is_meta


def test_the_check_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 10**6)
    with pytest.raises(MemoryBudgetError):
        SampledSoftmax(256, 70_000)
    monkeypatch.setenv("MANYCLASS_MEMORY_CHECK", "off")
    assert SampledSoftmax(256, 70_000).num_classes == 70_000


def test_small_heads_are_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "available_memory", lambda: pytest.fail("asked for a small head"))
    CandidateSoftmax(64, 1000, row_update="fused", row_optimizer=RowAdagrad)


def test_large_heads_say_their_size_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(budgets, "WORTH_A_WORD", 10**6)
    SampledSoftmax(256, 70_000)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    SampledSoftmax(256, 70_000)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("SampledSoftmax: 70,000 classes × 256, float32: 0.0")


def test_a_state_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 10**6)
    monkeypatch.setattr(budgets, "WORTH_A_WORD", 10**6)
    with pytest.raises(MemoryBudgetError, match="RowSGD, which has none"):
        untouched_zeros(torch.zeros(1000, 1000))
    head = SampledSoftmax(100, 5000)
    head(torch.randn(3, 100), torch.tensor([1, 2, 3])).backward()
    before = head.weight.detach().clone()
    with pytest.raises(MemoryBudgetError):
        RowAdam(head.parameters()).step()
    assert torch.equal(head.weight, before)


def test_other_optimizers_and_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="Adam"):
        memory_budget(8, 10, optimizer=torch.optim.Adam)
    with pytest.raises(InputError, match="num_classes"):
        memory_budget(8, 0)


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_available_memory_is_that_of_the_machine_or_of_the_narrowest_container(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    files(tmp_path, {"proc/meminfo": "MemTotal: 100 kB\nMemAvailable:   50 kB\n"})
    assert available_memory(tmp_path) == 50 * 1024
    group = "sys/fs/cgroup/a/b/memory"
    unlimited = {f"{group}.max": "max\n", f"{group}.current": "7\n", f"{group}.stat": "inactive_file 3\n"}
    assert available_memory(files(tmp_path, {"proc/self/cgroup": "0::/a/b\n", **unlimited})) == 50 * 1024
    outer = {"sys/fs/cgroup/a/memory.max": "9000", "sys/fs/cgroup/a/memory.current": "2000",
             "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 500\n"}  # fmt: skip
    assert available_memory(files(tmp_path, outer)) == 7500
    old = {"proc/self/cgroup": "4:memory:/x\n0::/\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "5000",
           "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "4000",
           "sys/fs/cgroup/memory/x/memory.stat": "total_inactive_file 100\n"}  # fmt: skip
    assert available_memory(files(tmp_path, old)) == 1100


def test_the_bytes_per_class_in_the_readme_are_those_of_the_code() -> None:
    classes, features = 1_000_000, 128
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| ([^|]+?) \| ([\d,]+) \|", text.partition("### Memory at a million classes")[2], re.M))
    by_optimizer = {
        name: memory_budget(features, classes, optimizer=make)
        for name, make in {
            "`RowSGD`, momentum at once (default)": partial(RowSGD, lr=0.1, momentum=0.9),
            '`RowSGD(row_momentum="lazy")`, `RowAdagrad`': RowAdagrad,
            "`RowAdam`": RowAdam,
        }.items()
    }
    biases = 4  # a bias has the states of a row's element
    for name, budget in by_optimizer.items():
        states = budget.states // classes
        assert told[name] == f"{states + biases * states // (4 * features):,}"
    plain = by_optimizer["`RowAdam`"]
    assert told["row and bias"] == str((plain.rows + plain.bias) // classes)
    assert told["index of a head, from the first look-up on"] == str(round(plain.index / classes) - budgets.REMEMBERED)
    serving = HashConfig.for_problem(classes=classes, features=features)
    assert f"chooses more for serving: {round(serving.bytes_per_class(classes))} |" in text
