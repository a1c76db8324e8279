"""What is wrong with a push: asked before it is written down or applied, so that one bad push spoils nothing.

Faults are returned, not raised: a server first looks whether the sender may push at all.
"""

import numpy as np

from manyclass._validation import Ids
from manyclass.distributed.messages import Arrays, Floats
from manyclass.distributed.servers.shard_rows import ShardRows
from manyclass.errors import DivergedError, InputError, ManyclassError


def fault_of_rows(
    number: int, owned: ShardRows, rows: Ids, gradients: Floats, bias_gradients: Floats | None
) -> ManyclassError | None:
    """Return why shard `number` cannot move these rows by these gradients, or None."""
    count, features = owned.weight.shape
    if rows.ndim != 1 or (len(rows) and (rows[0] < 0 or rows[-1] >= count or (rows[1:] <= rows[:-1]).any())):
        return InputError(f"rows of a push to shard {number} are not ascending numbers from 0 to {count - 1}; was it "
                          "meant for another shard?")  # fmt: skip
    expected = {"rows": (gradients, (len(rows), features)), "biases": (bias_gradients, (len(rows),))}
    for name, (given, shape) in expected.items():
        if given is None:  # a push may leave the biases alone
            continue
        if given.shape != shape:
            return InputError(f"gradients of {name} in a push to shard {number} are of shape {given.shape}, the push's "
                              f"{len(rows)} rows need {shape}; give workers and shards the same job")  # fmt: skip
        if not np.isfinite(given).all():
            return DivergedError(f"gradients of {name} in a push to shard {number} are not finite; lower the learning "
                                 "rate or look at the batch")  # fmt: skip
    return None


def fault_of_shape(name: str, number: int, given: Floats, shape: tuple[int, ...]) -> ManyclassError | None:
    """Return why part `name` of a push does not fit the step that shard `number` has scored, or None."""
    if given.shape == shape:
        return None
    return InputError(f"{name} of a push to shard {number} are of shape {given.shape}, the step that was scored has "
                      f"{shape}; push what belongs to the ticket")  # fmt: skip


def fault_of_trunk(
    values: dict[str, Floats], own_buffers: Arrays, gradients: dict[str, Floats], buffers: Arrays
) -> ManyclassError | None:
    """Return why a trunk of these values and buffers cannot take gradients and buffers of a worker, or None."""
    for name, part in gradients.items():
        if name not in values or part.shape != values[name].shape:
            return InputError(f"a gradient of {name!r}, {part.shape}, fits no parameter of the trunk; give workers the "
                              "same model")  # fmt: skip
        if not np.isfinite(part).all():
            return DivergedError(
                f"the gradient of {name!r} is not finite; lower the learning rate or look at the batch"
            )
    for name, given in buffers.items():
        if name not in own_buffers or given.shape != own_buffers[name].shape:
            return InputError(f"a worker's buffer {name!r}, {given.shape}, fits no buffer of the trunk; give workers "
                              "the same model")  # fmt: skip
        if not (np.isfinite(given) | (given == own_buffers[name])).all():  # masks may hold infinities, and keep them
            return DivergedError(f"a worker's buffer {name!r} is not finite; lower the learning rate or look at the "
                                 "batch")  # fmt: skip
    return None
