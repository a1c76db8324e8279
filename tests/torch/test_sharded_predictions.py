"""topk, predict and log_prob over ranks are those of the whole layer; and the layer can be taken apart and put back."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sharded_cases import CLASSES, FEATURES, in_processes, one_process, rows_of, sharded
from torch import Tensor, nn

from manyclass import HashConfig
from manyclass.torch import ShardedSoftmax

RANKS = 3
COUNTS = (4, 0, 3)  # inputs of each rank
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"candidates": CLASSES},
    "cosine": {"candidates": CLASSES, "normalize": True, "temperature": 0.3, "subtract_mean": True},
    "logistic": {"candidates": CLASSES, "output": "logistic"},
    # whose tables leave out who has no vote
    "paper": {"candidates": CLASSES, "config": replace(HashConfig.paper(), window=8)},
}


def inputs(rank: int) -> Tensor:
    return torch.randn(COUNTS[rank], FEATURES, generator=torch.Generator().manual_seed(rank))


def wanted(rank: int) -> Tensor:
    """Classes of each input, one of them twice; as many as the rank says."""
    ids = torch.randint(CLASSES, (COUNTS[rank], 3 + rank), generator=torch.Generator().manual_seed(rank))
    ids[:, -1] = ids[:, 0]
    return ids


def answers(head: Any, x: Tensor, classes: Tensor) -> dict[str, Tensor]:
    head.eval()
    best, other = head.topk(x, 5), head.topk(x, 4, exclude=classes)
    found = {"classes": best.classes, "log_probs": best.log_probs, "logits": best.logits, "predict": head.predict(x),
             "others": other.classes, "all": head.log_prob(x), "given": head.log_prob(x, classes)}  # fmt: skip
    for normalizer in ("exact", "estimated"):
        found[f"{normalizer} topk"] = head.topk(x, 5, normalizer=normalizer).log_probs
        found[f"{normalizer} given"] = head.log_prob(x, classes, normalizer=normalizer)
    with head.exact():
        found |= {"exact all": head.log_prob(x), "exact classes": head.topk(x, CLASSES).classes}
        found["exact of given"] = head.log_prob(x, classes)
    return found


def work(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, settings in SETTINGS.items():
        head = sharded(**settings)
        found[name] = {"rows": rows_of(head), "answers": answers(head, inputs(rank), wanted(rank))}
    few = sharded(candidates=6, tail=40 * CLASSES).eval()
    x = inputs(rank)
    found["few"] = {name: few.topk(x, 3, normalizer=name).log_probs for name in ("candidates", "estimated", "exact")}
    found["few"] |= {"rows": rows_of(few), "classes": few.topk(x, 3).classes}
    found["shape"] = few.topk(x[None], 2).classes.shape
    torch.manual_seed(4)
    layer = nn.Linear(FEATURES, CLASSES)
    head = ShardedSoftmax.from_linear(layer, temperature=1.0)
    back = head.to_linear()
    found["linear"] = torch.equal(back.weight, layer.weight) and torch.equal(back.bias, layer.bias)
    found["rows"] = head.weight.shape[0]
    scaled = ShardedSoftmax.from_linear(layer, temperature=0.5).to_linear()
    found["scaled"] = torch.allclose(scaled.weight, 2 * layer.weight)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return in_processes(work, RANKS, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SETTINGS)
def test_answers_are_those_of_one_process(found: list[dict[str, Any]], name: str) -> None:
    head = one_process(found[0][name]["rows"], **SETTINGS[name])
    for rank, of_rank in enumerate(found):
        expected = answers(head, inputs(rank), wanted(rank))
        for question, answer in of_rank[name]["answers"].items():
            assert answer.shape == expected[question].shape, question
            torch.testing.assert_close(answer, expected[question], rtol=1e-5, atol=1e-5, msg=question)


def test_few_candidates_are_normalised_as_asked(found: list[dict[str, Any]]) -> None:
    rows = found[0]["few"]["rows"]
    for rank, of_rank in enumerate(found):
        x, few = inputs(rank), of_rank["few"]
        exact = F.log_softmax(F.linear(x, rows["weight"], rows["bias"]), 1).topk(3, 1)
        assert torch.equal(few["classes"], exact.indices)
        assert of_rank["shape"] == (1, len(x), 2)
        torch.testing.assert_close(few["exact"], exact.values, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(few["estimated"], exact.values, rtol=0, atol=0.1)
        assert (few["candidates"] > exact.values).all()


def test_a_layer_is_dealt_out_and_put_together_again(found: list[dict[str, Any]]) -> None:
    assert all(of_rank["linear"] and of_rank["scaled"] for of_rank in found)
    assert sum(of_rank["rows"] for of_rank in found) == CLASSES
