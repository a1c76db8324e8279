"""Bias of loss and gradient against the number of tail samples: many draws of the tail, compared with all classes.

The estimate Ẑ of the normaliser Z is unbiased, so its first-order effects average to zero exactly. They are taken out
of the means of the bias (log Ẑ/Z - (Ẑ/Z - 1), and likewise for the gradient): what is left is the bias, with far less
noise. The mean of Ẑ/Z is recorded as it is, with its standard error.
"""

from collections.abc import Iterable

import torch

import manyclass.torch as mct
from experiments.frame.stages import Run
from manyclass.torch.step_classes import shared_classes

CLASSES, FEATURES, BATCH, CANDIDATES = 10_000, 64, 64, 5


def problem(samples: int) -> tuple[mct.CandidateSoftmax, torch.Tensor, torch.Tensor]:
    """Return a head whose shared candidates miss much of the probability, and a batch."""
    torch.manual_seed(0)
    head = mct.CandidateSoftmax(
        FEATURES, CLASSES, mined_candidates=CANDIDATES, tail=samples, meter_every=0, seed=samples
    )
    with torch.no_grad():
        head.weight.normal_()
    labels = torch.randint(CLASSES, (BATCH,))
    return head, 0.15 * (head.weight.detach()[labels] + torch.randn(BATCH, FEATURES)), labels[:, None]


@torch.no_grad()
def measure(samples: int, draws: int) -> dict[str, float]:
    """Return means over draws: estimated normaliser, bias of the loss, relative bias of the gradient of the input."""
    head, x, positives = problem(samples)
    logits = torch.nn.functional.linear(x, head.weight, head.bias).double()
    log_z = logits.logsumexp(1, keepdim=True)
    rows = head.weight.double()
    mean_row = (logits - log_z).exp() @ rows  # Σ p·w: the part of the gradient that the normaliser decides
    gradient = mean_row - rows[positives[:, 0]]
    ratios, log_bias, squares = [], torch.zeros(BATCH).double(), torch.zeros(BATCH).double()
    drift = [torch.zeros_like(gradient), torch.zeros_like(gradient)]  # of even and of odd draws
    found = head.shortlist(x, CANDIDATES)
    for draw in range(draws):
        chosen = shared_classes(found, positives, tail=samples, sampler=head.sampler)
        shares = (logits[:, chosen.ids] + chosen.log_weights - log_z).exp()  # they add up to Ẑ/Z
        ratio = shares.sum(1, keepdim=True)
        weighted = shares @ rows[chosen.ids]
        ratios.append(ratio[:, 0])
        log_bias += ratio.log()[:, 0] - (ratio[:, 0] - 1)
        squares += ratio.log()[:, 0].square()
        drift[draw % 2] += weighted / ratio - mean_row - (weighted - mean_row) + mean_row * (ratio - 1)
    of_batch = torch.stack(ratios).mean(1)
    # The product of two independent means has no noise of its own, as the square of one mean would.
    squared_bias = float((drift[0] * drift[1]).sum()) / (draws / 2) ** 2
    missed = 1 - (logits[:, chosen.ids] - log_z).exp()[:, chosen.log_weights == 0].sum(1)
    return {
        "normalizer_ratio": float(of_batch.mean()),
        "normalizer_error": float(of_batch.std() / draws**0.5),
        "loss_bias": float(log_bias.mean() / draws),
        "loss_spread": float((squares.mean() / draws).sqrt()),
        "gradient_bias": max(0.0, squared_bias) ** 0.5 / float(gradient.norm()),
        "missed_mass": float(missed.mean()),
        "exact_loss": float((log_z[:, 0] - logits.gather(1, positives)[:, 0]).mean()),
    }


def run_tail(run: Run, samples: Iterable[int], draws: int) -> None:
    """Write a record for every number of samples that the records lack."""
    torch.set_num_threads(run.options.threads)
    left = [count for count in samples if not run.records.done(stage="tail", kind="result", samples=count)]
    with run.progress(len(left), "numbers of samples") as show:
        for completed, count in enumerate(left):
            show(completed, f"{count} samples")
            told = {"samples": count, "classes": CLASSES, "batch": BATCH, "draws": draws}
            run.records.write(stage="tail", kind="result", **told, **measure(count, draws))
