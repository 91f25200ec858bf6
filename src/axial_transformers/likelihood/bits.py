"""Logits to nats to bits/dim: the exact likelihood and its unbiased one-slice estimate. The only home of log 2."""

from math import log

import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor

from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models.axial_transformer import AxialTransformer

LOG2 = log(2)


def slice_nats(
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    channel: Integer[Tensor, " b"],
    label: Integer[Tensor, " b"] | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
) -> Float[Tensor, " b *s"]:
    """-log p of each site of one slice an example, in nats: [B, *A'] in the model's coordinates; float32 or better."""
    logits = model.slice_logits(x, channel, label, cond)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    values = model.slice_values(x, channel)
    # flat, since over a dimension that is not the last in memory it takes ten times as long
    return F.cross_entropy(logits.flatten(0, -2), values.flatten(), reduction="none").view(values.shape)


def random_slice_loss(
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    channel: Integer[Tensor, " b"] | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, ""]:
    """The training loss, nats/dim: one channel an example, uniformly at random: unbiased for the mean over all.

    Args:
        channel: [B] the channels to take, in place of random ones.
        generator: draws the channels (a CPU generator).
    """
    if channel is None:
        drawn = torch.randint(model.slices.start, model.slices.stop, (len(x),), generator=generator)
        channel = drawn.to(x.device)
    return slice_nats(model, x, channel, label, cond).mean()


@torch.no_grad()
def bits_map(
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
) -> Float[Tensor, "b *a c"]:
    """-log2 p of every site given those before it, dropout off: [B, *A, C] in data coordinates. Known sites cost 0."""
    with without_dropout(model):
        bits = [
            slice_nats(model, x, torch.full((len(x),), c, device=x.device), label, cond) / LOG2 for c in model.slices
        ]
    known = [torch.zeros_like(bits[0])] * model.slices.start
    return model.layout.to_data(torch.stack(known + bits, dim=-1))


def bits_per_dim(
    model: AxialTransformer,
    x: Integer[Tensor, "b *a c"],
    label: Integer[Tensor, " b"] | None = None,
    cond: Float[Tensor, "b *a d"] | None = None,
    given_frames: int = 0,
) -> Float[Tensor, " b"]:
    """-log2 p(x) / number of generated sites, exact (every slice), dropout off: [B] float64.

    Args:
        given_frames: only sites beyond the first so many places of the first axis (a clip's first frames) are counted.

    Raises:
        ValueError: none are left.
    """
    frames = model.config.shape[0]
    if not 0 <= given_frames < frames:
        raise ValueError(f"given_frames must be in 0..{frames - 1}, not {given_frames}")
    sites = int((model.order[:, 0] >= given_frames).sum())
    return bits_map(model, x, label, cond)[:, given_frames:].double().flatten(1).sum(1) / sites
