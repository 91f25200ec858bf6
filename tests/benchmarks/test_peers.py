"""The models that peers.py compares are sound autoregressive models, of the same values and size."""

import pytest
import torch

from axial_transformers.decoding.sampling import sample
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer
from axial_transformers.models.values.activity import Activity
from axial_transformers.models.values.neighbours import NeighbourSum
from axial_transformers.models.values.ordinal import OrdinalValues
from axial_transformers.recipes import NAMED
from experiments.dependencies import check, influence
from tests import benchmark_commands  # noqa: F401  the path of the scripts
from tests.small_models import CENTRED, random_coefficients, random_values, small_config

from peer_models import PEERS, WITHOUT_ATTENTION, Conv, NoAttention, build, size, without_attention  # isort: skip
from peers import KINDS, summarised  # isort: skip

WIDTHS = {"GPT": (8, 12), "gated PixelCNN": (24, 48), "PixelCNN++": (8, 6)}
CONFIGS = {
    "categorical values": small_config((5, 4), num_values=6),
    "ordinal values": small_config((3, 4), 3, "pixels", num_values=20, activity=True, **CENTRED),
}
PHOTOGRAPHS = small_config((3, 4), 3, "pixels", gated_convolutions=1, activity=True, outer_layers=2, **CENTRED)


def randomised(model):
    """Weights of scale 1: near their initial values, models hide errors."""
    randomise(model, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, Conv):
                part.weight /= part.weight.shape[1] ** 0.5
            if isinstance(part, NeighbourSum):
                random_coefficients(part)
            if isinstance(part, Activity):
                part.coefficients.abs_()
    return model.double().eval()


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@torch.no_grad()
def test_peers_see_all_that_is_earlier_and_nothing_else_and_decode_what_they_score(name, config):
    peer = randomised(PEERS[name].build(config, *WIDTHS[name]))
    shape = (*config.shape, config.channels)
    x = torch.randint(config.num_values, (1, *shape), generator=torch.Generator().manual_seed(1))
    log_p = peer.log_probabilities(x)
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(x.shape, dtype=torch.float64))
    assert torch.allclose(-log_p.gather(-1, x.unsqueeze(-1)).squeeze(-1), peer.nats(x))

    positions = x.numel()
    changed = x.flatten().repeat(positions, 1)
    changed[range(positions), range(positions)] = (changed.diagonal() + config.num_values // 2) % config.num_values
    after = peer.log_probabilities(changed.view(positions, *shape)).view(positions, positions, -1)
    found = check((after - log_p.view(1, positions, -1)).abs().amax(-1).T)
    assert (found.leaks, found.holes) == (0, 0)

    decoded = torch.zeros_like(log_p)

    def choose(distribution, position):
        decoded[(slice(None), *position)] = distribution.log_probabilities().log_softmax(-1)
        return x[(slice(None), *position)]

    assert torch.equal(peer.decode(1, choose), x)
    assert torch.allclose(decoded, log_p, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@torch.no_grad()
def test_samples_of_peers_are_those_of_the_parallel_pass(name, config):
    peer = randomised(PEERS[name].build(config, *WIDTHS[name]))
    x = peer.sample(3, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    noise = torch.cat([torch.rand(3, 1, generator=generator) for _ in range(x[0].numel())], -1)
    codes = peer.values.codes(x)
    outputs, centres = peer.outputs(codes).flatten(0, -2), peer.values.centres(codes).flatten()
    expected = peer.values.distribution(outputs, centres).sample(noise.flatten(), 1.0, None, None)
    assert torch.equal(expected.view(x.shape), x)


@torch.no_grad()
def test_without_attention_the_axial_model_sees_nothing_later_and_samples_what_it_scores():
    model = randomised(without_attention(PHOTOGRAPHS, 9)).model
    assert check(influence(model, random_values(model, 1))).leaks == 0
    noise = torch.rand(3, 3, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = sample(model, noise=noise).long()
    distribution = model.values.distribution(model.outputs(x), model.values.centres(model.values.codes(x)))
    assert torch.equal(distribution.sample(noise, 1.0), x)


def test_without_attention_all_matrices_are_those_of_convolutions():
    axial = without_attention(PHOTOGRAPHS, 9)
    blocks = [*axial.model.outer_decoders[0].blocks, *axial.model.inner_decoder.blocks]
    assert all(isinstance(block.attention, NoAttention) for block in blocks)
    convolutions = [block.convolutions[0] for block in blocks]
    expected = {each.near.weight: 2 for each in convolutions} | {each.out.weight: 1 for each in convolutions}
    assert axial.matrices() == expected


@pytest.mark.parametrize("name", PEERS)
def test_matrices_of_peers_are_those_of_their_blocks(name):
    peer = PEERS[name].build(CONFIGS["ordinal values"], *WIDTHS[name])
    matrices = peer.matrices()
    inside = {weight for weight in peer.blocks.parameters() if weight.ndim == 2}
    assert set(matrices) == inside
    assert all(len(weight) % count == 0 for weight, count in matrices.items())


@pytest.mark.parametrize("name", [WITHOUT_ATTENTION, *PEERS])
def test_models_of_photographs_have_the_same_size_and_values(name):
    config = NAMED["photos32"]().model
    with torch.device("meta"):
        axial = AxialTransformer(config)
    model = build(name, config)
    assert size(model) == pytest.approx(size(axial), rel=0.02)
    values = model.model.values if name == WITHOUT_ATTENTION else model.values
    assert isinstance(values, OrdinalValues)
    assert values.features == axial.values.features
    assert (values.outputs, values.max_log_precision) == (axial.values.outputs, axial.values.max_log_precision)


@torch.no_grad()
def test_models_of_photographs_begin_with_the_same_bits():
    x = torch.randint(5, (2, 3, 4, 3), generator=torch.Generator().manual_seed(0))
    models = [without_attention(PHOTOGRAPHS, 9), build("axial", PHOTOGRAPHS)]
    models += [PEERS[name].build(PHOTOGRAPHS, *WIDTHS[name]) for name in PEERS]
    for model in models:
        model.fit(x)
    expected = models[0].bits(x)
    assert all(torch.allclose(model.bits(x), expected, rtol=1e-5) for model in models)


@pytest.mark.parametrize("name", PEERS)
@torch.no_grad()
def test_heads_of_ordinal_values_are_not_rounded_to_bfloat16(name):
    peer = randomised(PEERS[name].build(CONFIGS["ordinal values"], *WIDTHS[name])).float()
    state = torch.randn(2, WIDTHS[name][name == "gated PixelCNN"])
    before = torch.zeros(2, 0, dtype=torch.int64)
    expected = peer.read_out(state, before)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(peer.read_out(state, before), expected)


@torch.no_grad()
def test_the_mixture_of_a_new_pixelcnn_plus_plus_lies_evenly_around_the_middle_value():
    peer = PEERS["PixelCNN++"].build(CONFIGS["categorical values"], *WIDTHS["PixelCNN++"])
    p = peer.log_probabilities(torch.zeros(1, 5, 4, 1, dtype=torch.int64)).exp()
    assert torch.allclose(p, p.flip(-1))
    assert p.amin() > 0.1


def test_differences_from_the_axial_model_are_paired_and_their_errors_over_examples():
    row = {"kind": "varied", "seconds": 1.0, "optimizer": "muon", "learning_rate": 0.01, "seed": 0}
    row |= {"steps": 1, "step_megabytes": 1.0}
    axial = row | {"model": "axial", "bits_per_dim": 3.0, "bits_of_examples": [2.0, 3.0, 4.0]}
    gpt = row | {"model": "GPT", "bits_per_dim": 4.0, "bits_of_examples": [2.0, 4.0, 6.0]}
    again = axial | {"seed": 1, "bits_per_dim": 5.0, "bits_of_examples": [6.0, 5.0, 4.0]}
    of_axial, of_gpt = summarised([gpt, axial, again])
    assert (of_axial["bits_per_dim"], of_axial["spread"]) == pytest.approx((4.0, 2**0.5))
    assert of_axial["standard_error"] == 0.0
    assert of_gpt["standard_error"] == pytest.approx(2 / 3**0.5)
    assert of_gpt["above_axial"] == pytest.approx((0.0, 2 / 3**0.5))
    assert (of_gpt["kodak_bits_per_dim"], of_gpt["kodak_above_axial"]) == (None, None)


def test_a_kind_refuses_models_that_it_does_not_compare():
    assert KINDS["varied"].recipe("axial, feedforward blocks").model.gated_convolutions == 0
    with pytest.raises(ValueError, match="feedforward"):
        KINDS["fashion"].recipe("axial, feedforward blocks")
