"""Networks of random sizes and options: the engine gives the bits of the reference."""

from random import Random

import torch

from axial_transformers.engine import network, reference
from axial_transformers.exact.network import ExactNetwork
from axial_transformers.models import AxialTransformerConfig, Conditioning
from tests.small_models import CENTRED, random_given, random_model, random_values, small_config


def random_config(draw: Random) -> AxialTransformerConfig:
    """Return a configuration of sizes that fill no tile or lane of the engine, or a few and some more."""
    heads, axes = draw.randint(1, 3), draw.randint(1, 2)
    fields = {
        "dim": heads * 2 * draw.randint(1, 14), "heads": heads, "mlp_ratio": draw.choice((0.3, 1.0, 2.6)),
        "num_values": draw.choice((2, 5, 40, 300)), "inner": draw.choice(("attention", "lstm")),
        "rotary": draw.choice((None, 50.0)), "num_classes": draw.choice((None, 3)),
        "gated_convolutions": draw.randint(0, 2),
        **draw.choice(({}, {"values": "ordinal"}, CENTRED)),
    }  # fmt: skip
    layout = draw.choice(("channels", "rows", "columns", "axis", "raster"))
    try:
        return small_config(tuple(draw.randint(1, 4) for _ in range(axes)), draw.randint(1, 2), layout, **fields)
    except ValueError:  # options that exclude each other
        return random_config(draw)


def main(count: int, seed: int) -> None:
    """Compare `count` networks; AssertionError names the configuration of one that differs."""
    draw = Random(seed)
    for _ in range(count):
        config, examples = random_config(draw), draw.randint(1, 5)
        model = random_model(config, torch.float32)
        x, given = random_values(model, examples), Conditioning(**random_given(model, examples))
        integers = draw.random() < 0.5
        fast, slow = ExactNetwork(model, network, integers), ExactNetwork(model, reference, integers)
        assert fast.nats(x, given).tobytes() == slow.nats(x, given).tobytes(), (config, examples)
        assert fast.intervals(x, given).tobytes() == slow.intervals(x, given).tobytes(), (config, examples)
