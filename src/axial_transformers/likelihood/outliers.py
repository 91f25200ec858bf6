"""Scores that tell outliers (anomalies, out-of-distribution images) from typical images.

Likelihood alone misleads: simpler images often score higher (Nalisnick et al. 2019). Subtracting the compressed size
corrects that (Serrà et al. 2020, equation 3).
"""

import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer
from PIL import Image

from axial_transformers.likelihood.evaluation import Fill, bits_of_each, fill
from axial_transformers.models import AxialTransformer
from axial_transformers.progress import Progress

_TILE = re.compile(r"#\d+,\d+$")


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Both scores of examples."""

    bits: Float[np.ndarray, " n"]
    corrected: Float[np.ndarray, " n"]
    """Complexity-corrected: minus the bits/dim of a PNG file."""


def score(
    model: AxialTransformer,
    values: Integer[np.ndarray, "n *a c"],
    batch_size: int = 16,
    progress: Progress = iter,
    fill: Fill = fill,
) -> Scores:
    """Return both scores; see `bits_of_each`."""
    size = min(batch_size, len(values))
    bits = bits_of_each(model, torch.from_numpy(values), batch_size=size, progress=progress, fill=fill)

    def corrected_bits(batch: slice) -> torch.Tensor:
        return torch.from_numpy(corrected(bits[batch].numpy(), values[batch]))

    batches = (slice(start, start + size) for start in range(0, len(values), size))
    return Scores(bits=bits.numpy(), corrected=fill(torch.zeros_like(bits), batches, corrected_bits).numpy())


def rows_of(scores: Scores, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row per example."""
    columns = {"bits_per_dim": scores.bits, "corrected": scores.corrected}
    if (means := _means_of_pictures(names, scores.bits)) is not None:
        columns["picture_bits_per_dim"] = means
    return [
        {"name": name, **{column: round(float(each[i]), 6) for column, each in columns.items()}}
        for i, name in enumerate(names)
    ]


def _means_of_pictures(names: Sequence[str], bits: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"] | None:
    pictures = [_TILE.sub("", name) for name in names]
    if pictures == list(names):
        return None
    _, picture_of = np.unique(pictures, return_inverse=True)
    return np.asarray((np.bincount(picture_of, bits) / np.bincount(picture_of))[picture_of])


def complexity(values: Integer[np.ndarray, "n *a c"]) -> Float[np.ndarray, " n"]:
    """Return bits/dim as a PNG file; as zlib unless gray or RGB of 8 bits."""
    return np.array([8 * len(_compressed(each)) / each.size for each in values])


def corrected(bits: Float[np.ndarray, " n"], values: Integer[np.ndarray, "n *a c"]) -> Float[np.ndarray, " n"]:
    """Return the model's bits/dim minus the compressor's; larger for outliers."""
    return bits - complexity(values)


def auroc(typical: Float[np.ndarray, " n"], outlying: Float[np.ndarray, " m"]) -> float:
    """Return the area under the ROC curve; ties count half."""
    if not len(typical) or not len(outlying):
        raise ValueError("an AUROC needs scores of both kinds")
    ordered = np.sort(typical)
    below, up_to = (np.searchsorted(ordered, outlying, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(typical)))


def _compressed(example: Integer[np.ndarray, "*a c"]) -> bytes:
    if example.dtype != np.uint8 or example.ndim != 3 or example.shape[-1] not in (1, 3):
        return zlib.compress(example.tobytes(), level=9)
    stream = io.BytesIO()
    Image.fromarray(example if example.shape[-1] == 3 else example[..., 0]).save(stream, format="PNG", optimize=True)
    return stream.getvalue()
