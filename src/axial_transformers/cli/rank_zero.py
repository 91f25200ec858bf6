"""Commands as several processes, as torchrun starts them: all compute, the first one writes and prints."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from math import ceil
from pathlib import Path

import torch
from jaxtyping import Integer
from torch import Tensor

from axial_transformers.cli import USAGE_ERROR
from axial_transformers.decoding.choices import skip_noise
from axial_transformers.decoding.drawing import numbers_each
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training.config import find_device
from axial_transformers.training.processes import Processes

DRAWN_ALIKE = 4
"""Samples that a compiled kernel takes at a time: in shares of whole fours each is drawn in the same arithmetic."""


@contextmanager
def rank_zero_output() -> Iterator[None]:
    """Within this block, of several processes on a machine only the first one prints, mistakes included.

    It is for what all processes do alike, so that nothing is lost.
    """
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        yield
        return
    try:
        with (
            Path(os.devnull).open("w", encoding="utf-8") as nothing,
            redirect_stderr(nothing),
            redirect_stdout(nothing),
        ):
            yield
    except (ValueError, OSError):
        raise SystemExit(USAGE_ERROR) from None


def processes_on(device: str) -> Processes:
    """The processes that work together, not entered yet; a lone one on the device of this name, as `find_device`."""
    return Processes(find_device(device), way_out="start all of them again")


def draw_together(
    processes: Processes,
    config: AxialTransformerConfig,
    count: int,
    seed: int,
    draw: Callable[[slice, torch.Generator], Tensor],
) -> Integer[Tensor, "b *a c"]:
    """Samples of a model [count, *A, C], in every process: of P processes each draws one part in P.

    The noise of a sample depends on the seed and its number only, as if `draw` were called for all of them at once.

    Args:
        draw: draws the samples of these numbers, with noise from the generator.
    """

    def draw_part(part: slice) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        skip_noise(part.start * numbers_each(config).noise, generator)
        return draw(part, generator)

    share = DRAWN_ALIKE * ceil(count / (processes.count * DRAWN_ALIKE))
    dtype = torch.uint8 if config.num_values <= 256 else torch.int64
    whole = torch.zeros(count, *config.shape, config.channels, dtype=dtype)
    parts = (slice(start, min(start + share, count)) for start in range(0, count, share))
    return processes.fill(whole, parts, draw_part)
