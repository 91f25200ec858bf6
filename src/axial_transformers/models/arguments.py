"""Arguments of public functions."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, get_args, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@runtime_checkable
class Images(Protocol):
    """Integers [N, *A, C], also outside memory: `images[start:stop]` is an array."""

    def __len__(self) -> int: ...
    def __getitem__(self, chosen: slice, /) -> Any: ...


def accepts_arrays(*names: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Turn these arguments of a function into tensors."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        called = signature(function)
        defaults = {name: called.parameters[name].default for name in names}
        as_they_are = {
            name: (Tensor, int) if int in get_args(called.parameters[name].annotation) else Tensor for name in names
        }

        @wraps(function)
        def with_tensors(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            bound = called.bind(*args, **kwargs)
            for name in names:
                value = bound.arguments.get(name, defaults[name])
                if value is not defaults[name] and not isinstance(value, as_they_are[name]):
                    bound.arguments[name] = as_tensor(name, value)
            return function(*bound.args, **bound.kwargs)

        return with_tensors

    return decorate


def as_tensor(name: str, values: Any) -> Tensor:
    """Return an array or nested lists as a tensor on the CPU; raise ValueError for anything else.

    Floating point becomes float32, integers of several bytes int64.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" or not array.ndim:
            raise ValueError(f"it is of type {array.dtype} and shape {list(array.shape)}")
        wide = array.dtype.kind in "iu" and array.dtype.itemsize > 1
        dtype = np.dtype(np.int64) if wide else array.dtype.newbyteorder("=")
        tensor = torch.from_numpy(np.require(array, dtype, ["C", "W"]))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a tensor, an array or nested lists of numbers: {error}") from error
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor


class Conditioning(NamedTuple):
    """Labels and external conditioning of a batch; None where there are none."""

    label: Integer[Tensor, " b"] | None = None
    """Classes [B]."""
    cond: Float[Tensor, "b *a d"] | None = None
    """External conditioning [B, *A, D]."""

    def of(self, rows: slice | list[int]) -> "Conditioning":
        """Return the conditioning of some examples."""
        return Conditioning(*(None if part is None else part[rows] for part in self))

    def repeated(self, count: int) -> "Conditioning":
        """Repeat examples."""
        return Conditioning(*(None if part is None else part.repeat_interleave(count, dim=0) for part in self))


def labels_of(label: Integer[Tensor, " b"] | int | None, batch: int) -> Integer[Tensor, " b"] | None:
    """Return labels [B]; an int is for all examples."""
    return torch.full((batch,), label, device="cpu") if isinstance(label, int) else label


UNCONDITIONAL = Conditioning()
