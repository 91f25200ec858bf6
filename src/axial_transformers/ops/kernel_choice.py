"""The choice among the kernels of attention: the first that can run.

- `compiled`, on a CPU, for 2^18 scores or more: float32 of <= 2048 keys, bfloat16 of <= 512.
- `fused`, on a CPU without dropout: float32 and float64 of >= 64 keys, half precision of > 2048.
- `fused`, elsewhere.
- `composed`, also under torch.func and in exports for any length.
"""

from importlib.util import find_spec

import torch

from axial_transformers.ops.torch_private import is_transformed

HAS_NUMBA = find_spec("numba") is not None
LONGEST = {torch.float32: 2048, torch.bfloat16: 512}
PAYS_FROM = 2**18


def compiled_can_run(device: torch.device, dtype: torch.dtype, keys: int, queries: int) -> str | None:
    """Return why the compiled kernels do not take a call, or None."""
    if not HAS_NUMBA:
        return "numba is not installed"
    if device.type != "cpu":
        return "compiled kernels run on a CPU"
    if is_transformed() or torch.compiler.is_exporting():
        return "transforms of torch.func and exported graphs take operations of torch only"
    if dtype not in LONGEST or keys > LONGEST[dtype]:
        return "compiled kernels take float32 lines of at most 2048 places, and bfloat16 lines of at most 512"
    # lines below 32 keys do not fill torch's vectors
    return None if max(keys, 32) * queries >= PAYS_FROM else "with few scores, the call takes longer than torch's steps"


def fused_can_run(device: torch.device, dtype: torch.dtype, keys: int, plain: bool = True) -> str | None:
    """Return why torch's fused kernel does not take a call, or None.

    A plain call has no dropout, and no bias that needs a gradient.
    """
    if is_transformed():
        return "transforms of torch.func do not take it"
    if device.type != "cpu":
        return None
    if not plain:
        return "on a CPU it has no dropout, and no gradient of a bias"
    if isinstance(keys, torch.SymInt) and torch.compiler.is_exporting():
        return "a comparison would tie the exported graph to the sizes that it was traced with"
    return None if keys > (2048 if dtype.itemsize == 2 else 63) else "on a CPU it is slower for short lines"


def copies_count(device: torch.device) -> bool:
    """Return True if copies of lines cost time, as on a GPU."""
    return device.type != "cpu"
