"""What the tests of CandidateSoftmax share: small heads, and their loss over a dense float64 matrix."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyclass import HashConfig
from manyclass.torch import CandidateSoftmax

CLASSES, FEATURES, EXAMPLES = 60, 17, 5
RANKED = HashConfig.flat_sketch(32)  # by default so few classes are not ranked: all get exact logits
POSITIVES = [[3], [59, 0, 3], [7, 7, 20], [59], [11, 3, 11]]  # lists of several, some repeat one


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small_head(classes: int = CLASSES, features: int = FEATURES, **settings: Any) -> CandidateSoftmax:
    """Return a head of few classes with weights of unequal size, the same at each call; mined as `candidates` says."""
    torch.manual_seed(0)
    mined = settings.get("candidates", 16)
    head = CandidateSoftmax(
        features, classes, **{"config": RANKED, "mined_examples": 32, "mined_candidates": mined, **settings}
    )
    with torch.no_grad():
        head.weight.mul_(torch.linspace(1, 4, classes)[:, None])
        if head.input_mean is not None:
            head.input_mean.copy_(random_tensor(features, seed=2))
    return head


def rehashed(head: CandidateSoftmax, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return a list that collects the classes of every re-hash from now on."""
    seen: list[list[int]] = []
    original = head.index.rehash

    def rehash(ids: Any, *args: Any) -> None:
        seen.append(ids.tolist())
        original(ids, *args)

    monkeypatch.setattr(head.index, "rehash", rehash)
    return seen


def padded(positives: list[list[int]]) -> Tensor:
    width = max(map(len, positives))
    return torch.tensor([[*some, *[-1] * (width - len(some))] for some in positives])


def dense(tensor: Tensor | None) -> Tensor | None:
    """Return a float64 copy that collects a dense gradient."""
    return None if tensor is None else tensor.detach().double().requires_grad_()


def reference_logits(head: CandidateSoftmax, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the logits of all classes."""
    if head.input_mean is not None:
        x = x - head.input_mean.double()
    if head.normalize:
        x, weight = F.normalize(x), F.normalize(weight)
    logits = x @ weight.T
    return (logits if bias is None else logits + bias) / head.temperature


def reference_losses(head: CandidateSoftmax, logits: Tensor, positives: list[list[int]], stands_for: Tensor) -> Tensor:
    """Return the losses; stands_for (examples, classes): how many classes each one counts for, 0 where not chosen."""
    losses = []
    for values, some, times in zip(logits, positives, stands_for, strict=True):
        of_positives = values[sorted(set(some))]
        if head.output == "logistic":
            losses.append((F.softplus(values) * times).sum() - of_positives.sum())
        else:
            losses.append((values + times.log()).logsumexp(0) - of_positives.mean())
    return torch.stack(losses)


def random_classes(head: CandidateSoftmax, targets: int) -> int:
    """Return how many random classes a step draws; by default the more the fewer targets are part of the sample."""
    if head.tail is not None:
        return head.tail
    return 128 if head.tail_and_targets is None else 128 + 2 * (256 - targets)


def chosen_classes(head: CandidateSoftmax, x: Tensor, positives: list[list[int]], seed: int = 0) -> Tensor:
    """Return what each class stands for in the first step of a head with this seed, (examples, classes)."""
    count = head.mining.candidates if head.shared else head.candidates
    found = head.shortlist(head.prepared(x.detach()), min(count, head.num_classes)).tolist()
    targets = [c for some in positives for c in set(some)]
    generator, tail = torch.Generator().manual_seed(seed), random_classes(head, len(targets))
    stands_for = torch.zeros(len(x), head.num_classes, dtype=torch.float64)
    if not head.shared:
        for times, some, best in zip(stands_for, positives, found, strict=True):
            times[some] = 1
            times[[c for c in best if c >= 0]] = 1
        places = torch.rand(tail, generator=generator, dtype=torch.float64)
        members = stands_for > 0
        for c in (places * head.num_classes).long().tolist():
            stands_for[~members[:, c], c] += head.num_classes / tail
        return stands_for
    hard = {c for best in found for c in best if c >= 0}
    if head.tail_and_targets is not None:  # at first nobody knows of unequal classes
        places = torch.rand(tail, generator=generator, dtype=torch.float64)
        draws = len(targets) * (len(x) - 1) / len(x) + tail
        there = 1 - (1 - 1 / head.num_classes) ** draws
        stands_for[:, [*targets, *(places * head.num_classes).long().tolist()]] = 1 / there
        stands_for[:, sorted(hard)] = 1
        for times, some in zip(stands_for, positives, strict=True):
            times[some] = 1
        return stands_for
    members_list = sorted(hard | set(targets))
    outside = [c for c in range(head.num_classes) if c not in members_list]
    stands_for[:, members_list] = 1
    if tail and outside:
        for at in torch.randint(len(outside), (tail,), generator=generator).tolist():
            stands_for[:, outside[at]] += len(outside) / tail
    return stands_for
