"""The recipe for any other data: its model has the shape of the data."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Literal

from axial_transformers.data.config import is_hub_dataset
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.config import MAX_DEPTH, MAX_LEVELS, ORDERED
from axial_transformers.training import RunConfig, TrainConfig

if TYPE_CHECKING:  # recipes are listed without torch
    import numpy as np
    from numpy.typing import NDArray

    from axial_transformers.data import Examples

log = logging.getLogger("axial_transformers")

MAX_WHOLE, MAX_CLIP = 64, 63
"""Longest side of images, and of the frames of clips, that are modelled whole."""
TILE = 32
"""Side of a tile, unless a model to start from has another."""
SIDE, MAX_ROW = 8, 256
"""Sides of a block of a volume but the last one, and the longest last one."""
VALUES_IN_BATCH, VALUES_EVALUATED = 1 << 13, 1 << 18
"""Values with a loss in a batch, and values in an evaluation during training, at most about."""
WIDTHS, FLOPS_OF_STEP = (64, 48, 32, 16), 12e9
"""The model is the widest that has no more weights than the data have values, and whose step takes at most these FLOPs:
6.5 GFLOP took 0.2 s on one core of a Xeon. Of noise, 4 weights a value learn the training part by heart."""
WIDTHS_OF_PIXELS = (96, *WIDTHS)
"""With layout `pixels`, a step of images of width 96 costs less than one of width 64 with columns."""
NEAR, RARE = 0.7, 1 / 16
"""Values are numbers if the ranks of unlike neighbours differ by less than NEAR of what those of chance pairs do: 0.16
to 0.51 in numbers that were tried, 0.85 to 1.2 in symbols. Or if a value occurs in less than RARE of the examples."""
REACH_OF_STEP = 0.04
"""How far a step of the head may move a mean, in units of the data's spread: Adam's step times the width. Of 0.02, 0.04
and 0.064, this one served flat shapes, icons and tables best (experiments/EXPERIMENTS.md). With layout `pixels`, heads
have two layers and learn at the usual rate: photographs had 2.968 bits/dim after 200 steps, at this one 3.159."""
RATE_OF_VOLUMES = 2e-2
"""Of volumes of one channel, archives after three minutes were 0.9 % smaller than at the usual rate of 5e-3."""
BYTES_OF_WEIGHT = 0.5
"""Bytes that a rounded weight takes in an archive, about: 0.25 to 0.8 in those that were measured."""
SHARE_OF_MODEL = 0.05
"""What the weights of a model for an archive may take, of the bytes of PNG, WebP or xz. Chosen from few runs."""
MIN_RANGE, WIDER, OFTEN = 256, 4, 16
"""Values are coded by their ranks in a range of more than MIN_RANGE values, if at most MAX_LEVELS and 1 / WIDER of the
range occur, and each OFTEN times on average. Not measured."""
LOOKED_AT = 1 << 18
"""Values by which their kind is chosen, at most."""

MUON = TrainConfig(optimizer="muon", learning_rate=5e-3, warmup_steps=200, schedule="linear", ema_decay=0.999)
"""The training of small models."""


@dataclass(frozen=True, kw_only=True)
class ModelOfData(AxialTransformerConfig):
    """A small model of data that are not read yet: `suited` makes the configuration for their shape and values."""

    shape: tuple[int, ...] = ()
    heads: int = 1
    rotary: float | None = 100.0
    mlp_ratio: float = 2 / 3
    encoder_layers: int | None = 0

    def _check_shape(self) -> None:
        """There is none."""


OF_DATA = (
    "data.size", "data.cut", "data.axes", "data.offsets", "model.shape", "model.channels", "model.num_values",
    "model.lowest", "model.levels", "model.grid", "model.num_classes", "model.layout", "model.values", "model.centred",
    "model.activity", "model.gated_convolutions", "model.outer_layers",
    "model.inner_layers", "model.dim", "model.heads", "training.steps", "training.batch_size",
    "training.learning_rate", "training.head_learning_rate", "training.label_dropout", "validate_on", "samples",
)  # fmt: skip
"""Settings that `tiled` and `suited` decide."""


def of_own_data(source: str | None = None) -> RunConfig:
    """Return a run on any data, before these are read, in a folder of the source's name."""
    return RunConfig(
        recipe="custom",
        source=source,
        out=Path("runs") / (_stem(source) if source else ""),
        validate_on=250,
        model=ModelOfData(),
        training=replace(MUON, steps=6_000, evaluate_every=250, sample_every=250, save_every=250),
        open=OF_DATA,
    )


def _stem(source: str) -> str:
    """Return the name of a source without its folders, its suffix and its revision."""
    path = Path(source.partition("@")[0] if is_hub_dataset(source) else source)
    return (path.resolve() if path.exists() else path).stem.removesuffix(".nii")


def custom(examples: "Examples") -> RunConfig:
    """Return the settings for a small model of the examples' shape, channels, values and classes."""
    return suited(of_own_data(), examples)


def tiled(run: RunConfig, sizes: Sequence[tuple[int, ...]]) -> RunConfig:
    """Return the run with data.size and data.cut decided: tiles for large images, and for images of different sizes.

    Images stay as they are if all have one size, of sides up to MAX_WHOLE (clips: MAX_CLIP), or if half of them have a
    side below that of a tile. A tile has the side of the model that the run starts from. Otherwise it has TILE, halved
    down to SIDE while more than a tenth of the images are smaller.

    Args:
        sizes: of some examples: width and height of images, or the axes of arrays (`Source.example_axes`).
    """
    if not {"data.size", "data.cut"} <= {*run.open}:
        return run
    sides = [min(size[-2:]) for size in sizes]
    of_model = {*run.model.shape[-2:]}
    tile = TILE
    if len(of_model) == 1:
        (tile,) = of_model
    else:
        while tile > SIDE and sum(side < tile for side in sides) > len(sides) // 10:
            tile //= 2
    if sizes and not _are_small(sizes) and median_low(sides) >= tile:
        run = run.decided({"data.size": tile, "data.cut": "tiles"})
    return run.closed(("data.size", "data.cut"))


def _are_small(sizes: Sequence[tuple[int, ...]]) -> bool:
    """Return True for images or frames of one size that are modelled whole."""
    largest = MAX_WHOLE if len(sizes[0]) == 2 else MAX_CLIP
    planes = {size[-2:] for size in sizes}
    return len(planes) == 1 and max(planes.pop()) <= largest


def in_blocks(run: RunConfig, axes: Mapping[str, int]) -> RunConfig:
    """Return the run with data.axes and data.size decided for a scan with axes of these letters and lengths."""
    settings = {"data.axes": "".join(axes), "data.size": block_of(tuple(axes.values()))}
    return run.decided(settings).closed((*settings, "data.cut"))


def block_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the block into which an image, a volume or a spectrum [.., D, H, W] is cut.

    It has the last three axes; those before are examples. The last axis stays whole up to 256 values: a band of a
    spectrum then has the same position in every block. A longer one is cut into the fewest equal parts. The other two
    axes are cut every 6 to 10 values, so that blocks reach least beyond an end. Images are cut into tiles.
    """
    *others, last = shape[-3:]
    if len(others) < 2:
        return tuple(min(size, TILE) for size in shape)
    return (*map(_side, others), -(-last // -(-last // MAX_ROW)))


def _side(length: int) -> int:
    """Return the side with which parts of an axis reach least beyond its end; of several, the one nearest to SIDE."""
    sides = range(SIDE - 2, SIDE + 3)
    return min(length, min(sides, key=lambda side: (-length % side, abs(side - SIDE))))


def suited(run: RunConfig, examples: "Examples") -> RunConfig:
    """Return the run with all that depends on the data decided, as it suits these examples.

    Raises:
        ValueError: the model that it starts from has other axes.
    """
    if run.start_from and run.open:
        check_start(run.model, run.start_from, examples)
    values = prod(examples.shape) * examples.channels
    kind = run.model.values
    if "model.values" in run.open:
        kind, _ = kind_of_values(examples)
    run = run.decided(
        {
            "model.shape": examples.shape,
            "model.channels": examples.channels,
            "model.num_values": examples.range.num_values,
            "model.lowest": examples.range.low,
            "model.grid": examples.range.grid,
            "model.num_classes": examples.num_classes,
            "model.values": kind,
            "model.centred": kind in ORDERED,
            "training.label_dropout": 0.1 if examples.num_classes else 0.0,
            "validate_on": max(16, min(run.validate_on, VALUES_EVALUATED // values)),
        }
    )
    run = run.decided({"model.activity": run.model.centred, "model.layout": layout_of(run, examples.channels)})
    run = run.decided(_layers_of(len(examples.shape)))
    if len(examples.shape) >= 3:
        run = run.decided({"training.steps": 3_000, "samples": 4})
        if examples.channels == 1 and not run.start_from:
            run = run.decided({"training.learning_rate": RATE_OF_VOLUMES})
    if isinstance(run.model, ModelOfData):
        run = replace(run, model=AxialTransformerConfig(**vars(run.model)))
    with_loss = values // run.model.bijection.channels  # a step has the loss of one slice of each example
    run = run.decided({"training.batch_size": _batch_of(with_loss, len(examples))})
    return _sized(run, len(examples) * values).closed(OF_DATA)


def layout_of(run: RunConfig, channels: int) -> str:
    """Return the layout of a model: of several channels one in which the upper rows of all of them come first."""
    model = run.model
    if channels == 1 or model.known_channels:
        return "channels"
    refused = model.encoder_layers or not model.has_order or channels > MAX_DEPTH
    return "columns" if refused else "pixels"


def _layers_of(axes: int) -> dict[str, object]:
    """Return settings of the layers of a model of so many axes: attention along each, once, and gated convolutions."""
    return {
        "model.gated_convolutions": 2 if axes < 3 else 1,  # of three axes on, positions are many
        "model.outer_layers": tuple(axes - level for level in range(axes - 1)),
        "model.inner_layers": 1 if axes > 1 else 3,
    }


def _batch_of(values: int, examples: int) -> int:
    """Return a power of two, up to 64: as many examples as have VALUES_IN_BATCH values with a loss, or fewer."""
    most = max(1, min(64, examples, VALUES_IN_BATCH // values))
    return 1 << most.bit_length() - 1


def _sized(run: RunConfig, values: int) -> RunConfig:
    """Return the run with its width, its attention heads and the learning rate of its last layer decided."""
    from axial_transformers.training.costs import parameters, training_flops

    widths = WIDTHS_OF_PIXELS if run.model.layout == "pixels" else WIDTHS
    for width in widths if "model.dim" in run.open else widths[-1:]:
        sized = run.decided({"model.dim": width})
        sized = sized.decided({"model.heads": heads_of(sized.model.dim)})
        is_small = sum(parameters(sized.model).values()) <= values
        if is_small and training_flops(sized.model) * sized.training.batch_size <= FLOPS_OF_STEP:
            break
    if not sized.model.has_order or sized.model.layout == "pixels":
        return sized
    return sized.decided({"training.head_learning_rate": REACH_OF_STEP / sized.model.dim})


def heads_of(dim: int) -> int:
    """Return the most heads that are at least 16 wide, and whose width is even, as rotary positions need; or 1."""
    return max((count for count in range(1, dim // 16 + 1) if dim % (2 * count) == 0), default=1)


def narrow_for_archive(run: RunConfig, size: float) -> RunConfig:
    """Return the run with the width for which an archive with its model is about smallest.

    That is the largest up to the usual one whose weights take at most SHARE_OF_MODEL of what another codec takes.

    Args:
        size: bytes of the examples by another codec.
    """
    from axial_transformers.training.costs import parameters

    usual = run.model
    for dim in range(usual.dim, 0, -8):
        model = replace(usual, dim=dim, heads=heads_of(dim))
        if BYTES_OF_WEIGHT * sum(parameters(model).values()) <= SHARE_OF_MODEL * size:
            break
    return replace(run, model=model).closed(("model.dim",))


def check_start(trained: AxialTransformerConfig, start: str, wanted: "AxialTransformerConfig | Examples") -> None:
    """Raise ValueError where a model to start from has other axes than are wanted."""
    if len(trained.shape) != len(wanted.shape):
        raise ValueError(f"the model {start} has {len(trained.shape)} axes, the data {len(wanted.shape)}")


def kind_of_values(examples: "Examples") -> tuple[Literal["ordinal", "categorical"], str]:
    """Return what values are, and why: numbers if unlike neighbours along some axis are closer than chance."""
    import numpy as np

    codes = _some_codes(examples)
    count = len(codes)
    number_of_values = int(codes.max()) + 1
    examples_with = np.zeros(number_of_values, np.int64)
    for example in codes:
        examples_with[np.unique(example)] += 1
    usual = np.median(examples_with[codes])
    if usual < RARE * count or codes.size < 2 * number_of_values:
        return "ordinal", (
            f"values are numbers: one occurs in few examples, about {usual:.0f} of the {count} that were looked at"
        )
    share = _distance_of_neighbours(codes)
    why = f"neighbours that differ are {share:.0%} as far apart as values in random places"
    if share < NEAR:
        return "ordinal", f"values are numbers: {why}"
    return "categorical", f"values are symbols: {why}"


def with_levels(run: RunConfig, asked: RunConfig, parts: "Sequence[Examples]", least: int) -> RunConfig:
    """Return the run whose model codes ranks, where few of a wide range of values occur, and say so.

    Args:
        parts: all examples of the source.
        least: how often each of the values must occur: what occurs once lets expect that new data bring others.
    """
    import numpy as np

    known = run.model.range
    is_open = {"model.lowest", "model.num_values", "model.levels"} <= {*asked.open} and asked.data.num_values is None
    if known.num_values <= MIN_RANGE or not is_open:
        return run
    counts = np.zeros(known.num_values, np.int64)
    for examples in parts:
        here = examples.value_counts(known)
        if here is None:
            return run
        counts += here
    occurring = counts.nonzero()[0]
    most = min(MAX_LEVELS, known.num_values // WIDER, int(counts.sum()) // OFTEN)
    if not 2 <= len(occurring) <= most or counts[occurring].min() < least:
        return run
    levels = tuple((occurring + known.low).tolist())
    log.info(
        f"{len(levels):,} of the values {known} occur in {run.source}: the model codes their ranks, and knows no others"
    )
    return replace(run, model=replace(run.model, lowest=levels[0], num_values=len(levels), levels=levels))


def _some_codes(examples: "Examples") -> "NDArray[np.int64]":
    """Return the codes 0, 1, .. of the values of some examples, or of corners of large ones, [n, *corner, C]."""
    import numpy as np

    side = max(1, int((LOOKED_AT // examples.channels) ** (1 / len(examples.shape))))
    corner = [min(length, side) for length in examples.shape]
    count = max(1, min(len(examples), LOOKED_AT // (prod(corner) * examples.channels)))
    spread = np.linspace(0, len(examples) - 1, count).astype(np.int64)
    values = examples.values[spread][(slice(None), *map(slice, corner))]
    return np.unique(values, return_inverse=True)[1].reshape(values.shape)


def _distance_of_neighbours(codes: "NDArray[np.int64]") -> float:
    """Return how far unlike neighbours are apart, by the ranks of their values, divided by what chance pairs are.

    It is that of the axis where they are closest; 1 at most.
    """
    import numpy as np

    counts = np.bincount(codes.ravel())
    ranks = (counts.cumsum() - counts / 2)[codes]
    closest = 1.0
    for axis in range(1, codes.ndim - 1):
        along = np.moveaxis(ranks, axis, 0)
        first = along[:-1].ravel()
        second = along[1:].ravel()
        unlike = first != second
        first = first[unlike]
        second = second[unlike]
        by_chance = np.abs(first - np.random.default_rng(0).permutation(second))
        if by_chance.any():
            closest = min(closest, np.abs(first - second).mean() / by_chance[by_chance > 0].mean())
    return closest
