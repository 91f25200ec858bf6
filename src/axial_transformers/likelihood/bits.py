"""The exact likelihood, and its unbiased estimate."""

from collections.abc import Iterator
from functools import partial
from math import log

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn.functional import pad

from axial_transformers.exact.network import exact_network
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models.arguments import Conditioning, accepts_arrays, labels_of
from axial_transformers.models.axial_transformer import AxialTransformer

LOG2 = log(2)
PART = 2**20
"""More numbers leave a CPU's caches."""


def slice_nats(
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    channel: Integer[Tensor, " b"],
    label: Integer[Tensor, " b"] | int | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
) -> Float[Tensor, "b *s p"]:
    """Return nats, -log p, of each value of one slice per example: [B, *A', P] in model coordinates.

    A position holds P = 1 value or, with layout `pixels`, all channels.

    Args:
        x: [B, *A, C], integers, in data coordinates.
        channel: [B], the slices, in `model.slices`.

    Raises:
        ValueError: the model does not take x, label or cond.
    """
    return _slice_nats(model, model.check(x), channel, Conditioning(labels_of(label, len(x)), cond))


def _slice_nats(model: AxialTransformer, x: Tensor, channel: Tensor, conditioning: Conditioning) -> Tensor:
    """Return the nats of `slice_nats`; x counts values from 0."""
    codes, outputs = model.slice_and_outputs(x, channel, *conditioning)
    outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
    return model.values.nats(outputs, codes)


@accepts_arrays("x", "label", "cond", "channel")
def random_slice_loss(
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | int | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    channel: Integer[Tensor, " b"] | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, ""]:
    """Return the training loss in nats/dim, from one random channel per example.

    It is an unbiased estimate of the mean over channels, as in the paper.

    Args:
        channel: [B], instead of random ones.
        generator: samples the channels (a CPU generator).

    Raises:
        ValueError: the model does not take x, label or cond.
    """
    if channel is None:
        chosen = torch.randint(model.slices.start, model.slices.stop, (len(x),), generator=generator, device="cpu")
        channel = chosen.to(x.device)
    return slice_nats(model, x, channel, label, cond).mean()


@accepts_arrays("x", "label", "cond")
@torch.no_grad()
def bits_map(
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | int | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
) -> Float[Tensor, "b *a c"]:
    """Return bits, -log2 p, of every position given those before it, without dropout: [B, *A, C]; 0 for known channels.

    For float32 models on a CPU with the compiled engine, every CPU gives the same numbers, for any batch and threads.

    Raises:
        ValueError: the model does not take x, label or cond.
    """
    x = model.check(x)
    network = exact_network(model)
    nats = partial(_nats_by_torch, model) if isinstance(network, str) or not len(x) else network.nats
    parts = [torch.as_tensor(nats(*part), device=x.device) for part in _parts(model, x, label, cond)]
    found = torch.cat(parts) / LOG2
    return model.layout.to_data(pad(found, (0, 0, model.slices.start, 0)))  # zeros for known channels


def _nats_by_torch(model: AxialTransformer, x: Tensor, conditioning: Conditioning) -> Tensor:
    channels = (torch.full((len(x),), c, device=x.device) for c in model.slices)
    with without_dropout(model):
        return torch.stack([_slice_nats(model, x, channel, conditioning) for channel in channels], dim=-2)


def _parts(
    model: AxialTransformer, x: Tensor, label: Tensor | int | None, cond: Tensor | None
) -> Iterator[tuple[Tensor, Conditioning]]:
    conditioning = Conditioning(labels_of(label, len(x)), cond)
    if any(part is not None and len(part) != len(x) for part in conditioning):
        model.embed_conditioning(len(x), conditioning)  # raises an error
    size = len(x)
    if x.device.type == "cpu":
        size = PART // (model.config.dim * x.shape[1:].numel() // model.config.channels)
    size = max(1, size)
    for start in range(0, max(1, len(x)), size):
        some = slice(start, start + size)
        yield x[some], conditioning.of(some)


@accepts_arrays("x", "label", "cond")
def bits_per_dim(
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | int | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    given_frames: int = 0,
) -> Float[Tensor, " b"]:
    """Return bits/dim, -log2 p(x) / number of generated positions: [B] float64; exact, without dropout.

    Args:
        given_frames: first positions of the first axis (frames of a clip) that do not count.

    Raises:
        ValueError: the model does not take x, label or cond, or given_frames leaves no position.
    """
    frames = model.config.shape[0]
    if not 0 <= given_frames < frames:
        raise ValueError(f"given_frames must be in 0..{frames - 1}, not {given_frames}")
    positions = int((model.order[:, 0] >= given_frames).sum())
    return ordered_sum(bits_map(model, x, label, cond)[:, given_frames:].double().flatten(1).mT) / positions


def ordered_sum(x: Float[Tensor, "n ..."]) -> Float[Tensor, "..."]:
    """Sum in order: `Tensor.sum` reorders by CPU."""
    return x.cumsum(0)[-1]
