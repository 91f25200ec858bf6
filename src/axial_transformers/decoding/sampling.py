"""Sample from a model, and complete data that is known in part.

A batch is sampled in parts, so that noise and caches of a bounded number of examples are in memory.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import ceil, prod
from operator import index
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from axial_transformers.decoding.backend_choice import choose_backend
from axial_transformers.decoding.choices import NoiseChoice, Sampler
from axial_transformers.decoding.decoding_loop import decode
from axial_transformers.decoding.noise import gumbel, uniform
from axial_transformers.machine import free_memory
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, Conditioning
from axial_transformers.models.arguments import accepts_arrays, labels_of
from axial_transformers.models.axial_transformer import require_whole
from axial_transformers.models.layouts import LAYOUTS
from axial_transformers.models.values import values_class
from axial_transformers.ops.torch_private import is_wrapper
from axial_transformers.progress import Item, Progress
from axial_transformers.wording import engineering

MAX_NUMBERS = 1 << 27
"""Numbers of noise in memory, and of caches: 537 MB each, the noise of 42 images of 64x64x3 with 256 values.

The noise of a single example may be more. Not measured; chosen so that sampling fits beside a model on a small machine.
"""
CHOICE = 8
"""Numbers that a choice takes for each value: logits in two precisions, and their sums."""
MIN_AT_ONCE = 16
"""Samples whose caches may exceed the limit: with fewer at a time, the weights are read too often."""
SHARE_OF_GPU = 4
"""Noise may take this fraction, 1 / 4, of a GPU's free memory, and caches as much. Not measured."""


@accepts_arrays("noise", "label", "cond", "known")
def sample(  # noqa: PLR0913
    model: AxialTransformer,
    count: int | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    first: int = 0,
    noise: Float[Tensor, "b ..."] | None = None,
    label: Integer[Tensor, " b"] | int | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    known: Integer[Tensor, "b *a c"] | None = None,
    compile: bool | None = None,
    progress: Progress = iter,
) -> Integer[Tensor, "b *a c"]:
    """Sample from the model.

    Args:
        count: number of samples B; optional where `noise`, `label`, `cond` or `known` has that length.
        temperature: 1 samples from the model's distribution; 0 takes the most likely values.
        top_k, top_p: sample only from the k most likely values, or from the fewest that together reach probability p.
            Ties with the last stay.
        seed: for reproducible samples, from -2^63 to 2^64 - 1. None: one that torch's generator chooses.
        first: number of the first sample. The noise of a sample is a function of the seed and its number: a call with
            `first=8` continues one with `count=8`.
        noise: instead of a seed. Up to 256 categorical values, standard Gumbel [B, *A, C, V]: values are
            argmax(logits + temperature * noise). Otherwise uniform in (0, 1), [B, *A, C]: see `decoding.Sampler` and,
            of ordinal values, `models.values.Mixture`.
        label: [B] classes, or one int for all.
        cond: [B, *A, D].
        known: [B, *A, C] data; required where the model has known_channels.
        compile: run compiled; default: where possible. The samples are the same, but for the rounding of ordinal values
            in a range of thousands.
        progress: wraps the loop over rows, for a progress bar.

    Returns:
        [B, *A, C] uint8 if all values are in 0..255, else int64, on the model's device.

    Raises:
        ValueError: sizes disagree, an option is out of range, or weights, `noise` or `cond` hold NaN.
    """
    config = model.config
    sizes = {len(tensor) for tensor in (noise, label, cond, known) if not isinstance(tensor, int | None)}
    if count is not None:
        sizes.add(index(count))
    if len(sizes) != 1 or min(sizes) < 0:
        raise ValueError(
            "count and the lengths of noise, label, cond, known must be one number, at least 0, not "
            f"{sorted(sizes) or 'missing'}"
        )
    (batch,) = sizes
    if known is None:
        if config.known_channels:
            raise ValueError(f"the model's first {config.known_channels} channels are given: pass them by known=")
        known = torch.tensor(config.lowest, device="cpu").expand(batch, *config.shape, config.channels)
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p)
    conditioning = Conditioning(labels_of(label, batch), cond)
    return _sampled(model, sampler, known, None, conditioning, noise, seed, first, compile, progress)


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
    seed: int | None = None,
    first: int = 0,
    noise: Float[Tensor, "b ..."] | None = None,
    label: Integer[Tensor, " b"] | int | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    compile: bool | None = None,
    progress: Progress = iter,
) -> Integer[Tensor, "n *a c"]:
    """Sample the missing values of data that is known in part (inpainting).

    This is exact, a sample from p(missing | known), where known positions come first in the model's order. With
    `approximate`, values sampled before a known position do not depend on it.

    Args:
        known: [B, *A, C]; arbitrary values of the model where unknown.
        mask: [*A] or [*A, C], True where known. Give exactly one of mask, rows, channels and frames.
        rows: known rows (of the second axis from the end; for sequences, positions).
        channels: known channels.
        frames: known entries of the first axis.
        count: completions of each input.
        approximate: allow any mask.
        first: number of the first completion of the first input.
        noise: of B * count examples. Other options: see `sample`.

    Returns:
        [B * count, *A, C], one input's completions in succession; uint8 if all values are in 0..255, else int64.

    Raises:
        ValueError: the layout is not exact for the mask (the message names those that are), or as `sample`.
    """
    known_positions = known_mask(model, mask=mask, rows=rows, channels=channels, frames=frames)
    if not approximate:
        require_exact(model, known_positions)
    if count < 0:
        raise ValueError(f"count must be at least 0, not {count}")
    label = labels_of(label, len(known))
    lengths = {len(tensor) for tensor in (label, cond) if tensor is not None}
    if lengths - {len(known)}:
        raise ValueError(f"label and cond must be of the {len(known)} examples of known, not of {sorted(lengths)}")
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p)
    conditioning = Conditioning(label, cond).repeated(count)
    if known.is_floating_point():
        raise ValueError(f"known must hold integers, not {known.dtype}")
    known = known.long().masked_fill(~known_positions.to(known.device), model.config.lowest)
    known = known.repeat_interleave(count, dim=0)
    return _sampled(model, sampler, known, known_positions, conditioning, noise, seed, first, compile, progress)


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
    axes = len(config.shape)
    options = {"mask": mask, "rows": rows, "channels": channels, "frames": frames}
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"give exactly one of mask, rows, channels and frames, not {' and '.join(given) or 'none'}")
    if mask is not None:
        if mask.dtype != torch.bool or mask.shape not in (sizes, sizes[:-1]):
            raise ValueError(f"mask must be bool {sizes} or {sizes[:-1]}, not {mask.dtype} {list(mask.shape)}")
        return mask.cpu().view(*mask.shape, *(1,) * (axes + 1 - mask.ndim)).expand(sizes)
    if rows is not None:
        return _first_of_axis("rows", rows, sizes, max(0, axes - 2))
    if channels is not None:
        return _first_of_axis("channels", channels, sizes, axes)
    assert frames is not None
    return _first_of_axis("frames", frames, sizes, 0)


def _first_of_axis(name: str, count: int, sizes: tuple[int, ...], axis: int) -> Bool[Tensor, "*a c"]:
    """Return a mask [*sizes], True at the first `count` positions of an axis."""
    if not 0 <= count <= sizes[axis]:
        raise ValueError(f"{name} must be in 0..{sizes[axis]}, not {count}")
    known = torch.zeros(sizes, dtype=torch.bool, device="cpu")
    known.narrow(axis, 0, count).fill_(True)
    return known


def require_exact(model: AxialTransformer, known: Bool[Tensor, "*a c"]) -> None:
    """Raise ValueError if a completion is not exact where these positions are known; name layouts where it is."""
    exact = exact_layouts(model, known)
    layout = model.config.layout
    if layout not in exact:
        others = f"models of layout {' or '.join(exact)} would be exact" if exact else "no layout would be exact"
        raise ValueError(
            f"layout {layout} does not sample the known positions first, so completions would not be exact ({others}); "
            "approximate=True accepts that: values sampled before a known position do not depend on it"
        )


def exact_layouts(model: AxialTransformer, known: Bool[Tensor, "*a c"]) -> list[str]:
    """Return the layouts in whose generation order the known positions [*A, C] come first: they complete exactly."""
    config = model.config
    exact: list[str] = []
    for name, layout in LAYOUTS.items():
        if name == "frames" and len(config.shape) < 2:
            continue
        if name == "pixels" != config.layout:  # its order is that of columns, which takes all models
            continue
        order = model.order if name == config.layout else layout(config.shape, config.channels).order
        in_order = known[tuple(order.T)]
        if not (in_order[1:] & ~in_order[:-1]).any():  # none follows an unknown one
            exact.append(name)
    return exact


class Numbers(NamedTuple):
    """Numbers of four bytes that decoding needs for one example."""

    noise: int
    state: int
    """Caches, the context of all positions, and what the choice of one value takes."""


def numbers_per_example(config: AxialTransformerConfig) -> Numbers:
    """Return the numbers that decoding needs for one example."""
    positions = prod(config.shape) * config.channels
    kind = values_class(config)
    noise = kind.gumbel_numbers(config) or 2  # a uniform number has 8 bytes
    choice = CHOICE * kind.outputs_of(config)
    return Numbers(positions * noise, cache_numbers(config) + positions * config.dim + choice)


def noise_for(
    config: AxialTransformerConfig, count: int, seed: int = 0, first: int = 0, device: torch.device | str = "cpu"
) -> Float[Tensor, "b ..."]:
    """Return the noise of `count` samples: Gumbel [B, *A, C, V], or uniform [B, *A, C]; see `decoding.gumbel`."""
    kind = gumbel if has_gumbel_noise(config) else uniform
    return kind((count, *noise_shape(config)), seed, first, device)


def noise_shape(config: AxialTransformerConfig) -> tuple[int, ...]:
    """Return the shape of the noise of one sample."""
    shape = (*config.shape, config.channels)
    numbers = values_class(config).gumbel_numbers(config)
    return (*shape, numbers) if numbers else shape


def has_gumbel_noise(config: AxialTransformerConfig) -> bool:
    """Return True if samples take Gumbel noise, one number a value; else they take one uniform number a position."""
    return values_class(config).gumbel_numbers(config) > 0


def cache_numbers(config: AxialTransformerConfig) -> int:
    """Return the numbers that layers keep of the slabs so far of one example.

    These are keys and values, an LSTM's state, and inputs of gated convolutions: of one slab, in the inner decoder two.
    """
    shape = config.bijection.shape
    vectors = 0
    for level, layers in enumerate(config.layers_of_outer_decoders):
        vectors += 2 * layers // (len(shape) - level) * prod(shape[level:])
        vectors += layers * config.gated_convolutions * prod(shape[level + 1 :])
    if config.inner == "lstm":
        vectors += 2
    else:
        vectors += 2 * config.inner_layers * (shape[-1] + config.gated_convolutions)
    return config.dim * vectors


def max_examples_at_once(config: AxialTransformerConfig, device: torch.device | None = None) -> int:
    """Return how many examples to sample at a time, by their noise and caches; a large GPU takes more."""
    most = MAX_NUMBERS
    each = numbers_per_example(config)
    if device is not None and device.type == "cuda":
        most = max(most, torch.cuda.mem_get_info(device)[0] // SHARE_OF_GPU // torch.float32.itemsize)
    return max(1, min(most // each.noise, max(MIN_AT_ONCE, most // each.state)))


def _sampled(  # noqa: PLR0913
    model: AxialTransformer,
    sampler: Sampler,
    known: Integer[Tensor, "b *a c"],
    mask: Bool[Tensor, "*a c"] | None,
    conditioning: Conditioning,
    noise: Float[Tensor, "b ..."] | None,
    seed: int | None,
    first: int,
    compile: bool | None,
    progress: Progress,
) -> Integer[Tensor, "b *a c"]:
    """Return examples [B, *A, C] on the model's device, sampled in equal parts of the batch.

    Args:
        known: values of known channels, and of the mask, are kept.
        mask: True where values are known; None: nowhere.
        noise: of all examples, then sampled at once; None: generated part by part, when needed.
    """
    config = model.config
    device = model.device
    batch = len(known)
    _check_options(config, sampler, seed or 0, first)
    chosen = int(torch.randint(2**63 - 1, (), device="cpu")) if seed is None else seed
    parts = _parts(batch, batch if noise is not None else max_examples_at_once(config, device))
    for part in parts:  # finds a mistake before hours of work
        model.check(known[part])
        model.embed_conditioning(len(known[part]), conditioning.of(part))
    _check_numbers(model, noise, batch, conditioning)
    rows = len(model.order) // model.layout.row
    steps = iter(progress(range(rows * len(parts))))
    dtype = torch.uint8 if config.of_bytes else torch.int64

    def counted(items: Iterable[Item], /) -> Iterator[Item]:
        for item, _ in zip(items, steps):
            yield item

    def values_of(part: slice) -> Tensor:
        own = noise_for(config, len(known[part]), chosen, first + part.start, device) if noise is None else noise
        kept = None if mask is None else model.check(known[part]).masked_fill(~mask.to(device), -1)
        choose = NoiseChoice(noise=own.to(device), sampler=sampler, known=kept)
        backend = partial(choose_backend, compile=compile)
        return decode(model, choose, known[part], conditioning.of(part), backend, counted).to(dtype)

    values = torch.cat([values_of(part) for part in parts])
    next(steps, None)  # ends a progress bar
    return values


def _check_options(config: AxialTransformerConfig, sampler: Sampler, seed: int, first: int) -> None:
    if (sampler.top_k or sampler.top_p) and not values_class(config).takes_top_k:
        raise ValueError("top_k and top_p need values without an order: take a temperature below 1")
    if not -(2**63) <= seed < 2**64 or not 0 <= first < 2**63:
        raise ValueError(f"seed must be in -2^63..2^64 - 1, and first in 0..2^63 - 1, not {seed} and {first}")


def _parts(batch: int, most: int) -> list[slice]:
    """Return as many parts as needed, of equal sizes, at most `most` each; one without examples."""
    size = ceil(batch / max(1, ceil(batch / max(1, most))))
    return [slice(start, start + size) for start in range(0, max(1, batch), max(1, size))]


def _check_numbers(model: AxialTransformer, noise: Tensor | None, batch: int, conditioning: Conditioning) -> None:
    """Raise ValueError for noise of another shape, and if the weights, the noise or cond have NaN or infinity."""
    weights = model.state_dict()
    for name, weight in weights.items():
        require_whole(name, weight)
    if noise is not None and noise.shape != (batch, *noise_shape(model.config)):
        raise ValueError(f"noise must be {[batch, *noise_shape(model.config)]}, not {list(noise.shape)}")
    for name, numbers in {**weights, "noise": noise, "cond": conditioning.cond}.items():
        if numbers is None or is_wrapper(numbers):  # quantised weights have no such test
            continue
        if not numbers.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinity: nothing can be sampled with it")
    if noise is not None and not has_gumbel_noise(model.config):
        outside = noise[(noise <= 0) | (noise >= 1)]
        if len(outside):
            raise ValueError(f"noise must be uniform in (0, 1); found {outside[0]:g}: see decoding.uniform")


def sample_in_processes(
    config: AxialTransformerConfig,
    count: int,
    sample_numbers: Callable[[slice], Tensor],
    processes: int,
    fill: Callable[[Tensor, Iterable[slice], Callable[[slice], Tensor]], Tensor],
) -> Integer[Tensor, "b *a c"]:
    """Return `count` samples [count, *A, C] in every process; of P processes, each computes about one in P.

    Args:
        sample_numbers: returns the samples of these numbers.
        fill: computes the parts, such as `Processes.fill`.
    """
    share = ceil(count / processes)
    dtype = torch.uint8 if config.of_bytes else torch.int64
    whole = torch.zeros(count, *config.shape, config.channels, dtype=dtype, device="cpu")
    return fill(whole, (slice(start, min(start + share, count)) for start in range(0, count, share)), sample_numbers)


def require_room(config: AxialTransformerConfig, count: int, inputs: int = 1) -> None:
    """Raise ValueError if `count` examples would not fit into the memory of this machine.

    Args:
        inputs: completions: inputs with `count` examples each.
    """
    available = free_memory()
    if available is None:
        return
    positions = prod(config.shape) * config.channels
    value = 1 if config.of_bytes else 8
    each = inputs * positions * (3 * value + 8)  # an image of them, too
    decoding = 4 * sum(numbers_per_example(config))
    together = max_examples_at_once(config)
    need = each * count + decoding * min(count * inputs, together)
    if need > available:
        room = max((available - decoding * together) // each, available // (each + decoding * inputs))
        fit = f"{engineering(available)}B are available: about {min(room, count - 1):,} would fit"
        raise ValueError(f"count={count} needs {engineering(need)}B of memory, but {fit}")
