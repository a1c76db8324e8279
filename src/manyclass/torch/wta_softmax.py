"""The paper's output layer, literally: own candidates by votes of winner-take-all tables, no tail, round robin."""

from collections.abc import Sequence
from typing import Any

from manyclass.config import HashConfig
from manyclass.torch.candidate_softmax import CandidateSoftmax
from manyclass.torch.head import Output, Reduction
from manyclass.torch.priors import PriorSetting
from manyclass.torch.row_head import MakeOptimizer, RowUpdateMode


class WTASoftmax(CandidateSoftmax):
    """Output layer of "Deep Networks with Large Output Spaces": to reproduce and to compare with.

    Every example computes its own K candidates and its positives, and nothing else exists for it. Candidates are the
    classes with most votes of 1000 bands; a slice of the classes is re-hashed at every step, in turn. The rule can
    collapse (docs/training.md says when and why): `CandidateSoftmax` is the layer to use.

    in_features, num_classes: sizes of the layer; features at least as many as the window, 16.
    candidates: int [K], default that of `config`, 300. Classes per example; the paper has 30 to 3000.
    output: "softmax" (default) or "logistic".
    config: HashConfig, default `HashConfig.paper()`: window 16, 3000 codes, 1000 bands.
    refresh_steps: int = 1000. Steps in which every class is re-hashed once.
    refresh_limit: int = 1000. Classes re-hashed per step, at most.
    prior, meter_every, names, seed, bias, ignore_index, reduction, device, dtype, row_update, row_optimizer: as for
        CandidateSoftmax.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        candidates: int | None = None,
        output: Output = "softmax",
        prior: PriorSetting = None,
        config: HashConfig | None = None,
        refresh_steps: int = 1000,
        refresh_limit: int = 1000,
        meter_every: int = 100,
        names: Sequence[str] | None = None,
        seed: int = 0,
        bias: bool = True,
        row_update: RowUpdateMode = "gradient",
        row_optimizer: MakeOptimizer | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_features, num_classes, candidates=candidates, output=output, prior=prior, shared=False, tail=0,
            touched_first=False, config=HashConfig.paper() if config is None else config, refresh_steps=refresh_steps,
            refresh_limit=refresh_limit, meter_every=meter_every, names=names, seed=seed, bias=bias,
            row_update=row_update, row_optimizer=row_optimizer, ignore_index=ignore_index,
            reduction=reduction, device=device, dtype=dtype,
        )  # fmt: skip
