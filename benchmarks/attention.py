"""Axial attention beside the `axial_attention` package, full attention, and its own linear layers alone.

    pip install -e '.[benchmarks]'    # optional: without it, the package's columns are left out
    python benchmarks/attention.py

All run interleaved in one process, forward and forward + backward, in float32, and in bfloat16 where the processor
multiplies it faster; peak memory is that of a fresh process each. "Maps" are the linear layers without the attention: a
lower bound for any kernel.
`--package-only` compares forward + backward with the package alone, at more sizes and with its own number of heads.
`--equation-4-only` compares position-sensitive attention (Wang et al. 2020, equation 4) along columns instead: a global
layer and one with a span of 9 beside a plain layer of equal widths and beside the published formulation, einsums over
gathered tables; "published over maps of plain" is the most that a layer can gain, since all have those linear layers.
Ratios are to the plain layer.
The last line is JSON.
"""

import json
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from math import exp, log, sqrt
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from axial_transformers.layers.attention import AxialAttention, FullAttention
from axial_transformers.layers.lines import LineAttention
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from command_line import run_command
from timing import dtypes, interleaved, peak_memory, rows_of

MAX_SHAPE = (1, 128, 128, 128)
"""Whose memory is measured."""
SHAPES = [(8, 32, 32, 128), (2, 64, 64, 128), MAX_SHAPE, (1, 16, 32, 32, 64)]
HEADS = 4
SPAN = 9
BESIDE_PACKAGE = [
    (1, 32, 32, 64), (4, 32, 32, 64), (4, 32, 32, 128), (2, 32, 32, 256),
    (1, 64, 64, 64), (2, 64, 64, 128), (1, 64, 64, 256), (1, 8, 16, 16, 64), (4, 8, 16, 16, 128),
]  # fmt: skip
OF_PACKAGE = 8
"""Heads that the package has unless told otherwise."""


class Maps(nn.Module):
    """The linear layers of attentions along axes, summed, without the attention between them."""

    def __init__(self, *parts: nn.Module):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return sum(part.out(part.qkv(x)[..., -part.widths[2] :]) for part in self.parts)


def axial(shape: tuple[int, ...], heads: int = HEADS) -> AxialAttention:
    return AxialAttention(shape[-1], heads, tuple(range(1, len(shape) - 1)), combine="sum")


def package(shape: tuple[int, ...], heads: int = HEADS) -> nn.Module:
    import axial_attention

    return axial_attention.AxialAttention(shape[-1], num_dimensions=len(shape) - 2, heads=heads, dim_index=-1)


BUILD: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
    "axial": axial,
    "package": package,
    "full": lambda shape: FullAttention(shape[-1], HEADS),
    "maps": lambda shape: Maps(*axial(shape).layers.values()),
    "plain": lambda shape: plain(shape),
    "maps of plain": lambda shape: Maps(plain(shape)),
    "equation 4": lambda shape: position_sensitive(shape, size=shape[1]),
    "span": lambda shape: position_sensitive(shape, span=SPAN),
    "published": lambda shape: Published(position_sensitive(shape, size=shape[1])),
}
OF_EQUATION_4 = ["plain", "maps of plain", "equation 4", "span", "published"]


class Published(nn.Module):
    """A global layer as its authors compute it: einsums over tables gathered for each pair of positions of a line."""

    def __init__(self, layer: PositionSensitiveAxialAttention):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        layer, position = self.layer, torch.arange(x.shape[1])
        parts = layer.qkv(x).split([layer.key_dim, layer.key_dim, layer.value_dim], dim=-1)
        q, k, v = (part.unflatten(-1, (layer.heads, -1)).permute(0, 2, 3, 4, 1).flatten(0, 1) for part in parts)
        rows = (position[None, :] - position[:, None] + layer.size - 1).flatten()  # query, key
        rq, rk, rv = (
            table[:, 0].mT.index_select(1, rows).view(-1, len(position), len(position))
            for table in (layer.query_table, layer.key_table, layer.value_table)
        )
        scores = torch.einsum("bnco,bncp->bnop", q, k)
        scores = scores + torch.einsum("bnco,cop->bnop", q, rq) + torch.einsum("bncp,cop->bnop", k, rk)
        weights = torch.softmax(scores / sqrt(q.shape[2]), dim=-1)
        out = torch.einsum("bnop,bncp->bnco", weights, v) + torch.einsum("bnop,cop->bnco", weights, rv)
        return layer.out(out.unflatten(0, (x.shape[0], -1)).permute(0, 4, 1, 2, 3).flatten(-2))


def plain(shape: tuple[int, ...]) -> LineAttention:
    return LineAttention(shape[-1], HEADS, axis=1, key_dim=shape[-1] // 2)


def position_sensitive(shape: tuple[int, ...], **extent: Any) -> PositionSensitiveAxialAttention:
    return PositionSensitiveAxialAttention(shape[-1], HEADS, axis=1, value_dim=shape[-1], **extent)


def run(layer: nn.Module, x: Tensor, backward: bool) -> None:
    with torch.set_grad_enabled(backward):
        out = layer(x)
    if backward:
        torch.autograd.grad(out, [x, *layer.parameters()], torch.ones_like(out), allow_unused=True)


def times(
    names: list[str], shape: tuple[int, ...], dtype: torch.dtype, rounds: int, least: bool = False
) -> dict[str, dict[str, float]]:
    """Seconds of each layer: forward, and forward + backward; the median of all rounds, or the least."""
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    layers = {name: BUILD[name](shape).to(dtype) for name in names}
    found = {}
    for backward in (False, True):
        key = "forward + backward" if backward else "forward"
        runs = {name: partial(run, layer, x, backward) for name, layer in layers.items() if name != "full"}
        found[key] = interleaved(runs, rounds, summary=min if least else median)
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
    small = (2, *(min(48, size) for size in shape[1:-1]), shape[-1])
    layer = BUILD[name](shape).to(dtype)
    run(layer, torch.randn(small, dtype=dtype, requires_grad=True), backward=True)  # loads libraries
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    return peak_memory(partial(run, layer, x, backward=True))


def beside_plain(names: list[str], rounds: int, memory: bool) -> None:
    """Prints ratios to the plain layer in float32: least times of all rounds, since other jobs only add to them."""
    rows = []
    for shape in rows_of([shape for shape in SHAPES if len(shape) == 4]):
        row: dict[str, Any] = {"shape": shape, "threads": torch.get_num_threads()}
        for key, seconds in times(names, shape, torch.float32, rounds, least=True).items():
            row[key] = {name: round(seconds[name] / seconds["plain"], 2) for name in names}
            if "published" in names:
                for other in ("equation 4", "maps of plain"):
                    row[key][f"published over {other}"] = round(seconds["published"] / seconds[other], 2)
            row[key]["ms of plain"] = round(seconds["plain"] * 1e3, 1)
        if memory and shape == MAX_SHAPE:
            peaks = {name: peak(name, shape, torch.float32) for name in names}
            row["peak MB"] = {name: round(size / 1e6) for name, size in peaks.items()}
        print(json.dumps(row), flush=True)
        rows.append(row)
    print(json.dumps({"torch": torch.__version__, "rows": rows}))


def beside_package(rounds: int) -> None:
    """Prints how many times as long as ours the package takes: least times, of several threads by the wall clock."""
    clock = None if torch.get_num_threads() == 1 else time.perf_counter
    rows: list[dict[str, Any]] = []
    for (dtype_name, dtype), shape in rows_of([*product(dtypes().items(), BESIDE_PACKAGE)]):
        x = torch.randn(shape, dtype=dtype, requires_grad=True)
        layers = {"axial": axial(shape, OF_PACKAGE).to(dtype), "package": package(shape, OF_PACKAGE).to(dtype)}
        runs = {name: partial(run, layer, x, backward=True) for name, layer in layers.items()}
        seconds = interleaved(runs, rounds, summary=min, clock=clock)
        row = {
            "shape": shape,
            "dtype": dtype_name,
            "package over axial": round(seconds["package"] / seconds["axial"], 2),
            "ms": round(seconds["axial"] * 1e3, 2),
        }
        print(json.dumps(row), flush=True)
        rows.append(row)
    summary = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}
    print(json.dumps(summary | _summary([row["package over axial"] for row in rows])))


def _summary(ratios: list[float]) -> dict[str, Any]:
    mean = round(exp(sum(map(log, ratios)) / len(ratios)), 2)
    return {"times the package's speed": {"geometric mean": mean, "least": min(ratios)}}


def main(
    rounds: int = 15,
    threads: int = 1,
    full: bool = True,
    memory: bool = True,
    equation_4_only: bool = False,
    package_only: bool = False,
) -> None:
    """Prints ratios to axial attention: above 1 is slower, or larger."""
    torch.set_num_threads(threads)
    if package_only:
        return beside_package(rounds)
    if equation_4_only:
        return beside_plain(OF_EQUATION_4, rounds, memory)
    names = [
        name
        for name in BUILD
        if name not in OF_EQUATION_4
        and (full or name != "full")
        and (name != "package" or find_spec("axial_attention"))
    ]
    rows: list[dict[str, Any]] = []
    for (dtype_name, dtype), shape in rows_of([*product(dtypes().items(), SHAPES)]):
        row: dict[str, Any] = {"shape": shape, "dtype": dtype_name}
        for key, seconds in times(names, shape, dtype, rounds).items():
            row[key] = {name: round(seconds[name] / seconds["axial"], 2) for name in names}
            row[key]["axial over maps"] = round(seconds["axial"] / seconds["maps"], 2)
            row[key]["ms"] = round(seconds["axial"] * 1e3, 1)
        if memory and shape == MAX_SHAPE:
            peaks = {name: peak(name, shape, dtype) for name in names if name != "full"}
            row["peak MB"] = {name: round(size / 1e6) for name, size in peaks.items()}
        print(json.dumps(row), flush=True)
        rows.append(row)
    summary: dict[str, Any] = {"torch": torch.__version__, "threads": threads, "rows": rows}
    if "package" in names:
        summary |= _summary([row["forward + backward"]["package"] for row in rows])
    print(json.dumps(summary))


if __name__ == "__main__":
    run_command(main)
