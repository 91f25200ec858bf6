"""Work for the page, from arrays to arrays; it can be stopped between two steps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Event

import numpy as np
import torch
from jaxtyping import Bool, Integer

from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.models import AxialTransformer
from axial_transformers.progress import Item, Progress
from axial_transformers.studio.studio_model import StudioModel

MAX_SAMPLES = 64


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Settings of samples and completions."""

    count: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    label: int | None = None
    seed: int = 0


def new_samples(
    studio: StudioModel, options: SamplingOptions, progress: Progress = iter
) -> Integer[np.ndarray, "n *a c"]:
    """Return samples; for a model with known channels, continuations of its first examples."""
    known = None
    if studio.model.config.known_channels:
        if studio.examples is None:
            raise ValueError(
                "this model continues known channels, such as a clip's first frames: start Studio with DATA"
            )
        known = torch.from_numpy(studio.examples.values[np.arange(options.count) % len(studio.examples)])
    values = sample(
        studio.model,
        options.count,
        temperature=options.temperature,
        top_p=options.top_p,
        label=options.label,
        known=known,
        seed=options.seed,
        progress=progress,
    )
    return values.cpu().numpy()


def new_completions(
    studio: StudioModel,
    example: Integer[np.ndarray, "*a c"],
    erased: Bool[np.ndarray, "*a"],
    options: SamplingOptions,
    progress: Progress = iter,
) -> Integer[np.ndarray, "n *a c"]:
    """Return completions of an example's erased positions."""
    if not erased.any():
        raise ValueError("nothing is erased: paint over a part of the picture, or erase the end of it")
    known = ~np.broadcast_to(erased[..., None], example.shape)
    values = complete(
        studio.model,
        torch.from_numpy(example[None]),
        mask=torch.from_numpy(known),
        count=options.count,
        approximate=True,
        temperature=options.temperature,
        top_p=options.top_p,
        label=None if options.label is None else torch.tensor([options.label]),
        seed=options.seed,
        progress=progress,
    )
    return values.cpu().numpy()


def sampled_early(model: AxialTransformer, known: Bool[np.ndarray, "*a c"]) -> Bool[np.ndarray, "*a c"]:
    """Return the missing positions [*A, C] before a known one in generation order."""
    positions = tuple(model.order.numpy().T)
    indices = np.flatnonzero(known[positions])
    early = np.zeros(known.shape, bool)
    if len(indices):
        before = tuple(axis[: indices[-1]] for axis in positions)
        early[before] = ~known[before]
    return early


def erased_positions(painted: Bool[np.ndarray, "h w"], shape: tuple[int, ...]) -> Bool[np.ndarray, "*a"]:
    """Return the positions [*A] of the pixels painted on an image of `for_display`."""
    if len(shape) == 3:
        return np.stack(np.split(painted, shape[0], axis=1))
    if len(shape) == 2:
        return painted
    erased, width = np.zeros(shape, bool), painted.shape[1]
    erased[np.flatnonzero(painted.any(axis=0)) * shape[0] // width] = True
    return erased


class StoppedError(Exception):
    """The user stopped the work."""


class Jobs:
    """The work under way, at most one piece for each session (an open page)."""

    def __init__(self) -> None:
        self._stops: dict[str, Event] = {}

    def begin(self, session: str, progress: Progress) -> Progress:
        """Return a wrapper of a loop, which raises StoppedError at the next step after `stop`."""
        stopped = self._stops[session] = Event()

        def wrap(items: Iterable[Item], /) -> Iterator[Item]:
            for item in progress(items):
                if stopped.is_set():
                    raise StoppedError
                yield item

        return wrap

    def stop(self, session: str) -> None:
        if session in self._stops:
            self._stops[session].set()

    def end(self, session: str) -> None:
        self.stop(session)
        self._stops.pop(session, None)
