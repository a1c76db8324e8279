"""Softmax over the positives and a random sample of the other classes, corrected for how likely each was drawn.

Importance sampling of the normaliser as in Bengio and Senécal (2003), with the corrected logits and the removal of
accidental hits of Jean et al. (2015), https://arxiv.org/abs/1412.2007.
"""

from typing import Any

from torch import Tensor

from manyclass._topk import TopK
from manyclass._validation import check_count
from manyclass.torch import all_classes
from manyclass.torch.class_sampler import ClassSampler
from manyclass.torch.head import Reduction
from manyclass.torch.linear_conversion import FromLinear
from manyclass.torch.row_arrays import computed_in
from manyclass.torch.row_head import MakeOptimizer, RowHead, RowUpdateMode
from manyclass.torch.row_products import ClassLayer
from manyclass.torch.shared_loss import shared_losses
from manyclass.torch.step_classes import sampled_classes


class SampledSoftmax(FromLinear, RowHead):  # type: ignore[misc]
    """A head that trains on `samples` random classes per batch, and predicts exactly over all of them.

    in_features, num_classes: sizes of the layer.
    samples: int = 512. Draws with replacement, shared by the batch.
    sampler: "uniform" (default); "log_uniform", for classes numbered from the most frequent on; or a tensor of
        frequencies (num_classes,), where a class of frequency 0 is never a negative.
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
        self.sampler = ClassSampler(self.num_classes, sampler, seed)

    def _losses(self, input: Tensor, positives: Tensor) -> Tensor:
        if not self.training:
            targets = self._targets(positives) if self._weighs_targets else None
            return all_classes.losses(input, self.weight, self.bias, positives, targets=targets)
        layer = ClassLayer(self.weight, self.bias, self._update)
        classes = sampled_classes(positives, self.sampler.draw(self.samples))
        targets = self._targets(positives, classes.ids, classes.log_weights)
        return shared_losses(layer, input.to(computed_in(self.weight.dtype)), classes, targets).losses

    def _topk(self, input: Tensor, k: int) -> TopK[Tensor]:
        return all_classes.topk(input, self.weight, self.bias, k)

    def _log_prob(self, input: Tensor, classes: Tensor | None) -> Tensor:
        return all_classes.log_prob(input, self.weight, self.bias, classes)

    def get_extra_state(self) -> Tensor:
        """Return the generator's state, for the state dict."""
        return self.sampler.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Go on drawing from where this state was taken."""
        self.sampler.generator.set_state(state.cpu())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        missing: list[str] = rest[2]
        if f"{prefix}_extra_state" in missing:
            missing.remove(f"{prefix}_extra_state")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, samples={self.samples}, sampler={self.sampler.name}"
