"""Linear layers by oneDNN beside torch's own, forward and forward + backward, on the processor at hand.

    python benchmarks/linear.py

Interleaved in one process. The last line is JSON: GFLOP/s of both, and their ratio.
"""

import json
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from axial_transformers.ops import linear as ops
from command_line import run_command
from timing import interleaved

CASES = [(512, 128, 128), (8192, 128, 384), (8192, 128, 128), (8192, 512, 128), (4096, 512, 2048)]


def run(product: Callable[..., Tensor], tensors: list[Tensor], backward: bool) -> None:
    with torch.set_grad_enabled(backward):
        out = product(*tensors)
    if backward:
        torch.autograd.grad(out, tensors, torch.ones_like(out))


def main(rounds: int = 15, threads: int = 1) -> None:
    """Times layers of several sizes."""
    torch.set_num_threads(threads)
    as_shipped = ops.onednn_is_faster()
    ops.onednn_is_faster = lambda: ops.HAS_ONEDNN
    rows = []
    for sites, inputs, outputs in CASES:
        tensors = [torch.randn(sites, inputs), torch.randn(outputs, inputs), torch.randn(outputs)]
        tensors = [tensor.requires_grad_() for tensor in tensors]
        row: dict[str, object] = {"rows": sites, "inputs": inputs, "outputs": outputs}
        for backward, products in ((False, 1), (True, 3)):
            runs = {
                "ours": partial(run, ops.linear, tensors, backward),
                "torch": partial(run, F.linear, tensors, backward),
            }
            seconds = interleaved(runs, rounds)
            work = 2 * sites * inputs * outputs * products
            row["forward + backward" if backward else "forward"] = {
                **{f"{name} GFLOP/s": round(work / taken / 1e9) for name, taken in seconds.items()},
                "times as fast": round(seconds["torch"] / seconds["ours"], 2),
            }
        rows.append(row)
        print(json.dumps(row), flush=True)
    facts = {"torch": torch.__version__, "threads": threads, "has onednn": ops.HAS_ONEDNN, "taken here": as_shipped}
    print(json.dumps({**facts, "rows": rows}))


if __name__ == "__main__":
    run_command(main)
