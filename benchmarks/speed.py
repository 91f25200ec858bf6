"""Speed on this machine: sampling, likelihoods, training steps, layers of attention, archives.

    python benchmarks/speed.py sampling                    32x32x3, width 128, 2+2+2 layers, batches 1, 4, 16, 64
    python benchmarks/speed.py likelihood fashion_mnist
    python benchmarks/speed.py steps --recipes digits fashion_mnist
    python benchmarks/speed.py layers
    python benchmarks/speed.py archives fashion_mnist fashion_mnist_test.npz --count 1000

Everything runs in one thread and is timed by the CPU time of this process, so that other jobs disturb less; `archives`
takes `--threads`, and then the time of the wall. What is compared takes turns. Each row is printed as it comes.
The last line is JSON.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import axial_transformers as axial
from axial_transformers.data import Examples, load
from axial_transformers.decoding import NoiseChoice, decode, sampling as samples
from axial_transformers.decoding.backend_choice import choose_backend
from axial_transformers.layers.attention import AxialAttention
from axial_transformers.layers.initialisation import randomise
from axial_transformers.machine import machine_facts
from axial_transformers.models import UNCONDITIONAL, AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.elementwise import shift
from axial_transformers.recipes import NAMED
from axial_transformers.training import TrainConfig
from axial_transformers.training.metrics import forget_peak_memory
from axial_transformers.training.processes import Processes
from axial_transformers.training.step import Learner, prepare_learner, step
from command_line import run_command
from timing import CPU, dtypes, interleaved, now, rows_of

Row = dict[str, Any]
SHAPES = ("1x8x8x128", "1x16x16x128", "8x32x32x128", "2x64x64x128", "1x128x128x128", "1x16x32x32x64")
HEADS = 4
ROWS = (0, 1)
"""Rows of the last channel on which the paper's scheme is timed; all rows cost the same."""


class Paper:
    """Section 3.2 as published: for every row the outer decoder over the whole image, for every position the inner
    decoder over its row; nothing is cached between rows or positions."""

    def __init__(self, model: AxialTransformer, choose: Callable[[Tensor, tuple[int, ...]], Tensor]):
        self.model, self.choose = model, choose
        (self.outer,) = model.outer_decoders

    def start_channel(self, x: Tensor, channel: int) -> Tensor:
        """x [B, H, W, C] -> context [B, H, W, D]."""
        number = torch.full((len(x),), channel, device=x.device)
        return self.model.context(x, number, self.model.embed_conditioning(len(x), UNCONDITIONAL))

    def fill_row(self, x: Tensor, context: Tensor, row: int, channel: int) -> None:
        """Decides x[:, row, :, channel]."""
        model = self.model
        values = x[..., channel]
        of_row = self.outer(model.embed_value(values), context)[:, row]
        for column in range(x.shape[2]):
            h = model.embed_value(x[:, row, :, channel])
            out = model.inner_decoder(shift(h, -2) + of_row)
            x[:, row, column, channel] = self.choose(model.head(out[:, column]), (row, column, channel))


def sampling(
    size: int = 32,
    width: int = 128,
    heads: int = 4,
    layers: int = 2,
    batches: tuple[int, ...] = (1, 4, 16, 64),
    rounds: int = 3,
) -> list[Row]:
    """Time the exact network, eager decoding, the paper's scheme, and a forward pass for each position.

    All sample with the same noise and must agree: where an example differs, the two values first chosen differently
    must be tied within rounding. The last two schemes are timed on two rows and one position, and extrapolated.
    """
    config = AxialTransformerConfig(
        shape=(size, size),
        channels=3,
        dim=width,
        heads=heads,
        encoder_layers=layers,
        outer_layers=layers,
        inner_layers=layers,
        mlp_ratio=1.0,
    )
    model = AxialTransformer(config)
    randomise(model, torch.Generator().manual_seed(0))  # fresh weights have equal logits everywhere
    model.eval()
    decoded(model, samples.noise_for(config, 1, seed=1), compile=True)  # prepares the engine
    return [shown(measure_sampling(model, batch, rounds)) for batch in rows_of(batches)]


def decoded(model: AxialTransformer, noise: Tensor, compile: bool) -> Tensor:
    blank = torch.zeros(noise.shape[:-1], dtype=torch.int64)
    return decode(model, NoiseChoice(noise=noise), blank, backend=partial(choose_backend, compile=compile))


@torch.no_grad()
def measure_sampling(model: AxialTransformer, batch: int, rounds: int) -> Row:
    """Microseconds of a position by scheme, and the number of examples with a tie."""
    noise, positions = samples.noise_for(model.config, batch, seed=1), len(model.order)
    height, channel = model.config.shape[0], model.config.channels - 1
    paper, number = Paper(model, NoiseChoice(noise=noise)), torch.full((batch,), channel)
    found: dict[str, Tensor] = {}

    def keep(name: str) -> None:
        found[name] = decoded(model, noise, compile=name == "engine")

    whole = interleaved({name: partial(keep, name) for name in ("engine", "eager")}, rounds, warm_up=0)
    eager = found["eager"]
    tied, x = ties(model, noise, eager, found["engine"]), eager.clone()
    context = paper.start_channel(x, channel)
    parts: dict[str, Callable[[], object]] = {
        "channel": partial(paper.start_channel, x, channel),
        "forward": partial(model.slice_and_outputs, eager, number),
    }
    parts |= {str(row): partial(paper.fill_row, x, context, row, channel) for row in ROWS}
    seconds = interleaved(parts, rounds, warm_up=0)
    for row in ROWS:
        x = eager.clone()
        x[:, row:, :, channel] = 0
        paper.fill_row(x, context, row, channel)
        filled = eager.clone()
        filled[:, row, :, channel] = x[:, row, :, channel]
        tied = max(tied, ties(model, noise, eager, filled))
    of_row = median(seconds[str(row)] for row in ROWS)
    whole["paper"] = model.config.channels * (seconds["channel"] + height * of_row)
    whole["naive"] = positions * seconds["forward"]
    microseconds = {name: round(took / positions * 1e6, 1) for name, took in whole.items()}
    return {"batch": batch, "microseconds_of_a_position": microseconds, "examples_with_a_tie": tied}


def ties(model: AxialTransformer, noise: Tensor, wanted: Tensor, got: Tensor) -> int:
    """Number of examples that differ, each of them first at a tie within rounding, which is asserted."""
    order = tuple(model.order.T)
    differ = (wanted != got)[(slice(None), *order)]
    different = differ.any(dim=1).nonzero().flatten().tolist()
    for example in different:
        position = tuple(model.order[differ[example].int().argmax()].tolist())
        noisy = model(wanted[example : example + 1])[(0, *position)] + noise[(example, *position)]
        gap = noisy[wanted[(example, *position)]] - noisy[got[(example, *position)]]
        assert gap.abs() < 1e-4, f"example {example} differs at {position} by {gap.item():.2e}"
    return len(different)


def likelihood(model: str = "fashion_mnist", batches: tuple[int, ...] = (1, 16, 64), rounds: int = 3) -> list[Row]:
    """Time the exact bits/dim of a model, of its own samples."""
    net = AxialTransformer.from_pretrained(model)
    x = axial.sample(net, max(batches), seed=0)
    runs = {str(batch): partial(axial.bits_per_dim, net, x[:batch]) for batch in batches}
    seconds = interleaved(runs, rounds, warm_up=1)
    return [shown({"batch": batch, "images_per_second": batch / seconds[str(batch)]}) for batch in batches]


def steps(recipes: tuple[str, ...] = ("digits", "fashion_mnist", "photos32"), rounds: int = 10) -> list[Row]:
    """Time the steps of recipes as they are shipped, making of the batch included."""
    rows = []
    for name in rows_of(recipes):
        recipe = NAMED[name]()
        with started(recipe.model, recipe.training, CPU) as run:
            seconds_of_steps(run, 3, CPU)
            seconds = median(seconds_of_steps(run, 1, CPU) for _ in range(rounds))
            config = run.config
        told = {"batch": config.batch_size, "precision": config.precision, "compile": config.compile}
        rows.append(shown({"recipe": name, **told, "seconds": seconds, "per_second": config.batch_size / seconds}))
    return rows


@contextmanager
def started(model: AxialTransformerConfig, training: TrainConfig, device: torch.device) -> Iterator[Learner]:
    """A run of random weights, built on the device, and random examples."""
    forget_peak_memory(device)
    with Processes(device) as alone:
        torch.manual_seed(0)
        with device:
            net = AxialTransformer(model)
        run = prepare_learner(net, random_examples(model), training.resolve_auto(), alone)
        yield run
        run.close()


def seconds_of_steps(run: Learner, count: int, device: torch.device) -> float:
    began = now(device)
    for _ in range(count):
        step(run)
    return now(device) - began


def random_examples(config: AxialTransformerConfig, count: int = 128) -> Examples:
    rng = np.random.default_rng(0)
    values = rng.integers(0, config.num_values, (count, *config.shape, config.channels), dtype=np.uint8)
    labels = rng.integers(0, config.num_classes, count) if config.num_classes else None
    return Examples(values=values, names=[str(i) for i in range(count)], labels=labels, range=config.range)


def layers(shapes: tuple[str, ...] = SHAPES, rounds: int = 9) -> list[Row]:
    """Time attention forward + backward: the axial layer, the package axial_attention if it is here, torch's own.

    Torch's own is `MultiheadAttention` over all positions, and `scaled_dot_product_attention` along each axis.
    """
    rows = []
    for (name, dtype), sizes in rows_of([*product(dtypes().items(), shapes)]):
        shape = tuple(int(size) for size in sizes.split("x"))
        x = torch.randn(shape, dtype=dtype, requires_grad=True)
        runs = {kind: partial(there_and_back, build(shape).to(dtype), x) for kind, build in built().items()}
        seconds = interleaved(runs, rounds, warm_up=1)
        times = {kind: took / seconds["axial"] for kind, took in seconds.items()}
        rows.append(shown({"shape": shape, "dtype": name, "milliseconds": seconds["axial"] * 1e3, "times": times}))
    return rows


class OverAll(nn.MultiheadAttention):
    """Torch's attention over all positions."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        flat = x.flatten(1, -2)
        return super().forward(flat, flat, flat, need_weights=False)[0].unflatten(1, x.shape[1:-1])


class AlongEachAxis(nn.Module):
    """Torch's fused attention along each axis, as it is usually written: a sum of attentions, like `AxialAttention`."""

    def __init__(self, dim: int, axes: tuple[int, ...]):
        super().__init__()
        self.axes = axes
        self.qkv = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in axes)
        self.out = nn.ModuleList(nn.Linear(dim, dim) for _ in axes)

    def forward(self, x: Tensor) -> Tensor:
        outs = []
        for axis, qkv, out in zip(self.axes, self.qkv, self.out):
            lines = qkv(x.movedim(axis, -2)).unflatten(-1, (3, HEADS, -1)).movedim(-3, 0).transpose(-3, -2)
            attended = nn.functional.scaled_dot_product_attention(*lines)
            outs.append(out(attended.transpose(-3, -2).flatten(-2)).movedim(-2, axis))
        return sum(outs[1:], outs[0])


def built() -> dict[str, Callable[[tuple[int, ...]], nn.Module]]:
    """How each layer is built for an input of a shape."""
    found: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
        "axial": lambda shape: AxialAttention(shape[-1], HEADS, tuple(range(1, len(shape) - 1)), combine="sum"),
        "torch": lambda shape: OverAll(shape[-1], HEADS, batch_first=True),
        "sdpa": lambda shape: AlongEachAxis(shape[-1], tuple(range(1, len(shape) - 1))),
    }
    if find_spec("axial_attention"):
        import axial_attention

        package = axial_attention.AxialAttention
        found["package"] = lambda shape: package(shape[-1], num_dimensions=len(shape) - 2, heads=HEADS, dim_index=-1)
    return found


def there_and_back(layer: nn.Module, x: Tensor) -> None:
    out = layer(x)
    torch.autograd.grad(out, [x, *layer.parameters()], torch.ones_like(out), allow_unused=True)


def archives(model: str, source: Path, count: int = 1000, threads: int = 1, rounds: int = 1) -> list[Row]:
    """Size of an archive of images, without its model, beside the model's own bits; the speed of both ways."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    net, values = AxialTransformer.from_pretrained(model), load(source, split="all").values[:count]
    images, written = torch.from_numpy(values), list[bytes]()
    runs: dict[str, Callable[[], object]] = {
        "writing": lambda: written.append(axial.compress(net, images, verify=False)),
        "reading": lambda: axial.decompress(net, written[0]),
        "sampling": lambda: axial.sample(net, count, seed=0, compile=True),
    }
    seconds = interleaved(runs, rounds, warm_up=0, clock=clock)
    assert torch.equal(axial.decompress(net, written[0]), images)
    bits = torch.cat([axial.bits_per_dim(net, some) for some in images.split(64)]).mean().item()
    size = {"bytes": len(written[0]), "bits_per_dim": 8 * len(written[0]) / values.size, "of_the_model": bits}
    return [shown({"images": count, **size, "images_per_second": {name: count / t for name, t in seconds.items()}})]


def shown(row: Row) -> Row:
    """Print a row, and return it."""
    print(row, flush=True)
    return row


def main() -> None:
    torch.set_num_threads(1)
    rows = run_command(sampling, likelihood, steps, layers, archives, description=__doc__)
    print(json.dumps({"rows": rows, "machine": machine_facts(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
