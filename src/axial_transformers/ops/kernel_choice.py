"""The choice among the kernels of attention."""

from importlib.util import find_spec
from typing import Literal

import torch

from axial_transformers.torch_private import is_transformed

Kernel = Literal["compiled", "fused", "blocked", "composed"]

HAS_NUMBA = find_spec("numba") is not None
PAYS_FROM = 2**18
"""Scores in a call from which `compiled` pays: for fewer, the call alone takes longer than torch's several steps."""


def choose_kernel(device: torch.device, dtype: torch.dtype, keys: int, queries: int = 0) -> Kernel:
    """The kernel of attention that benchmarks/attention_kernels.py found to be the fastest.

    Args:
        keys: keys of each query.
        queries: queries of all lines and heads, where queries and keys are the lines of one grid; elsewhere 0.

    | device | dtype             | keys    | scores  | kernel     | why                                                |
    |--------|-------------------|---------|---------|------------|----------------------------------------------------|
    | cpu    | float32           | <= 2048 | >= 2^18 | `compiled` | others take 1.0 to 2 times that along columns      |
    | cpu    | bfloat16          | <= 512  | >= 2^18 | `compiled` | (likewise)                                         |
    | cpu    | bfloat16, float16 | <= 2048 | any     | `blocked`  | with gradients, `fused` takes 1.1 to 10 times that |
    | cpu    | float32, float64  | < 64    | any     | `blocked`  | `fused` takes up to twice that                     |
    | any    | any               | any     | any     | `fused`    | the fastest, and holds no line's scores            |

    The first row that applies counts. Scores are queries times keys, where lines of less than 32 keys count as of 32,
    since torch's vectors are not full there. `compiled` needs numba, and torch.export cannot export it. Masks and the
    need of gradients change the times, hardly the order. `composed` is as fast as `blocked` where all fits into cache,
    and takes up to three times that elsewhere; it stands in for `blocked` while a graph is traced (torch.compile,
    torch.export): the loop of `blocked` would be unrolled, and the compiler fuses by itself. Under a transform of
    torch.func `composed` stands in for all.
    """
    if is_transformed():
        return "composed"
    if device.type != "cpu":
        return "fused"
    if isinstance(keys, torch.SymInt) and torch.compiler.is_exporting():
        return "composed"  # a comparison would tie the exported graph to the sizes that it was traced with
    longest = {torch.float32: 2048, torch.bfloat16: 512}.get(dtype, 0)
    compiled = HAS_NUMBA and not torch.compiler.is_exporting()
    if compiled and keys <= longest and max(keys, 32) * queries >= PAYS_FROM:
        return "compiled"
    if keys > (2048 if dtype.itemsize == 2 else 63):
        return "fused"
    return "composed" if torch.compiler.is_compiling() else "blocked"
