"""Axial attention beside the `axial_attention` package and full attention: forward + backward, and peak memory.

    pip install -e '.[benchmarks]'    # optional: without it, the package's column is left out
    python benchmarks/attention.py

All run interleaved in one process, in float32, and in bfloat16 where the processor has instructions; peak memory is
that of a fresh process each.
`--package-only` compares with the package alone, at more sizes and with its own number of heads.
`--equation-4-only` compares position-sensitive attention (Wang et al. 2020, equation 4) along columns instead: a global
layer and one with a span of 9 beside a plain layer of equal widths, beside that layer's linear layers alone, which all
have, and beside the published formulation, einsums over gathered tables.
Each row has the milliseconds of its first layer, and how many times as long the others take. The last line is JSON.
"""

import json
import multiprocessing
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib.util import find_spec
from itertools import product
from math import sqrt
from statistics import geometric_mean, median
from typing import Any

import torch
from torch import Tensor, nn

from axial_transformers.layers.attention import AxialAttention, FullAttention
from axial_transformers.layers.lines import LineAttention
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from command_line import run_command
from timing import dtypes, interleaved, peak_memory, rows_of

Summary = Callable[[list[float]], float]

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
    """The linear layers of attention along an axis, without the attention between them."""

    def __init__(self, layer: LineAttention):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.out(self.layer.qkv(x)[..., -self.layer.widths[2] :])


def axial(shape: tuple[int, ...], heads: int) -> AxialAttention:
    return AxialAttention(shape[-1], heads, tuple(range(1, len(shape) - 1)), combine="sum")


def package(shape: tuple[int, ...], heads: int) -> nn.Module:
    import axial_attention

    return axial_attention.AxialAttention(shape[-1], num_dimensions=len(shape) - 2, heads=heads, dim_index=-1)


def plain(shape: tuple[int, ...], heads: int) -> LineAttention:
    return LineAttention(shape[-1], heads, axis=1, key_dim=shape[-1] // 2)


def position_sensitive(shape: tuple[int, ...], heads: int, **extent: Any) -> PositionSensitiveAxialAttention:
    return PositionSensitiveAxialAttention(shape[-1], heads, axis=1, value_dim=shape[-1], **extent)


BUILD: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "axial": axial,
    "package": package,
    "full": lambda shape, heads: FullAttention(shape[-1], heads),
    "plain": plain,
    "maps of plain": lambda shape, heads: Maps(plain(shape, heads)),
    "equation 4": lambda shape, heads: position_sensitive(shape, heads, size=shape[1]),
    "span": lambda shape, heads: position_sensitive(shape, heads, span=SPAN),
    "published": lambda shape, heads: Published(position_sensitive(shape, heads, size=shape[1])),
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


def run(layer: nn.Module, x: Tensor) -> None:
    out = layer(x)
    torch.autograd.grad(out, [x, *layer.parameters()], torch.ones_like(out), allow_unused=True)


def times(
    names: list[str], shape: tuple[int, ...], heads: int, dtype: torch.dtype, rounds: int, summary: Summary
) -> dict[str, float]:
    """Seconds of each layer, forward + backward."""
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    runs = {name: partial(run, BUILD[name](shape, heads).to(dtype), x) for name in names}
    found = interleaved({name: runs[name] for name in names if name != "full"}, rounds, summary=summary)
    if "full" in names:
        slow = interleaved({name: runs[name] for name in ("axial", "full")}, max(1, rounds // 5), warm_up=1)
        found["full"] = slow["full"] / slow["axial"] * found["axial"]
    return found


def peak(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes that a forward + backward adds to the peak of a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (name, shape, dtype))


def _peak(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> int:
    torch.set_num_threads(1)
    small = (2, *(min(48, size) for size in shape[1:-1]), shape[-1])
    layer = BUILD[name](shape, HEADS).to(dtype)
    run(layer, torch.randn(small, dtype=dtype, requires_grad=True))  # loads libraries
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    return peak_memory(partial(run, layer, x))


def compare(
    names: list[str],
    shapes: Collection[tuple[int, ...]],
    types: Mapping[str, torch.dtype],
    rounds: int,
    summary: Summary,
    heads: int = HEADS,
) -> None:
    """Print a row for each dtype and shape, then their JSON; ratios are to the first layer."""
    first, rows = names[0], list[dict[str, Any]]()
    for (dtype_name, dtype), shape in rows_of([*product(types.items(), shapes)]):
        seconds = times(names, shape, heads, dtype, rounds, summary)
        row: dict[str, Any] = {"shape": shape, "dtype": dtype_name, "ms": round(seconds[first] * 1e3, 2)}
        row |= {name: round(seconds[name] / seconds[first], 2) for name in names[1:]}
        if shape == MAX_SHAPE:
            peaks = {name: peak(name, shape, dtype) for name in names if name != "full"}
            row["peak MB"] = {name: round(size / 1e6) for name, size in peaks.items()}
        print(json.dumps(row), flush=True)
        rows.append(row)
    found: dict[str, Any] = {"torch": torch.__version__, "rows": rows}
    if "package" in names:
        found["geometric mean of package"] = round(geometric_mean(row["package"] for row in rows), 2)
    print(json.dumps(found))


def main(rounds: int = 15, equation_4_only: bool = False, package_only: bool = False) -> None:
    """Times layers on one thread."""
    torch.set_num_threads(1)
    if package_only:
        compare(["axial", "package"], BESIDE_PACKAGE, dtypes(), rounds, min, OF_PACKAGE)
    elif equation_4_only:
        squares = [shape for shape in SHAPES if len(shape) == 4]
        compare(OF_EQUATION_4, squares, {"float32": torch.float32}, rounds, min)
    else:
        installed = ["package"] * bool(find_spec("axial_attention"))
        compare(["axial", *installed, "full"], SHAPES, dtypes(), rounds, median)


if __name__ == "__main__":
    run_command(main)
