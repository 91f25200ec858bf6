"""Arithmetic of CUDA that torch sets for the whole process: TF32, and algorithms that give the same bits again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def arithmetic(device: torch.device, *, tf32: bool, deterministic: bool = False) -> Iterator[None]:
    """A context of computations on a device; what held before holds again after it. On a CPU it changes nothing.

    Args:
        device: the one that computes.
        tf32: whether float32 matrix products and LSTMs round their factors to TF32, which has 10 bits of mantissa
            instead of 23. By itself torch does so in LSTMs only.
        deterministic: whether to take only algorithms that give the same bits again. Matrix products need the
            environment variable CUBLAS_WORKSPACE_CONFIG=:4096:8 for that, from the start of the process.
    """
    if device.type != "cuda":
        yield
        return
    backends: Any = torch.backends
    places = backends.cuda.matmul, backends.mkldnn.matmul, backends.cudnn.rnn
    precisions = [each.fp32_precision for each in places]
    before_deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        named = torch.get_float32_matmul_precision()
    except RuntimeError:  # what a caller has set has no former name
        named = "highest"
    try:
        # The former name sets the newer one too. Inductor reads the former (in torch 2.9 and 2.10, and later when it
        # autotunes), which raises where only the newer one is set: pytorch#166387.
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        backends.cudnn.rnn.fp32_precision = "tf32" if tf32 else "ieee"
        torch.use_deterministic_algorithms(deterministic or before_deterministic)
        yield
    finally:
        torch.use_deterministic_algorithms(before_deterministic)
        torch.set_float32_matmul_precision(named)
        for each, precision in zip(places, precisions, strict=True):
            each.fp32_precision = precision
