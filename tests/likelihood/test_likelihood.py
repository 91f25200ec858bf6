"""The likelihood is exact, adds up to one, and the training loss is unbiased for it."""

from itertools import product
from math import log, prod

import pytest
import torch

from axial_transformers.likelihood.bits import LOG2, bits_map, bits_per_dim, random_slice_loss, slice_nats
from tests.small_models import PAIRWISE, random_given, random_model, random_values, small_config, small_model

pairwise = pytest.mark.parametrize("config", PAIRWISE.values(), ids=PAIRWISE)
EXACT = {"rtol": 1e-12, "atol": 1e-10}


@pairwise
def test_bits_are_the_product_of_conditionals(config):
    """-log2 of p(value | values before it), one position after the other, with noise for what is not yet there."""
    model = random_model(config)
    x, given = random_values(model, 2), random_given(model, 2)
    bits, expected = torch.zeros(2, dtype=torch.float64), torch.zeros(x.shape, dtype=torch.float64)
    so_far = torch.where(bits_map(model, x, **given) == 0, x, random_values(model, 2, seed=1))
    for position in model.order.tolist():
        here = (slice(None), *position)
        with torch.no_grad():
            logs = model(so_far, **given)[here].log_softmax(dim=-1)
        expected[here] = -logs[torch.arange(2), x[here]] / log(2)
        bits += expected[here]
        so_far[here] = x[here]
    torch.testing.assert_close(bits_per_dim(model, x, **given), bits / len(model.order), **EXACT)
    torch.testing.assert_close(bits_map(model, x, **given), expected, **EXACT)


@pytest.mark.parametrize(
    "config",
    [
        small_config((2, 2), num_values=3, inner="lstm"),
        small_config((2,), 2, "rows", num_values=3),
        small_config((1, 2), 2, "columns", num_values=3),
        small_config((2,), 2, "axis", num_values=3),
        small_config((2, 2, 1), 1, "frames", num_values=3),
        small_config((2, 1, 2), 2, num_values=2),
        small_config((2, 2), num_values=3, outer_layers=0),
        small_config((1, 2), 2, "pixels", num_values=3, centred=True, activity=True, gated_convolutions=1),
    ],
    ids=lambda config: f"{'x'.join(map(str, config.shape))}, {config.channels} channels, {config.layout}",
)
def test_probabilities_of_everything_add_up_to_one(config):
    model = random_model(config)
    sizes = (*config.shape, config.channels)
    everything = torch.tensor(list(product(range(config.num_values), repeat=prod(sizes)))).view(-1, *sizes)
    probabilities = torch.exp2(-bits_per_dim(model, everything) * prod(sizes))
    assert abs(probabilities.sum().item() - 1) < 1e-12
    assert probabilities.std() > 1e-4  # not just uniform


def test_probabilities_given_known_channels_add_up_to_one():
    model = small_model((1, 2), 2, num_values=3, known_channels=1)
    x = torch.tensor([[[[2, a], [1, b]]] for a, b in product(range(3), repeat=2)])
    assert abs(torch.exp2(-bits_per_dim(model, x) * 2).sum().item() - 1) < 1e-12


@pairwise
def test_the_loss_averaged_over_its_channels_is_the_exact_one(config):
    model = random_model(config)
    x, given = random_values(model, 2), random_given(model, 2)
    with torch.no_grad():
        losses = [
            random_slice_loss(model, x, **given, channel=torch.tensor(channels))
            for channels in product(model.slices, repeat=2)
        ]
    torch.testing.assert_close(torch.stack(losses).mean() / LOG2, bits_per_dim(model, x, **given).mean(), **EXACT)


def test_random_channels_are_uniform_over_those_that_carry_loss(monkeypatch):
    model = small_model((3, 1, 1), 2, "frames", known_channels=2)
    sampled, compute = [], model.slice_and_outputs
    monkeypatch.setattr(
        model, "slice_and_outputs", lambda x, channel, *rest: sampled.append(channel) or compute(x, channel, *rest)
    )
    random_slice_loss(model, random_values(model, 4000), generator=torch.Generator().manual_seed(0))
    counts = sampled[0].bincount(minlength=6)
    assert counts[:2].sum() == 0
    assert ((counts[2:] - 1000) ** 2 / 1000).sum() < 16.3  # chi-square of 3 degrees of freedom, 1 in 1000


def test_the_loss_has_a_gradient_for_every_weight():
    model = small_model((2, 3), 2, num_classes=2)
    random_slice_loss(model, random_values(model, 8), torch.arange(8) % 3, channel=torch.arange(8) % 2).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(("layout", "known"), [("frames", 0), ("frames", 2), ("channels", 0)])
def test_given_frames_cost_nothing_and_do_not_count(layout, known):
    """Of a frame's two slices both may be known: they are taken off once."""
    model = small_model((3, 2, 1), 2, layout, known_channels=known)
    x = random_values(model, 2)
    bits = bits_map(model, x)
    assert bool(bits[:, 0].any()) == (known == 0)
    for given in (0, 1, 2):
        positions = 4 * (3 - max(given, known // 2))
        expected = bits[:, given:].flatten(1).sum(1) / positions
        torch.testing.assert_close(bits_per_dim(model, x, given_frames=given), expected, **EXACT)
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=f"given_frames .*{wrong}"):
            bits_per_dim(model, x, given_frames=wrong)


def test_dropout_is_off_in_evaluation_and_the_mode_is_restored():
    model = small_model((2, 3), 2, dropout=0.5).train()
    x = random_values(model, 2)
    assert torch.equal(bits_map(model, x), bits_map(model, x))
    assert model.training
    with pytest.raises(ValueError):
        bits_map(model, x + 5)
    assert model.training
    assert random_slice_loss(model, x) != random_slice_loss(model, x)
    model.eval()
    bits_per_dim(model, x)
    assert not model.training


@pairwise
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_examples_have_no_bits(config, dtype):
    model = random_model(config, dtype)
    nothing = random_values(model, 2)[:0]
    assert bits_map(model, nothing).shape == nothing.shape
    assert bits_per_dim(model, nothing).shape == (0,)


def test_bits_are_float64_and_a_half_precision_model_is_scored_in_float32():
    model = small_model((2, 3)).to(torch.bfloat16)
    x = random_values(model, 2)
    assert slice_nats(model, x, torch.zeros(2, dtype=torch.int64)).dtype == torch.float32
    assert bits_per_dim(model, x).dtype == torch.float64


def test_any_integer_dtype_means_the_same():
    model = small_model((2, 3), 2, num_classes=3)
    x, label = random_values(model, 2), torch.tensor([1, 2])
    for dtype in (torch.uint8, torch.int8, torch.int32):
        assert torch.equal(bits_per_dim(model, x.to(dtype), label.to(dtype)), bits_per_dim(model, x, label))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": torch.zeros(2, 2, 3, 1)}, "integers"),
        ({"x": torch.zeros(2, 3, 2, 1, dtype=torch.int64)}, r"\[B, 2, 3, 1\]"),
        ({"x": torch.full((2, 2, 3, 1), 5)}, r"0\.\.4.* 5\.\.5"),
        ({"label": torch.tensor([0, 4])}, "label"),
        ({"label": torch.tensor([0])}, "label"),
        ({"label": torch.tensor([0.0, 1.0])}, "label"),
        ({"cond": torch.zeros(2, 2, 3, 7)}, r"cond .*\[2, 2, 3, 8\]"),
    ],
)
def test_what_is_not_the_models_is_refused(change, words):
    model = small_model((2, 3), num_classes=3)
    arguments = {"x": torch.zeros(2, 2, 3, 1, dtype=torch.int64)} | change
    with pytest.raises(ValueError, match=words):
        bits_per_dim(model, **arguments)
    with pytest.raises(ValueError, match="num_classes"):
        bits_per_dim(small_model((2, 3)), random_values(model, 1), torch.tensor([0]))


def test_labels_of_another_number_are_refused_where_images_are_split(monkeypatch):
    monkeypatch.setattr("axial_transformers.likelihood.bits.PART", 1)
    model = small_model((2, 3), num_classes=3)
    with pytest.raises(ValueError, match="label"):
        bits_per_dim(model, random_values(model, 2), torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("channel", [[0], [0, 1], [[0], [0], [1]]])
def test_a_loss_needs_a_channel_for_each_example(channel):
    model = small_model((3, 4), 2)
    with pytest.raises(ValueError, match=r"channel must be \[3\]"):
        random_slice_loss(model, random_values(model, 3), channel=torch.tensor(channel))
