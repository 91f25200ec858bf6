"""Parameters and FLOPs of a model, counted from its configuration alone.

FLOPs are those of matrix products for one example, as torch counts them with the MATH kernel, masked scores included.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch

from axial_transformers.models import AxialTransformerConfig
from axial_transformers.models.baselines.by_name import build, class_of
from axial_transformers.models.baselines.sequence_attention import SequenceAttention
from axial_transformers.models.convolution import FEATURES, inputs
from axial_transformers.models.stacks import InnerAttention
from axial_transformers.models.values import features_of


@dataclass(frozen=True)
class _Layers:
    layers: int
    attended: float
    cached: float


def parameters(config: AxialTransformerConfig) -> dict[str, int]:
    """Return the number of parameters of each part of the model."""
    with torch.device("meta"):
        model = build(config)
    return {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}


def forward_flops(config: AxialTransformerConfig) -> int:
    """Return the FLOPs of one forward pass: the logits of every slice."""
    return _flops(config, cached=False)


def training_flops(config: AxialTransformerConfig) -> int:
    """Return the FLOPs of the loss of one random slice and of its gradients."""
    slices = config.bijection.channels - config.known_channels
    without_gradient = _first_layer(config) + 2 * _features(config) * config.dim  # of their inputs
    if config.convolution:
        without_gradient += 2 * _features(config) * FEATURES * sum(map(bool, config.layers_of_outer_decoders))
    return 3 * forward_flops(config) // slices - prod(config.bijection.shape) * without_gradient


def decode_flops(config: AxialTransformerConfig) -> int:
    """Return the FLOPs of decoding one example with caches."""
    return _flops(config, cached=True)


def _flops(config: AxialTransformerConfig, cached: bool) -> int:
    layout, dim = config.bijection, config.dim
    shape, slices = layout.shape, layout.channels - config.known_channels
    per_position = 2 * dim * config.num_logits
    embeddings = len(shape) if cached else 1  # decoding embeds values anew for each outer decoder
    total = float(per_position + 2 * _features(config) * dim * embeddings + _first_layer(config))
    for group in _layer_groups(config):
        attended = group.cached if cached else group.attended
        total += group.layers * (8 * dim**2 + 4 * dim * config.hidden + 4 * attended * dim)
    if reach := config.convolution:
        for level, length in enumerate(shape[:-1]):
            if config.layers_of_outer_decoders[level]:
                share = 1 - 1 / length if cached else 1.0  # decoding skips the first slab
                seen = sum(min(i, reach) for i in range(length)) / length if cached else 1.0  # and reads slabs anew
                total += 2 * inputs(config, level) * dim * share + 2 * _features(config) * FEATURES * seen
    if config.inner == "lstm":
        total += 16 * dim**2
    return round(total * prod(shape) * slices)


def _features(config: AxialTransformerConfig) -> int:
    """Return the numbers of a value that linear layers embed: none if values are categorical."""
    return features_of(config).size if config.values == "ordinal" else 0


def _first_layer(config: AxialTransformerConfig) -> int:
    if not config.encoder_layers:
        return 0
    layout = config.bijection
    planes = layout.channels if config.channel_planes == "one_hot" else 1
    numbers = layout.channels * features_of(config).size + planes
    return 2 * 3 ** len(layout.shape) * numbers * config.dim


def _layer_groups(config: AxialTransformerConfig) -> Iterator[_Layers]:
    shape = config.bijection.shape
    for length in shape:
        yield _along_axis(config.layers_of_encoder // len(shape), length, masked=False)
    for level, layers in enumerate(config.layers_of_outer_decoders):
        for axis in range(level, len(shape)):
            yield _along_axis(layers // (len(shape) - level), shape[axis], masked=axis == level)
    if type(config) is not AxialTransformerConfig:
        yield from _sequence_layers(config)
    elif config.inner == "attention":
        yield _along_axis(config.inner_layers, shape[-1], masked=True)


def _along_axis(layers: int, length: int, masked: bool) -> _Layers:
    """Of L cached steps, the i-th attends to i + 1 positions: on average to (L + 1) / 2."""
    return _Layers(layers, length, (length + 1) / 2 if masked else length)


def _sequence_layers(config: AxialTransformerConfig) -> Iterator[_Layers]:
    length = config.bijection.shape[-1]
    with torch.device("meta"):
        inner = class_of(config).build_inner(config)
    assert isinstance(inner, InnerAttention)
    for block in inner.blocks:
        attention = block.attention.attention
        assert isinstance(attention, SequenceAttention)
        yield _Layers(1, attention.products(length) / length, attention.pairs(length) / length)


def duration(seconds: float) -> str:
    """Return seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"
