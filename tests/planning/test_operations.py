"""Operations counted from the configuration are those that torch counts."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from axial_transformers.decoding import decode
from axial_transformers.decoding.sampling import cache_numbers
from axial_transformers.layers.lines import KeyValueCache
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer
from axial_transformers.models.baselines import BlockTransformerConfig, ImageTransformerConfig, SparseTransformerConfig
from axial_transformers.models.baselines.by_name import build, class_of
from axial_transformers.planning.flops import (
    decode_flops,
    forward_flops,
    parameters,
    training_flops,
)
from tests.small_models import small_config

SEQUENCE = {"shape": (3, 3), "channels": 2, "num_values": 5, "dim": 8, "heads": 2}
CONFIGS = [
    small_config((5,), num_values=7, inner_layers=2),
    small_config((3, 5), mlp_ratio=1.5, outer_layers=4),
    small_config((2, 3, 4), 2, inner_layers=2, mlp_ratio=4.0),
    small_config((2, 3, 4), 2, "frames", inner_layers=2, known_channels=2, channel_planes="index"),
    small_config((2, 3, 4), 2, "columns", convolution=1),
    small_config((5, 4), convolution=2, values="ordinal", centred=True, num_values=300),
    small_config((3, 2, 4), 2, "columns", convolution=1, values="ordinal"),
    small_config((3, 4), 2, outer_layers=0, convolution=1, values="ordinal", centred=True),
    ImageTransformerConfig(block=4, memory=3, inner_layers=2, **SEQUENCE),
    SparseTransformerConfig(inner_layers=1, **SEQUENCE),
    BlockTransformerConfig(blocks=((1, 6), (3, 2)), inner_layers=2, **SEQUENCE),
]


def _count(run) -> int:
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.fixture(params=CONFIGS, ids=lambda config: f"{class_of(config).name} {config.shape}")
def model(request: pytest.FixtureRequest) -> AxialTransformer:
    return build(request.param).eval()


def _zeros(model: AxialTransformer) -> torch.Tensor:
    return torch.zeros(1, *model.config.shape, model.config.channels, dtype=torch.int64)


def test_a_forward_costs_what_is_said(model):
    with torch.no_grad():
        assert _count(lambda: model(_zeros(model))) == forward_flops(model.config)


def test_the_loss_of_a_slice_and_its_gradients_cost_what_is_said(model):
    model = model.to("meta")
    x = torch.zeros(3, *model.config.shape, model.config.channels, dtype=torch.int64, device="meta")
    channel = torch.zeros(3, dtype=torch.int64, device="meta")
    flops = _count(lambda: random_slice_loss(model, x, channel=channel).backward())
    assert flops == 3 * training_flops(model.config)


def test_decoding_costs_what_is_said(model):
    with torch.no_grad():
        flops = _count(lambda: decode(model, lambda logits, position: logits.argmax(-1), _zeros(model)))
    assert flops == decode_flops(model.config)


def test_parameters_are_those_of_the_model(model):
    counted = parameters(model.config)
    assert sum(counted.values()) == sum(parameter.numel() for parameter in model.parameters())
    assert counted["head"] == sum(parameter.numel() for parameter in model.head.parameters())


def test_caches_hold_what_is_said(model):
    """One cache a masked layer, each made anew for every slab: the largest number alive at once is one of each."""
    stacks = [*model.outer_decoders, model.inner_decoder]
    caches = [cache for stack in stacks for cache in stack.start(1) if isinstance(cache, KeyValueCache)]
    assert sum(cache.keys.numel() + cache.values.numel() for cache in caches) == cache_numbers(model.config)


def test_an_lstm_is_counted_by_its_weights():
    attention, lstm = (
        small_config((3, 5), num_values=256, mlp_ratio=4.0, inner=inner) for inner in ("attention", "lstm")
    )
    layer = 15 * (8 * 8**2 + 4 * 8 * 32 + 4 * 5 * 8)
    assert forward_flops(attention) - forward_flops(lstm) == layer - 15 * 16 * 8**2
    assert cache_numbers(attention) - cache_numbers(lstm) == 2 * 8 * (5 - 1)
