"""Counts and frequencies of classes that users give: checked, and made positive where a class was never met."""

from typing import Any

import torch
from torch import Tensor

from manyclass.errors import InputError, InputTypeError


def checked_frequencies(name: str, frequencies: Any, num_classes: int) -> Tensor:
    """Return counts or frequencies, one per class, as float64 after checks."""
    if not isinstance(frequencies, Tensor):
        raise InputTypeError(f"{name} is a {type(frequencies).__name__}; give a tensor, one number per class")
    if frequencies.is_complex() or frequencies.dtype == torch.bool:
        raise InputTypeError(f"{name} has dtype {frequencies.dtype}; frequencies are whole numbers or floats")
    if frequencies.shape != (num_classes,):
        raise InputError(f"{name} has shape {tuple(frequencies.shape)}; expected ({num_classes},): one per class")
    values = frequencies.detach().cpu().double()
    wrong = ~(values.isfinite() & (values >= 0))
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise InputError(f"{name}[{at}]={values[at].item()}; frequencies are finite and at least 0: replace it")
    if not values.sum() > 0:
        raise InputError(f"{name} holds only zeros, which says nothing of any class; give one frequency above 0")
    if not values.sum().isfinite():
        raise InputError(f"{name} adds up to more than float64 holds; divide it all by the same number")
    return values


def smoothed(counts: Tensor) -> Tensor:
    """Return counts (classes,), float64, in which a class that was never met counts as half of the rarest one that was.

    All that were never met together count no more than all of the rarest: after one batch nearly all classes are such,
    and they are about as likely as those that were met once (Good, 1953).
    """
    unmet = counts == 0
    if not unmet.any():
        return counts
    if unmet.all():
        return torch.ones_like(counts)
    rarest = counts[~unmet].min()
    share = float((counts == rarest).sum() / unmet.sum())
    return torch.where(unmet, rarest * min(0.5, share), counts)
