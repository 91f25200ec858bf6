"""What a run measures and draws while it trains: bits/dim of validation examples, samples, bits as pictures."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.data import Examples
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.evaluation import Fill, evaluate
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.pictures import can_be_shown, image_grid
from axial_transformers.pictures.heat_maps import under_examples
from axial_transformers.pictures.saving import save_picture
from axial_transformers.progress import bar
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.run import Collective
from axial_transformers.training.run_page import BITS

SHOWN = 8
"""Validation images, at most, whose bits are drawn when samples are; of clips and sequences half as many."""


def evaluation_of(validation: Examples, config: AxialTransformerConfig, training: TrainConfig) -> Collective:
    """A callback of `train`, which evaluates the model on the examples, as many at once as are trained at once."""
    values, label = torch.from_numpy(validation.values), _labels(validation, config, training)

    def callback(model: AxialTransformer, step: int, fill: Fill) -> Mapping[str, float]:
        batch_size = training.batch_size // training.accumulate
        found = evaluate(model, values, label, batch_size=batch_size, progress=bar("validation"), fill=fill)
        return {"bits_per_dim": found.bits_per_dim, "standard_error": found.standard_error}

    return Collective(callback)


def pictures_of(
    validation: Examples, config: AxialTransformerConfig, training: TrainConfig, folder: Path, samples: int
) -> Callable[[AxialTransformer, int], Mapping[str, NDArray[np.uint8]]] | None:
    """A callback of `train`, which draws samples, and bits of the examples, into the run's folder.

    None where no samples are wanted, or no picture can show them.
    """
    if not samples or not can_be_shown(len(config.shape)):
        return None
    known = torch.from_numpy(validation.values[:samples]) if config.known_channels else None
    most = min(SHOWN if len(config.shape) == 2 else SHOWN // 2, training.batch_size // training.accumulate)
    spread, uint16 = validation.spread(most), validation.uint16
    shown, label = torch.from_numpy(spread.values), _labels(spread, config, training)

    def callback(model: AxialTransformer, step: int) -> Mapping[str, NDArray[np.uint8]]:
        count = samples if known is None else len(known)
        values = sample(model, count, generator=torch.Generator().manual_seed(step), known=known)
        grid = image_grid(values.cpu().numpy(), num_values=config.num_values, uint16=uint16)
        save_picture(folder / f"samples/step-{step:08d}.png", grid)
        bits = bits_map(model, shown, label).cpu().numpy()
        save_picture(folder / BITS, under_examples(shown.numpy(), bits, config.num_values, uint16))
        return {"samples": np.asarray(grid)}

    return callback


def _labels(validation: Examples, config: AxialTransformerConfig, training: TrainConfig) -> torch.Tensor | None:
    """The labels that the examples are given: those of a model that has seen no example without."""
    if config.num_classes is None or training.label_dropout or validation.labels is None:
        return None
    return torch.from_numpy(validation.labels)
