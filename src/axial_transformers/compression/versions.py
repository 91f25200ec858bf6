"""The versions of the format, and the order in which their chunks are worked on."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import torch

from axial_transformers.compression import codec as float64_codec
from axial_transformers.compression import exact_codec
from axial_transformers.inference.exact_network import has_kernels
from axial_transformers.kernels.threads import parallel_map
from axial_transformers.models import AxialTransformer

CODECS: dict[int, Any] = {1: float64_codec, 2: exact_codec}
"""The functions of a format version: `prepared`, `encode_chunk` and `decode_chunk`."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def best_version(model: AxialTransformer) -> int:
    """2 where its kernels can be compiled and cover the model, otherwise 1."""
    return 2 if has_kernels() and exact_codec.obstacle(model) is None else 1


def in_order(version: int, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results; items of version 2 are worked on beside each other, one by each of torch's threads."""
    left, together = iter(items), torch.get_num_threads() if version > 1 else 1
    while part := list(islice(left, together)):
        yield from parallel_map(work, part)


def check_model(model: AxialTransformer) -> None:
    """Raises ValueError for a model without values, or whose data no archive holds."""
    model.require_values()
    if model.config.num_values > 256:
        raise ValueError(f"archives hold values of 8 bits; this model has {model.config.num_values} values")
    if model.config.known_channels:
        raise ValueError("the model conditions on known channels, which an archive does not hold")


def check_micro_batch(size: int) -> None:
    """Raises ValueError for a micro-batch of nothing."""
    if size < 1:
        raise ValueError(f"micro_batch must be at least 1, not {size}")
