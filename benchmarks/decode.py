"""Seconds that decoding takes: compiled, eager, the paper's semi-parallel sampling, and a forward pass a position.

    python benchmarks/decode.py                             32x32x3, width 128, 2+2+2 layers, batches 1, 4, 16, 64
    python benchmarks/decode.py --width 512 --layers 8 8 4 --batches 4
    python benchmarks/decode.py --size 8 --batches 1 4 --repeats 1       a smaller image

All sample with the same noise, alternately, in one process, and must agree: where an example differs, the two values
first chosen differently must be tied within rounding. The paper's scheme and the naive one are timed on a few rows of
the last channel and a few positions, and extrapolated; the rows they fill must agree as well. The clock is CPU time of
one thread, so that other jobs on the machine disturb less. Prints a row for each batch; the last line is JSON.
"""

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from axial_transformers.decoding import NoiseChoice, decode, sampling
from axial_transformers.decoding.backend_choice import choose_backend
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import UNCONDITIONAL, AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.elementwise import shift
from command_line import run_command
from timing import now, rows_of


@dataclass(frozen=True, kw_only=True)
class Options:
    size: int = 32
    """Height and width."""
    channels: int = 3
    width: int = 128
    heads: int = 4
    ratio: float = 1.0
    """Hidden width of the feedforward blocks, divided by the width."""
    layers: tuple[int, int, int] = (2, 2, 2)
    """Layers of the channel encoder, the outer decoder and the inner decoder."""
    batches: tuple[int, ...] = (1, 4, 16, 64)
    repeats: int = 3
    """Repetitions; the median is reported."""
    rows: tuple[int, ...] = (0, 1)
    """Rows of the last channel on which the paper's scheme is timed; all rows cost the same."""
    positions: int = 3
    """Positions on which the naive scheme is timed."""


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
        of_row = self.outer(model.embed_value(values), context, values)[:, row]
        for column in range(x.shape[2]):
            h = model.embed_value(x[:, row, :, channel])
            out = model.inner_decoder(shift(h, -2) + of_row)
            x[:, row, column, channel] = self.choose(model.head(out[:, column]), (row, column, channel))


def main(options: Options) -> None:
    torch.set_num_threads(1)
    encoder, outer, inner = options.layers
    config = AxialTransformerConfig(
        shape=(options.size, options.size),
        channels=options.channels,
        dim=options.width,
        heads=options.heads,
        mlp_ratio=options.ratio,
        encoder_layers=encoder,
        outer_layers=outer,
        inner_layers=inner,
    )
    model = AxialTransformer(config)
    randomise(model, torch.Generator().manual_seed(0))  # fresh weights have equal logits everywhere
    model.eval()
    _, prepared = timed(decode_with, model, noise_for(model, 1), compile=True)
    results = []
    for batch in rows_of(options.batches):
        results.append(measure(model, batch, options))
        print(results[-1], flush=True)
    machine = f"{platform.processor() or platform.machine()}, torch {torch.__version__}"
    found = {"model": asdict(options), "machine": machine, "seconds_to_prepare": round(prepared, 2)}
    print(json.dumps(found | {"results": results}))


def timed(work: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[Any, float]:
    """What the work returns, and seconds."""
    start = now()
    result = work(*arguments, **keywords)
    return result, now() - start


def noise_for(model: AxialTransformer, batch: int) -> Tensor:
    return sampling.noise_for(model.config, batch, seed=1)


def decode_with(model: AxialTransformer, noise: Tensor, compile: bool) -> Tensor:
    blank = torch.zeros(noise.shape[:-1], dtype=torch.int64)
    return decode(model, NoiseChoice(noise=noise), blank, backend=partial(choose_backend, compile=compile))


@torch.no_grad()
def measure(model: AxialTransformer, batch: int, options: Options) -> dict[str, Any]:
    """One batch: seconds by scheme, ratios, and the number of tied examples."""
    noise, positions = noise_for(model, batch), len(model.order)
    height, channel = options.size, options.channels - 1
    paper = Paper(model, NoiseChoice(noise=noise))
    times: dict[str, list[float]] = {"fast": [], "eager": [], "paper": [], "naive": []}
    tied = 0
    for _ in range(options.repeats):
        fast, taken = timed(decode_with, model, noise, compile=True)
        times["fast"].append(taken)
        eager, taken = timed(decode_with, model, noise, compile=False)
        times["eager"].append(taken)
        tied = max(tied, ties(model, noise, eager, fast))

        x = eager.clone()
        context, encoding = timed(paper.start_channel, x, channel)
        rows = []
        for row in options.rows:
            x[:, row:, :, channel] = 0
            rows.append(timed(paper.fill_row, x, context, row, channel)[1])
            whole = eager.clone()
            whole[:, row, :, channel] = x[:, row, :, channel]
            tied = max(tied, ties(model, noise, eager, whole))
            x = eager.clone()
        times["paper"].append(options.channels * (encoding + height * median(rows)))

        one_channel = torch.full((batch,), channel)
        forwards = [timed(model.slice_and_outputs, eager, one_channel)[1] for _ in range(options.positions)]
        times["naive"].append(positions * median(forwards))
    took = {scheme: median(taken) for scheme, taken in times.items()}
    return {
        "batch": batch,
        "seconds": {scheme: round(time, 3) for scheme, time in took.items()},
        "microseconds_per_position": {scheme: round(time / positions * 1e6, 1) for scheme, time in took.items()},
        "extrapolated": ["paper", "naive"],
        "fast_is_faster_than": {
            scheme: round(took[scheme] / took["fast"], 2) for scheme in ("eager", "paper", "naive")
        },
        "examples_with_a_tie": tied,
    }


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


if __name__ == "__main__":
    main(run_command(Options, description=__doc__))
