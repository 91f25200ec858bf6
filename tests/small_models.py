"""Models small enough to test every pair of positions, with weights of scale 1, so that no dependence is near zero."""

from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from axial_transformers.compression.embedded_model import pack
from axial_transformers.compression.rounding import Rounded
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.layouts import LAYOUTS
from axial_transformers.models.values.neighbours import NeighbourSum

Shape = tuple[int, ...]

CHUNKS_OF_64 = patch("axial_transformers.compression.archive.IMAGES_PER_CHUNK", 64)


def rounded_quickly(model: AxialTransformer, *_: Any) -> Rounded:
    """Round to steps of about 2^-10, which differ from row to row."""
    steps = {
        name: 236 + np.arange(len(weight) if weight.ndim > 1 else 1) % 9 for name, weight in model.named_parameters()
    }
    return Rounded(*pack(model, steps), 0.0)


ROUNDED_QUICKLY = patch("axial_transformers.compression.archive.rounded", rounded_quickly)
"""Archives that carry their model, whose steps do not fit its data."""


def small_config(shape: Shape, channels: int = 1, layout: str = "channels", **fields: Any) -> AxialTransformerConfig:
    """One round of layers in every stack, and a channel encoder where there are channels to encode."""
    bijection = LAYOUTS[layout](shape, channels)
    axes = len(bijection.shape)
    defaults = {
        "num_values": 5,
        "dim": 8,
        "heads": 2,
        "mlp_ratio": 1.0,
        "encoder_layers": axes if bijection.channels > 1 else 0,
        "outer_layers": tuple(range(axes, 1, -1)),
        "inner_layers": 1,
    }
    if layout == "pixels":
        defaults["values"] = "ordinal"
    return AxialTransformerConfig(shape=shape, channels=channels, layout=layout, **defaults | fields)


def random_model(config: AxialTransformerConfig, dtype: torch.dtype = torch.float64, seed: int = 0) -> AxialTransformer:
    model = AxialTransformer(config)
    randomise(model, torch.Generator().manual_seed(seed))
    if (prediction := model.values.prediction) is not None:
        random_coefficients(prediction, seed)
    if (activity := model.values.activity) is not None:
        random_coefficients(activity, seed)
        activity.coefficients.abs_()
    return model.to(dtype).eval()


def random_coefficients(prediction: NeighbourSum, seed: int = 0) -> None:
    """Every neighbour counts: else a leak through the prediction could hide."""
    generator, kept = torch.Generator().manual_seed(seed), prediction.coefficients
    found = torch.randint(-1 << 24, 1 << 24, kept.shape, generator=generator)
    for pattern, channel in product(range(len(kept)), range(prediction.channels)):
        present = torch.tensor([*prediction.present(pattern, channel), True])
        kept[pattern, channel] = torch.where(present, found[pattern, channel], 0)
    kept[..., -1] += prediction.num_values << 23


def small_model(shape: Shape, channels: int = 1, layout: str = "channels", **fields: Any) -> AxialTransformer:
    return random_model(small_config(shape, channels, layout, **fields))


def random_values(model: AxialTransformer, batch: int, seed: int = 0) -> Tensor:
    config = model.config
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.num_values, (batch, *config.shape, config.channels), generator=generator)


CENTRED = {"values": "ordinal", "centred": True, "mixtures": 3}
VARIANTS = {
    "1d": small_config((5,)),
    "1d channels": small_config((4,), 2),
    "2d": small_config((3, 5)),
    "2d deep": small_config((3, 2), 2, encoder_layers=4, outer_layers=4, inner_layers=2),
    "3d": small_config((2, 3, 4)),
    "3d channels": small_config((2, 3, 2), 2),
    "4d": small_config((2, 1, 3, 2)),
    "one row": small_config((1, 7), 2),
    "one column": small_config((7, 1), 2),
    "rotary": small_config((3, 5), 2, dim=12, rotary=7.0),
    "rotary 3d": small_config((2, 3, 4), rotary=100.0),
    "gated convolutions of one row": small_config((1, 4), 2, gated_convolutions=1),
    "lstm": small_config((3, 4), 2, inner="lstm"),
    "lstm 1d": small_config((5,), inner="lstm"),
    "index plane": small_config((2, 3), 3, channel_planes="index"),
    "encoder of one channel": small_config((2, 3), encoder_layers=2),
    "no upper context": small_config((3, 2), 2, outer_layers=0),
    "rows": small_config((2, 3), 3, "rows"),
    "columns": small_config((2, 3), 3, "columns"),
    "axis": small_config((2, 3), 3, "axis"),
    "axis 1d": small_config((4,), 2, "axis", inner="lstm"),
    "frames": small_config((3, 2, 2), 2, "frames"),
    "raster": small_config((2, 3), 2, "raster"),
    "known channels": small_config((3, 2), 3, known_channels=1),
    "known frames": small_config((3, 2, 2), 2, "frames", known_channels=2),
    "classes": small_config((2, 3), 2, num_classes=3),
    "classes without encoder": small_config((2, 3), num_classes=3),
    "two values": small_config((3, 3), num_values=2),
    "ordinal": small_config((3, 4), values="ordinal"),
    "ordinal columns": small_config((4, 3), 2, "columns", values="ordinal", gated_convolutions=1, num_values=300),
    "centred": small_config((3, 5), **CENTRED),
    "centred channels": small_config((3, 2), 2, num_values=300, **CENTRED),
    "centred columns": small_config((2, 3), 3, "columns", gated_convolutions=1, **CENTRED),
    "centred rows": small_config((2, 3), 3, "rows", num_classes=3, **CENTRED),
    "centred axis": small_config((2, 1), 3, "axis", num_values=65_536, **CENTRED),
    "centred frames": small_config((3, 2, 2), 2, "frames", **CENTRED),
    "centred raster": small_config((3, 2), 2, "raster", inner="lstm", **CENTRED),
    "centred volume": small_config((2, 3, 2), gated_convolutions=1, **CENTRED),
    "centred sequence": small_config((5,), 2, "columns", **CENTRED),
    "activity": small_config((3, 5), activity=True, **CENTRED),
    "activity channels": small_config((3, 2), 2, num_classes=3, activity=True, **CENTRED),
    "activity columns": small_config(
        (3, 3), 3, "columns", gated_convolutions=1, num_values=300, activity=True, **CENTRED
    ),
    "activity volume": small_config((2, 3, 2), num_values=65_536, inner="lstm", activity=True, **CENTRED),
    "pixels": small_config((3, 4), 3, "pixels"),
    "pixels 1d": small_config((4,), 8, "pixels", num_classes=3, **CENTRED),
    "pixels of one row": small_config((1, 5), 2, "pixels", inner="lstm", gated_convolutions=1, **CENTRED),
    "pixels of one column": small_config((4, 1), 3, "pixels", rotary=7.0, gated_convolutions=2, **CENTRED),
    "pixels of clips": small_config((2, 3, 2), 3, "pixels", gated_convolutions=1, activity=True, **CENTRED),
    "pixels of 16 bits": small_config(
        (2, 3), 2, "pixels", num_values=65_536, gated_convolutions=1, activity=True, **CENTRED
    ),
    "gated convolutions": small_config((4, 5), gated_convolutions=2, mlp_ratio=0.6),
    "gated convolutions 3d": small_config((3, 2, 4), 2, gated_convolutions=1, outer_layers=(6, 2), inner_layers=2),
    "gated convolutions 4d": small_config((2, 1, 2, 3), gated_convolutions=1, **CENTRED),
    "gated convolutions of columns": small_config((3, 2), 3, "columns", inner="lstm", gated_convolutions=1),
    "centred after known channels": small_config((1, 4), 3, known_channels=1, **CENTRED),
}
"""Every field of the configuration that changes the computation, at uneven sizes."""

PAIRWISE = {
    "raster": small_config((2, 3), 2, "raster", inner="lstm"),
    "sequence": small_config((5,), inner="lstm", **CENTRED),
    "image": small_config((3, 5), inner="lstm", gated_convolutions=1, num_classes=3),
    "known frame": small_config((3, 4), 1, "frames", known_channels=1, values="ordinal"),
    "volume": small_config((2, 1, 3), 2, inner="lstm", rotary=7.0, num_classes=3, known_channels=1),
    "centred volume": small_config((2, 3, 2), 2, gated_convolutions=1, known_channels=1, num_values=300, **CENTRED),
    "known channel": small_config(
        (4,), 2, inner="lstm", gated_convolutions=1, rotary=7.0, num_classes=3, known_channels=1, values="ordinal"
    ),
    "columns": small_config((1, 4), 2, "columns", rotary=7.0, num_classes=3, **CENTRED),
    "rows": small_config((5,), 1, "rows", gated_convolutions=1, rotary=7.0, num_classes=3),
    "axis": small_config((2, 3, 2), 1, "axis", gated_convolutions=1, rotary=7.0, values="ordinal"),
    "pixels": small_config((3, 4), 2, "pixels", rotary=7.0, gated_convolutions=1, activity=True, **CENTRED),
}
"""Configurations with every layout, in which every two of these options occur together as far as they can: one, two
or three axes; one or two channels; a layout that moves channels or not; the inner decoder; categorical, ordinal or
centred values; gated convolutions, rotary positions, classes, known channels, or none. A greedy search found them;
tests/models/test_config.py counts the pairs."""


def random_given(model: AxialTransformer, batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Labels and external conditioning, as far as the model takes them."""
    config = model.config
    generator = torch.Generator().manual_seed(seed)
    given = {}
    if config.num_classes:
        given["label"] = torch.randint(config.num_classes + 1, (batch,), generator=generator)
    if config.layout != "frames":
        cond = torch.randn(batch, *config.shape, config.dim, generator=generator, dtype=torch.float64)
        given["cond"] = cond.to(model.position.tables[0].dtype)
    return given


def archiving_model(channels: int = 1, shape: Shape = (3, 5)) -> AxialTransformer:
    """A model in float32 of any picture of 8 bits."""
    return random_model(small_config(shape, channels, "columns", num_values=256), torch.float32)
