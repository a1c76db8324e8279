"""Tensors as the native core reads them: float32, or bfloat16 as its bits, because NumPy lacks it."""

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from manyclass._row_types import BF16

NATIVE_TYPES = (torch.float32, torch.bfloat16)


def view(tensor: Tensor) -> Any:
    """Return a NumPy view of a CPU tensor, to read or to write; bfloat16 as uint16."""
    values = tensor.detach()
    return (values.view(torch.uint16) if values.dtype == torch.bfloat16 else values).numpy()


def array(tensor: Tensor) -> Any:
    """Return a NumPy array of a CPU tensor's values, contiguous: a view where the tensor is."""
    return view(tensor.contiguous())


def marked_rows(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a tensor as an index reads rows: bits of bfloat16 are marked as such, unlike those for other functions."""
    values: npt.NDArray[Any] = array(tensor)
    return values.view(BF16) if tensor.dtype == torch.bfloat16 else values


def as_tensor(rows: npt.NDArray[Any]) -> Tensor:
    """Return an array of an index as a tensor."""
    return torch.from_numpy(rows["bf16"]).view(torch.bfloat16) if rows.dtype == BF16 else torch.from_numpy(rows)


def is_native(*tensors: Tensor | None) -> bool:
    """Return whether the native core can hold these as rows."""
    return all(tensor is None or (tensor.dtype in NATIVE_TYPES and tensor.is_cpu) for tensor in tensors)


def computes_natively(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether the native core multiplies these: float32 on the CPU, with rows that it can hold."""
    return is_native(weight) and all(t is None or (t.dtype == torch.float32 and t.is_cpu) for t in (input, bias))


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which rows of this one are multiplied and moved: float32, except for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32
