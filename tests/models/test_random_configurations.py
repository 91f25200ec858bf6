"""Random configurations with random weights: eight of them, and 200 others of every week among the slow tests.

Three of four models have weights of scale 1; the fourth has all weights times 5. A test has its seed in its name. The
variable SEED_OF_CONFIGURATIONS repeats one: `SEED_OF_CONFIGURATIONS=202648017 pytest -m slow` on this file.
"""

import io
import os
import random
from datetime import date
from math import prod

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import axial_transformers as axial
from axial_transformers.compression import container
from axial_transformers.decoding.sampling import has_gumbel_noise, noise_for
from axial_transformers.engine import PRECISION
from axial_transformers.exact.network import ExactNetwork
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, Conditioning
from axial_transformers.models.layouts import LAYOUTS
from axial_transformers.models.values import values_class
from experiments.dependencies import check, influence
from tests.small_models import random_given, random_model, random_values

MAX_POSITIONS = 40
BATCH = 3
NUMBERS_AT_ONCE = 1 << 21
"""Outputs of a forward pass of `influence`, about."""
YEAR, WEEK, _ = date.today().isocalendar()
FIRST = int(os.environ.get("SEED_OF_CONFIGURATIONS", 100_000 * YEAR + 1_000 * WEEK))
every_configuration = pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FIRST, FIRST + 200))]
)


def random_configuration(seed: int) -> AxialTransformerConfig:
    draw = random.Random(seed)
    shape, channels = (), MAX_POSITIONS
    while not shape or prod(shape) * channels > MAX_POSITIONS:
        shape = tuple(draw.choice((1, 2, 3, 5, 7)) for _ in range(draw.randint(1, 4)))
        channels = draw.randint(1, 4)
    values = draw.choice(["categorical", "ordinal"])
    refused = {"frames"} if len(shape) == 1 else set()
    if values == "categorical" or channels == 1:
        refused.add("pixels")
    layout = draw.choice([name for name in LAYOUTS if name not in refused])
    bijection = LAYOUTS[layout](shape, channels)
    axes, inner = len(bijection.shape), draw.choice(["attention", "attention", "lstm"])
    num_values = round(2 ** draw.uniform(1, 16))
    centred = values == "ordinal" and draw.random() < 0.6
    return AxialTransformerConfig(
        shape=shape,
        channels=channels,
        layout=layout,
        values=values,
        num_values=num_values,
        lowest=draw.choice([0, 0, 1, -num_values // 2, -(1 << 31)]),
        centred=centred,
        activity=centred and draw.random() < 0.5,
        mixtures=draw.choice([1, 2, 3, 10, 17]),
        num_classes=draw.choice([None, None, 1, 3]),
        known_channels=draw.choice([0, 0, draw.randrange(bijection.channels)]),
        dim=8,
        heads=draw.choice([1, 2, 4]),
        mlp_ratio=draw.choice([1.0, 1.7]),
        encoder_layers=0 if layout == "pixels" else axes * draw.choice([1, 2] if bijection.channels > 1 else [0, 1]),
        outer_layers=tuple(size * draw.choice([1, 1, 2]) for size in range(axes, 1, -1)),
        inner=inner,
        inner_layers=1 if inner == "lstm" else draw.choice([1, 2]),
        channel_planes=draw.choice(["one_hot", "index"]),
        gated_convolutions=draw.choice([0, 0, 1, 2]),
        rotary=draw.choice([None, 7.0, 100.0]),
    )


def scale_of(seed: int) -> int:
    return 5 if seed % 4 == 3 else 1


def model_of(seed: int, dtype: torch.dtype = torch.float32) -> AxialTransformer:
    model = random_model(random_configuration(seed), dtype, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale_of(seed))
    return model


def values_of(model: AxialTransformer) -> Tensor:
    return random_values(model, BATCH) + model.config.lowest


def outputs_of(config: AxialTransformerConfig) -> int:
    """Numbers that the head gives for one example."""
    return values_class(config).outputs_of(config) * prod(config.shape) * config.channels


class Parameters(nn.Module):
    """A model whose logits are what its distributions are made of: outputs and centres. All of 65,536 are too many."""

    def __init__(self, model: AxialTransformer):
        super().__init__()
        self.model, self.order, self.config = model, model.order, model.config

    def forward(self, x: Tensor, label: Tensor | None) -> Tensor:
        x = self.model.check(x)
        outputs, values = self.model.outputs(x, label), self.model.values
        if self.config.values == "categorical":
            return outputs
        centres = values.centres(values.codes(x))
        return torch.cat([outputs, centres.unsqueeze(-1).to(outputs)], dim=-1)


@every_configuration
def test_distributions_depend_on_every_earlier_position_and_on_no_other(seed):
    model = model_of(seed, torch.float64)
    label = random_given(model, 1).get("label")
    at_once = max(1, min(64, NUMBERS_AT_ONCE // outputs_of(model.config)))
    matrix = influence(Parameters(model), values_of(model)[:1], label, batch_size=at_once)
    if scale_of(seed) == 1:
        found = check(matrix, dependent=1e-11)  # an LSTM's memory decays along its row
        assert (found.leaks, found.holes) == (0, 0)
    else:  # rounding is amplified, and attention looks at one position only
        assert check(matrix, independent=1e-9).leaks == 0


@every_configuration
@torch.no_grad()
def test_probabilities_of_all_values_sum_to_one(seed):
    model = model_of(seed)
    config, x, given = model.config, values_of(model)[:1], random_given(model, 1)
    every = torch.arange(config.num_values)
    is_small = max(outputs_of(config), 100 * x.numel()) * len(every) <= 4 * NUMBERS_AT_ONCE
    for position in model.order[[0, -1]]:
        here = (slice(None), *position)
        if is_small:  # the likelihood of every value
            candidates = x.repeat(len(every), *(1,) * (x.ndim - 1))
            candidates[here] = every + config.lowest
            same = {name: tensor.expand(len(every), *tensor.shape[1:]) for name, tensor in given.items()}
            probabilities = torch.exp2(-axial.bits_map(model, candidates, **same)[here].double())
        else:
            outputs, codes = model.outputs(model.check(x), **given)[here], model.values.codes(model.check(x))[here]
            of_all = model.values.distribution(outputs, model.values.centres(codes)).log_probabilities()
            probabilities = of_all.log_softmax(-1).double().exp() if not config.has_order else of_all.double().exp()
        assert abs(float(probabilities.sum()) - 1) < 1e-5


@every_configuration
def test_compiled_samples_equal_the_eager_ones(seed, record_property):
    """A uniform number may lie on the edge of two values, where rounding chooses: what follows may differ, too.

    A component is up to 160,000 values wide. There the rounding of float32 is more than a value.
    """
    model = model_of(seed)
    given = {"noise": noise_for(model.config, BATCH, seed=seed), **random_given(model, BATCH)}
    if model.config.known_channels:
        given["known"] = values_of(model)
    compiled, eager = (axial.sample(model, compile=compile, **given).long() for compile in (True, False))
    differences = (compiled - eager)[(slice(None), *model.order.T)]
    on_edges = [int(example[example.nonzero()[0]]) for example in differences if example.any()]
    record_property("on_edges", on_edges)
    assert len(on_edges) <= (0 if has_gumbel_noise(model.config) else 1)
    assert all(abs(difference) <= 1 + model.config.num_values // 16_384 for difference in on_edges)


@every_configuration
def test_archives_of_samples_are_restored_and_as_long_as_the_model_says(seed):
    """Beyond the bits of the values, a chunk has 40 to 73: a byte for the number of files, and the coder's state.

    The bits are those of the frequencies that the network of archives gives. The state is stored in 64 bits. It is from
    31 to 63 bits long, and of these 31 to 32 were there before the values.
    """
    model = model_of(seed)
    if model.config.known_channels:
        pytest.skip("no archive holds known channels")
    label = random_given(model, BATCH).get("label")
    sampled = axial.sample(model, BATCH, seed=seed, label=label).long()
    archive = axial.compress(model, sampled, label, verify=False)
    assert torch.equal(axial.decompress(model, archive, label).long(), sampled)
    length = len(archive) - container.read_header(io.BytesIO(archive)).starts[0]
    positions = len(model.order)
    intervals = ExactNetwork(model, integers=True).intervals(model.check(sampled), Conditioning(label))
    beyond = 8 * length - float((PRECISION - np.log2(intervals[..., 1])).sum())
    rounding = 0.01 * BATCH * positions
    assert 32 - rounding <= beyond <= 65 + rounding
