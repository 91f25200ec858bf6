"""Triangle attention beside the same formula in plain PyTorch, forward + backward in float32: seconds and peak memory.

    python benchmarks/triangle.py

Both have the same weights, inputs and gradients, which are compared first. They run interleaved in one process, the
least of the rounds counts; peak memory is what the call adds in a fresh process each. The last line is JSON.
"""

import json
import multiprocessing
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.triangle_attention import TriangleAttention
from command_line import run_command
from timing import interleaved, peak_memory, rows_of


class Plain(nn.Module):
    """AlphaFold's algorithms 13 and 14 with the weights of a `TriangleAttention`, all scores at once."""

    def __init__(self, layer: TriangleAttention):
        super().__init__()
        self.layer = layer

    def forward(self, pairs: Tensor) -> Tensor:
        layer, attention = self.layer, self.layer.attention
        ending = attention.axis == 1
        z = layer.norm(pairs.transpose(1, 2) if ending else pairs)
        q, k, v = (part.unflatten(-1, (attention.heads, -1)).transpose(2, 3) for part in attention.qkv(z).chunk(3, -1))
        scores = q @ k.mT * q.shape[-1] ** -0.5 + layer.pair_bias(z).permute(0, 3, 1, 2).unsqueeze(1)
        out = (F.softmax(scores, dim=-1) @ v).transpose(2, 3).flatten(-2)
        out = attention.out(torch.sigmoid(attention.gate(z)) * out)
        return out.transpose(1, 2) if ending else out


BUILD: dict[str, Callable[[TriangleAttention], nn.Module]] = {"axial": lambda layer: layer, "plain": Plain}


def layer_and_input(node: str, residues: int, dim: int, heads: int) -> tuple[TriangleAttention, Tensor]:
    generator = torch.Generator().manual_seed(0)
    layer = TriangleAttention(dim, heads, node, dim // heads)  # type: ignore[arg-type]
    randomise(layer, generator)
    pairs = torch.randn(1, residues, residues, dim, generator=generator)
    return layer, pairs.requires_grad_()


def run(layer: nn.Module, pairs: Tensor) -> list[Tensor]:
    out = layer(pairs)
    return [out.detach(), *torch.autograd.grad(out, [pairs, *layer.parameters()], torch.ones_like(out))]


def peak(name: str, case: tuple[str, int, int, int]) -> int:
    """Bytes that a forward + backward adds to the peak of this process."""
    torch.set_num_threads(1)
    node, _, *others = case
    layer, pairs = layer_and_input(node, 96, *others)
    run(BUILD[name](layer), pairs)  # loads libraries
    layer, pairs = layer_and_input(*case)
    return peak_memory(partial(run, BUILD[name](layer), pairs))


def main(residues: int = 256, dim: int = 128, heads: int = 4, rounds: int = 3) -> None:
    """Prints a row for each node: seconds, megabytes, and their ratios of plain PyTorch to the layer."""
    torch.set_num_threads(1)
    rows = []
    for node in rows_of(("starting", "ending")):
        case = node, residues, dim, heads
        layer, pairs = layer_and_input(*case)
        runs = {name: partial(run, build(layer), pairs) for name, build in BUILD.items()}
        ours, theirs = (runs[name]() for name in BUILD)
        assert all((a - b).norm() <= 1e-4 * b.norm() for a, b in zip(ours, theirs)), "they compute different things"
        del ours, theirs
        seconds = interleaved(runs, rounds, warm_up=0, summary=min)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            megabytes = {name: pool.apply(peak, (name, case)) / 1e6 for name in BUILD}
        rows.append(
            {
                "node": node,
                "seconds": {name: round(value, 3) for name, value in seconds.items()},
                "peak MB": {name: round(value) for name, value in megabytes.items()},
                "plain over axial": {
                    "seconds": round(seconds["plain"] / seconds["axial"], 2),
                    "peak": round(megabytes["plain"] / megabytes["axial"], 2),
                },
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    settings = {"residues": residues, "dim": dim, "heads": heads}
    print(json.dumps({"torch": torch.__version__, **settings, "rows": rows}))


if __name__ == "__main__":
    run_command(main)
