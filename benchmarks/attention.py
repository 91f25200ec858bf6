"""Axial attention beside the `axial_attention` package, full attention, and its own linear layers alone.

    pip install -e '.[benchmarks]'    # optional: without it, the package's columns are left out
    python benchmarks/attention.py

All run interleaved in one process, in float32 and bfloat16, forward and forward + backward; peak memory is that of a
fresh process each. "Maps" are the linear layers without the attention: a lower bound for any kernel.
The last line is JSON.
"""

import json
import multiprocessing
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from math import exp, log
from typing import Any

import torch
import tyro
from torch import Tensor, nn

from axial_transformers.layers.attention import AxialAttention, FullAttention
from timing import interleaved, peak_memory

SHAPES = [(8, 32, 32, 128), (2, 64, 64, 128), (1, 128, 128, 128), (1, 16, 32, 32, 64)]
HEADS = 4
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Maps(nn.Module):
    """The linear layers of an axial attention, without the attention between them."""

    def __init__(self, layer: AxialAttention):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return sum(part.out(part.qkv(x)[..., -part.value_dim :]) for part in self.layer.layers.values())


def axial(shape: tuple[int, ...]) -> AxialAttention:
    return AxialAttention(shape[-1], HEADS, tuple(range(1, len(shape) - 1)), combine="sum")


def package(shape: tuple[int, ...]) -> nn.Module:
    import axial_attention

    return axial_attention.AxialAttention(shape[-1], num_dimensions=len(shape) - 2, heads=HEADS, dim_index=-1)


BUILD: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
    "axial": axial,
    "package": package,
    "full": lambda shape: FullAttention(shape[-1], HEADS),
    "maps": lambda shape: Maps(axial(shape)),
}


def run(layer: nn.Module, x: Tensor, backward: bool) -> None:
    with torch.set_grad_enabled(backward):
        out = layer(x)
    if backward:
        torch.autograd.grad(out, [x, *layer.parameters()], torch.ones_like(out), allow_unused=True)


def times(names: list[str], shape: tuple[int, ...], dtype: torch.dtype, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of each layer: forward, and forward + backward."""
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    layers = {name: BUILD[name](shape).to(dtype) for name in names}
    found = {}
    for backward in (False, True):
        key = "forward + backward" if backward else "forward"
        runs = {name: partial(run, layer, x, backward) for name, layer in layers.items() if name != "full"}
        found[key] = interleaved(runs, rounds)
        if "full" in layers:
            runs = {name: partial(run, layers[name], x, backward) for name in ("axial", "full")}
            slow = interleaved(runs, max(1, rounds // 5), warm_up=1)
            found[key]["full"] = slow["full"] / slow["axial"] * found[key]["axial"]
    return found


def peak(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes that a forward + backward adds to the peak of a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (name, shape, dtype))


def _peak(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    torch.set_num_threads(1)
    small = (1, *(48 for _ in shape[1:-1]), shape[-1])
    layer = BUILD[name](shape).to(dtype)
    run(layer, torch.randn(small, dtype=dtype, requires_grad=True), backward=True)  # loads libraries
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    return peak_memory(partial(run, layer, x, backward=True))


def main(rounds: int = 15, threads: int = 1, full: bool = True, memory: bool = True) -> None:
    """Prints ratios to axial attention: above 1 is slower, or larger."""
    torch.set_num_threads(threads)
    names = [name for name in BUILD if (full or name != "full") and (name != "package" or find_spec("axial_attention"))]
    rows: list[dict[str, Any]] = []
    for dtype_name, dtype in DTYPES.items():
        for shape in SHAPES:
            row: dict[str, Any] = {"shape": shape, "dtype": dtype_name}
            for key, seconds in times(names, shape, dtype, rounds).items():
                row[key] = {name: round(seconds[name] / seconds["axial"], 2) for name in names}
                row[key]["axial over maps"] = round(seconds["axial"] / seconds["maps"], 2)
                row[key]["ms"] = round(seconds["axial"] * 1e3, 1)
            if memory and shape == (1, 128, 128, 128):
                peaks = {name: peak(name, shape, dtype) for name in names if name != "full"}
                row["peak MB"] = {name: round(size / 1e6) for name, size in peaks.items()}
            print(json.dumps(row), flush=True)
            rows.append(row)
    summary: dict[str, Any] = {"torch": torch.__version__, "threads": threads, "rows": rows}
    if "package" in names:
        ratios = [row["forward + backward"]["package"] for row in rows]
        summary["times the package's speed"] = {
            "geometric mean": round(exp(sum(map(log, ratios)) / len(ratios)), 2),
            "least": min(ratios),
        }
    print(json.dumps(summary))


if __name__ == "__main__":
    tyro.cli(main)
