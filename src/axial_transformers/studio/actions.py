"""Work that the page asks for: from arrays to arrays."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer, UInt8

from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.likelihood.evaluation import bits_of_each
from axial_transformers.likelihood.outliers import corrected
from axial_transformers.models import AxialTransformer
from axial_transformers.progress import Progress
from axial_transformers.studio.opened_model import OpenedModel

MOST_DRAWN = 64
"""Samples, or completions, that are drawn at once."""
TOGETHER = 16
"""Examples whose bits are computed between two steps of the progress."""


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Settings of samples and completions.

    Raises:
        ValueError: a count out of range.
    """

    count: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    label: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_DRAWN:
            raise ValueError(f"count must be in 1..{MOST_DRAWN}, not {self.count}")


@dataclass(frozen=True, kw_only=True)
class Completed:
    """Completions of one example."""

    values: Integer[np.ndarray, "n *a c"]
    known: Bool[np.ndarray, "*a c"]
    """True where the values were given."""
    early: Bool[np.ndarray, "*a c"]
    """True where a value was drawn before a known one, on which it then does not depend; nowhere: exact draws."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of examples, as of `axial score`."""

    bits: Float[np.ndarray, " n"]
    """Bits/dim."""
    corrected: Float[np.ndarray, " n"]
    """Bits/dim less those of the example as a PNG file."""


def draw_samples(
    opened: OpenedModel, settings: SamplingSettings, progress: Progress = iter
) -> Integer[np.ndarray, "n *a c"]:
    """Samples; of a model with known channels continuations of the first examples of its data.

    Raises:
        ValueError: an option out of range, or no data to continue.
    """
    known = None
    if opened.model.config.known_channels:
        if opened.examples is None:
            raise ValueError(
                "this model continues known channels, such as a clip's first frames: start Studio with DATA"
            )
        known = torch.from_numpy(opened.examples.values[np.arange(settings.count) % len(opened.examples)])
    values = sample(
        opened.model,
        settings.count,
        temperature=settings.temperature,
        top_p=settings.top_p,
        label=settings.label,
        known=known,
        generator=torch.Generator().manual_seed(settings.seed),
        progress=progress,
    )
    return values.cpu().numpy()


def draw_completions(
    opened: OpenedModel,
    example: Integer[np.ndarray, "*a c"],
    erased: Bool[np.ndarray, "*a"],
    settings: SamplingSettings,
    progress: Progress = iter,
) -> Completed:
    """Completions of an example whose values at the erased sites are not known, whatever the order.

    Raises:
        ValueError: nothing is erased, or an option out of range.
    """
    if not erased.any():
        raise ValueError("nothing is erased: paint over a part of the picture, or erase the end of it")
    known = ~np.broadcast_to(erased[..., None], example.shape)
    values = complete(
        opened.model,
        torch.from_numpy(example[None]),
        mask=torch.from_numpy(known),
        count=settings.count,
        approximate=True,
        temperature=settings.temperature,
        top_p=settings.top_p,
        label=None if settings.label is None else torch.tensor([settings.label]),
        generator=torch.Generator().manual_seed(settings.seed),
        progress=progress,
    )
    return Completed(values=values.cpu().numpy(), known=known, early=drawn_early(opened.model, known))


def drawn_early(model: AxialTransformer, known: Bool[np.ndarray, "*a c"]) -> Bool[np.ndarray, "*a c"]:
    """The missing sites [*A, C] that come before a known one in generation order; nowhere where completion is exact."""
    sites = tuple(model.order.numpy().T)
    places = np.flatnonzero(known[sites])
    early = np.zeros(known.shape, bool)
    if len(places):
        before = tuple(axis[: places[-1]] for axis in sites)
        early[before] = ~known[before]
    return early


def erased_sites(painted: Bool[np.ndarray, "h w"], shape: tuple[int, ...]) -> Bool[np.ndarray, "*a"]:
    """The sites [*A] of the pixels painted on a picture as of `for_display`, the inverse of `marks_for_display`.

    A position of a sequence is erased where any of its pixels is painted.
    """
    if len(shape) == 3:
        return np.stack(np.split(painted, shape[0], axis=1))
    if len(shape) == 2:
        return painted
    erased, width = np.zeros(shape, bool), painted.shape[1]
    erased[np.flatnonzero(painted.any(axis=0)) * shape[0] // width] = True
    return erased


def score(opened: OpenedModel, values: UInt8[np.ndarray, "n *a c"], progress: Progress = iter) -> Scores:
    """Both scores of examples.

    Raises:
        ValueError: examples that are not the model's.
    """
    bits = bits_of_each(opened.model, torch.from_numpy(values), batch_size=TOGETHER, progress=progress).numpy()
    return Scores(bits=bits, corrected=corrected(bits, values))


def share_below(typical: Float[np.ndarray, " n"], scores: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """The share 0..1 of typical scores that each score exceeds."""
    return np.searchsorted(np.sort(typical), scores) / len(typical)
