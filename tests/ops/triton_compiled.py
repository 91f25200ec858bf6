"""Kernels of Triton compile for an H100 without one; `test_triton_attention.py` runs this file.

Triton's interpreter takes code that its compiler refuses.
"""

from itertools import product

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from axial_transformers.ops import triton_kernels


class Hopper:
    """A driver that names a GPU, and starts nothing there."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


class Compiled:
    """A kernel that is compiled where it would start."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def compile(*given, **options):
            assert self.kernel.warmup(*given, grid=grid, **options).asm["cubin"]

        return compile


def main():
    """Compile the kernels of every variant."""
    driver.set_active(Hopper())
    for name in ("_forward", "_backward", "_bias_gradient"):
        setattr(triton_kernels, name, Compiled(getattr(triton_kernels, name)))
    variants = [*product([torch.bfloat16], [False, True], [0, 1], [False, True], [0, 9])]
    for dtype, masked, examples, causal, window in [*variants, (torch.float32, True, 1, False, 0)]:
        q, k, v, grad = (torch.zeros(2, 3, 32, 2, 8, dtype=dtype) for _ in range(4))
        present = torch.ones(2, 3, 32, dtype=torch.bool) if masked else None
        bias = torch.zeros(examples, 1, 2, 32, window or 32, dtype=dtype) if examples else None
        lines = triton_kernels.Lines(q, k, v, present, bias, causal, window)
        lines.write_forward(grad)
        lines.write_backward(grad, q, k, v)
        if bias is not None:
            lines.bias_gradient(grad)


if __name__ == "__main__":
    main()
