"""Sample from a model, and complete data that is known in part."""

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from axial_transformers.decoding.choices import Draw
from axial_transformers.decoding.drawing import Drawing, comes_first
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.arguments import accepts_arrays, labels_of
from axial_transformers.models.layouts import LAYOUTS
from axial_transformers.progress import Progress


@accepts_arrays("noise", "label", "cond", "known")
def sample(  # noqa: PLR0913
    model: AxialTransformer,
    count: int | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    noise: Float[Tensor, "b *a c v"] | None = None,
    label: Integer[Tensor, " b"] | int | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    known: Integer[Tensor, "b *a c"] | None = None,
    compile: bool | None = None,
    progress: Progress = iter,
) -> Integer[Tensor, "b *a c"]:
    """Draw from the model.

    Args:
        count: number of samples B; optional where `noise`, `label`, `cond` or `known` has that length.
        temperature: 1 draws from the model's distribution; 0 takes the most likely values.
        top_k, top_p: draw only from the k most likely values, or from the fewest that together reach probability p.
            Ties with the last stay.
        generator: for reproducible samples. A CPU generator draws the same on every device; a GPU's is faster.
        noise: [B, *A, C, V] standard Gumbel noise, instead: values (or, with a `prediction`, differences) are
            argmax(logits + temperature * noise).
        label: [B] classes, or one int for all.
        cond: [B, *A, D].
        known: [B, *A, C] data; required where the model has known_channels.
        compile: run compiled; default: where faster. The samples are the same.
        progress: wraps the loop over rows, for a progress bar.

    Returns:
        [B, *A, C] uint8 if V <= 256, else int64, on the model's device.

    Raises:
        ValueError: sizes disagree, an option is out of range, or weights, `noise` or `cond` hold NaN.
    """
    config = model.config
    sizes = {len(tensor) for tensor in (noise, label, cond, known) if not isinstance(tensor, int | None)}
    sizes |= set() if count is None else {count}
    if len(sizes) != 1:
        raise ValueError(
            f"count and the lengths of noise, label, cond, known must be one number, not {sorted(sizes) or 'missing'}"
        )
    batch = sizes.pop()
    if batch < 0:
        raise ValueError(f"count must be at least 0, not {batch}")
    if known is None:
        if config.known_channels:
            raise ValueError(f"the model's first {config.known_channels} channels are given: pass them as known=")
        known = torch.zeros((), dtype=torch.int64).expand(batch, *config.shape, config.channels)
    drawing = Drawing(
        model=model,
        draw=Draw(temperature=temperature, top_k=top_k, top_p=top_p),
        known=known,
        conditioning=Conditioning(labels_of(label, batch), cond),
        noise=noise,
        generator=generator,
    )
    return drawing.values(compile, progress)


@accepts_arrays("known", "mask", "noise", "label", "cond")
def complete(  # noqa: PLR0913
    model: AxialTransformer,
    known: Integer[Tensor, "b *a c"],
    *,
    mask: Bool[Tensor, "*m"] | None = None,
    rows: int | None = None,
    channels: int | None = None,
    frames: int | None = None,
    count: int = 1,
    approximate: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    noise: Float[Tensor, "n *a c v"] | None = None,
    label: Integer[Tensor, " b"] | int | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    compile: bool | None = None,
    progress: Progress = iter,
) -> Integer[Tensor, "n *a c"]:
    """Draw the missing values of data that is known in part (inpainting).

    This is exact, a draw from p(missing | known), where known sites come first in the model's order. With
    `approximate`, values drawn before a known site do not depend on it.

    Args:
        known: [B, *A, C]; arbitrary values in 0..V-1 where unknown.
        mask: [*A] or [*A, C], True where known. Give exactly one of mask, rows, channels and frames.
        rows: known rows (of the second axis from the end; for sequences, positions).
        channels: known channels.
        frames: known entries of the first axis.
        count: completions of each input.
        approximate: allow any mask.
        noise: [B * count, *A, C, V]. Other options: see `sample`.

    Returns:
        [B * count, *A, C], one input's completions in succession; uint8 if V <= 256, else int64.

    Raises:
        ValueError: the layout is not exact for the mask (the message names those that are), or as `sample`.
    """
    known_sites = known_mask(model, mask=mask, rows=rows, channels=channels, frames=frames)
    exact = exact_layouts(model, known_sites)
    if not approximate and model.config.layout not in exact:
        would = f"models of layout {' or '.join(exact)} are" if exact else "no layout is"
        raise ValueError(
            f"the known sites do not come first in generation order with layout {model.config.layout!r}, so completion "
            f"is not exact; {would} exact for this mask; approximate=True forces known sites when reached"
        )
    if count < 0:
        raise ValueError(f"count must be at least 0, not {count}")
    label = labels_of(label, len(known))
    lengths = {len(tensor) for tensor in (label, cond) if tensor is not None}
    if lengths - {len(known)}:
        raise ValueError(f"label and cond must be of the {len(known)} examples of known, not of {sorted(lengths)}")
    drawing = Drawing(
        model=model,
        draw=Draw(temperature=temperature, top_k=top_k, top_p=top_p),
        known=known.repeat_interleave(count, dim=0),
        mask=known_sites,
        conditioning=Conditioning(label, cond).repeated(count),
        noise=noise,
        generator=generator,
    )
    return drawing.values(compile, progress)


def known_mask(
    model: AxialTransformer,
    *,
    mask: Bool[Tensor, "*m"] | None = None,
    rows: int | None = None,
    channels: int | None = None,
    frames: int | None = None,
) -> Bool[Tensor, "*a c"]:
    """Return the mask [*A, C], True where known, of exactly one option; see `complete`.

    Raises:
        ValueError: none or several options, or one out of range.
    """
    config = model.config
    sizes = (*config.shape, config.channels)
    options: dict[str, Tensor | int | None] = {"mask": mask, "rows": rows, "channels": channels, "frames": frames}
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) != 1:
        raise ValueError(f"give exactly one of mask, rows, channels and frames, not {' and '.join(given) or 'none'}")
    ((name, value),) = given.items()
    if isinstance(value, Tensor):
        if value.dtype != torch.bool or tuple(value.shape) not in (sizes, sizes[:-1]):
            raise ValueError(
                f"mask must be bool {list(sizes)} or {list(sizes[:-1])}, not {value.dtype} {list(value.shape)}"
            )
        return value.cpu() if value.ndim == len(sizes) else value.cpu().unsqueeze(-1).expand(sizes)
    axis = {"rows": max(0, len(config.shape) - 2), "channels": len(config.shape), "frames": 0}[name]
    if not 0 <= value <= sizes[axis]:
        raise ValueError(f"{name} must be in 0..{sizes[axis]}, not {value}")
    return torch.stack(torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij"))[axis] < value


def exact_layouts(model: AxialTransformer, known: Bool[Tensor, "*a c"]) -> list[str]:
    """Return the layouts in whose generation order the known positions [*A, C] come first: they complete exactly."""
    config = model.config

    def is_exact(name: str) -> bool:
        if name == "frames" and len(config.shape) < 2:
            return False
        order = LAYOUTS[name](config.shape, config.channels).order
        return comes_first(known, order[-len(model.order) :] if name == config.layout else order)

    return [name for name in LAYOUTS if is_exact(name)]
