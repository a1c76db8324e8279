"""Softmax over the positives and a random sample of the other classes, corrected for how likely each was drawn.

Importance sampling of the normaliser as in Bengio and Senécal (2003), with the corrected logits and the removal of
accidental hits of Jean et al. (2015), https://arxiv.org/abs/1412.2007.
"""

from typing import Any

import torch
from torch import Tensor

from manyclass._topk import TopK
from manyclass._validation import check_count
from manyclass.errors import ConfigError
from manyclass.torch import all_classes
from manyclass.torch.class_frequencies import checked_frequencies
from manyclass.torch.class_sampler import ClassSampler, Drawn
from manyclass.torch.head import Reduction
from manyclass.torch.in_batch import InBatch
from manyclass.torch.linear_conversion import FromLinear
from manyclass.torch.priors import HeadWithPrior, PriorSetting
from manyclass.torch.row_arrays import computed_in
from manyclass.torch.row_head import MakeOptimizer, RowHead, RowUpdateMode
from manyclass.torch.row_products import ClassLayer
from manyclass.torch.shared_loss import shared_losses
from manyclass.torch.step_classes import RecentClasses, sampled_classes


class SampledSoftmax(FromLinear, HeadWithPrior, RowHead):  # type: ignore[misc]
    """A head that trains on `samples` random classes per batch, and predicts exactly over all of them.

    in_features, num_classes: sizes of the layer.
    samples: int = 512. Draws with replacement, shared by the batch; as many as classes, or more: every class, once.
    sampler: "uniform" (default); "log_uniform", for classes numbered from the most frequent on; a tensor of
        frequencies (num_classes,), where a class of frequency 0 is never a negative; "counted": half uniform, half as
        often as each class was among the last million targets; or "in_batch": nothing is drawn, the positives of the
        batch's other examples are the negatives.
    frequencies: tensor (num_classes,) = None. For "in_batch", how often each class occurs; else that is counted.
    prior: where the bias starts: None (default), counts, or "counted", see HeadWithPrior.
    seed: int = 0. Of the draws.
    bias, ignore_index, reduction, device, dtype: as for nn.Linear and CrossEntropyLoss.
    label_smoothing, class_weight: float = 0.0, tensor (num_classes,) = None. As in CrossEntropyLoss, where the latter
        is called `weight`; what is spread over all classes is estimated with the sample.
    row_update, row_optimizer: who moves the rows, see RowHead.

    The normaliser is estimated without bias: each draw counts 1 / (times expected), and a draw that is one of the
    example's own positives does not count, as the positive is there already.
    In evaluation mode the loss is exact and nothing is drawn. The state dict holds the generator's state; without it
    (a state dict of nn.Linear) the draws go on as they were.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        samples: int = 512,
        sampler: str | Tensor = "uniform",
        frequencies: Tensor | None = None,
        prior: PriorSetting = None,
        seed: int = 0,
        bias: bool = True,
        row_update: RowUpdateMode = "gradient",
        row_optimizer: MakeOptimizer | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_features, num_classes, bias=bias, row_update=row_update, row_optimizer=row_optimizer,
            ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing, class_weight=class_weight,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.samples = check_count("samples", samples)
        in_batch = isinstance(sampler, str) and sampler == "in_batch"
        if frequencies is not None and not in_batch:
            raise ConfigError("frequencies belong to sampler='in_batch'; to draw by them, give them as the sampler")
        given = None if frequencies is None else checked_frequencies("frequencies", frequencies, self.num_classes)
        counts = isinstance(sampler, str) and (sampler == "counted" or (in_batch and given is None))
        self._prepare_prior(prior, "softmax", bias=bias, counts_for_draws=counts)
        self._set_bias_start()
        self._recent = RecentClasses()
        self._in_batch = InBatch(self.target_counts, given) if in_batch else None
        self.sampler = ClassSampler(
            self.num_classes, "uniform" if in_batch else sampler, seed, counts=self.target_counts
        )

    def reset_parameters(self) -> None:
        """Draw weight and bias as nn.Linear does; the bias starts at the prior."""
        super().reset_parameters()
        self._set_bias_start()

    def _negatives(self, positives: Tensor) -> Drawn:
        """Return the classes that stand for all others in a step."""
        return self._in_batch.negatives(positives) if self._in_batch else self.sampler.all_or_drawn(self.samples)

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        if not self.training:
            targets = self._targets(positives) if self._weighs_targets else None
            return all_classes.losses(input, self.weight, self.bias, positives, targets=targets)
        layer = ClassLayer(self.weight, self.bias, self._update)
        classes = self._recent.computed_before(positives)
        if classes is None:
            classes = sampled_classes(positives, self._negatives(positives))
            if torch.is_grad_enabled():
                self._recent.keep(positives, classes)
        x = input.to(computed_in(self.weight.dtype))
        targets = self._targets(positives, classes.ids, classes.log_weights)
        return shared_losses(layer, x, classes, targets).losses

    def _topk(self, input: Tensor, k: int) -> TopK[Tensor]:
        return all_classes.topk(input, self.weight, self.bias, k)

    def _log_prob(self, input: Tensor, classes: Tensor | None) -> Tensor:
        return all_classes.log_prob(input, self.weight, self.bias, classes)

    def get_extra_state(self) -> Tensor:
        """Return the generator's state, for the state dict."""
        return self.sampler.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Go on drawing from where this state was taken."""
        self.sampler.generator.set_state(state.cpu().clone())  # torch crashes on one that a file holds unaligned

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        missing: list[str] = rest[2]
        if f"{prefix}_extra_state" in missing:
            missing.remove(f"{prefix}_extra_state")

    def extra_repr(self) -> str:
        if self._in_batch:
            return f"{super().extra_repr()}, sampler=in_batch"
        return f"{super().extra_repr()}, samples={self.samples}, sampler={self.sampler.name}"
