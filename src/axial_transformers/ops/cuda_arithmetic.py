"""Settings that torch keeps per process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def arithmetic(device: torch.device, *, tf32: bool, deterministic: bool = False) -> Iterator[None]:
    """Set the arithmetic of CUDA within a context; do nothing on a CPU.

    Args:
        tf32: round factors of float32 products to TF32. By default, torch does so in LSTMs only.
        deterministic: use algorithms that repeat their bits. Matrix products also need CUBLAS_WORKSPACE_CONFIG=:4096:8
            from the start of the process.
    """
    if device.type != "cuda":
        yield
        return
    backends: Any = torch.backends
    settings = backends.cuda.matmul, backends.mkldnn.matmul, backends.cudnn.rnn
    precisions = [each.fp32_precision for each in settings]
    before_deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        named = torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer settings have no former name
        named = "highest"
    try:
        # The former name sets the newer one too. Inductor raises where only the newer is set (pytorch#166387).
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        backends.cudnn.rnn.fp32_precision = "tf32" if tf32 else "ieee"
        torch.use_deterministic_algorithms(deterministic or before_deterministic)
        yield
    finally:
        torch.use_deterministic_algorithms(before_deterministic)
        torch.set_float32_matmul_precision(named)
        for each, precision in zip(settings, precisions, strict=True):
            each.fp32_precision = precision
