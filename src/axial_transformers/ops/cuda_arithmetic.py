"""Arithmetic of CUDA that torch sets for the whole process: TF32, and algorithms that give the same bits again."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """A context whose float32 matrix products and LSTMs on CUDA may round their factors to TF32, or must not.

    TF32 has 10 bits of mantissa instead of 23. What torch does by itself differs: cuDNN's LSTM takes it.
    """
    places = (torch.backends.cuda.matmul, torch.backends.cudnn.rnn)  # type: ignore[attr-defined]
    before = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "tf32" if allowed else "ieee"
        yield
    finally:
        for place, precision in zip(places, before, strict=True):
            place.fp32_precision = precision


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """A context in which CUDA computes the same bits again if `wanted`; otherwise nothing is changed.

    Its matrix products need the environment variable CUBLAS_WORKSPACE_CONFIG=:4096:8 too, from the start of the process.
    """
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.use_deterministic_algorithms(before)
