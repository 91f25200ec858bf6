"""Ordinal values: probabilities, predictions, features and samples."""

from itertools import product

import numpy as np
import pytest
import torch

import axial_transformers as axial
from axial_transformers.engine import COEFFICIENT_BITS, LEVELS, level_scales
from axial_transformers.likelihood import random_slice_loss
from axial_transformers.models.values import values_class
from axial_transformers.models.values.activity import Activity, level_of, scale_of
from axial_transformers.models.values.linear_prediction import LinearPrediction
from axial_transformers.models.values.ordinal import Features, Mixture
from tests.small_models import (
    CENTRED,
    VARIANTS,
    random_coefficients,
    random_model,
    random_values,
    small_config,
    small_model,
)


def random_mixture(num_values: int, scale: float, count: int = 20, dtype: torch.dtype = torch.float64) -> Mixture:
    generator = torch.Generator().manual_seed(0)
    weights, means, sizes = scale * torch.randn(3, count, 4, generator=generator, dtype=dtype)
    centres = torch.randint(num_values, (count,), generator=generator)
    return Mixture(weights, 3 * means, sizes.exp(), centres, num_values)


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("num_values", [2, 3, 256, 65_536])
def test_probabilities_sum_to_one(num_values, scale):
    found = random_mixture(num_values, scale, count=5, dtype=torch.float32).log_probabilities()
    assert (found.double().exp().sum(-1) - 1).abs().max() < 1e-5


def test_bins_are_differences_of_the_distribution_function():
    mixture = random_mixture(9, 1.0)
    edges = torch.arange(10) - 0.5 - mixture.centres[:, None]
    below = torch.sigmoid((edges[:, :, None] - mixture.means[:, None]) * mixture.precisions[:, None])
    below[:, 0], below[:, -1] = 0, 1
    expected = (below.diff(dim=1) * mixture.weights.softmax(-1)[:, None]).sum(-1)
    assert (mixture.log_probabilities().exp() - expected).abs().max() < 1e-12


def test_far_bins_keep_their_probability_in_float32():
    mixture = random_mixture(65_536, 1.0)
    single = Mixture(*(part.float() for part in mixture[:3]), *mixture[3:])
    values = torch.randint(65_536, (20,), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(single.log_p(values).double(), mixture.log_p(values), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_have_the_frequencies_of_the_distribution(temperature):
    mixture, count = random_mixture(7, 1.0, count=1), 200_000
    noise = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    many = Mixture(*(part.expand(count, -1) for part in mixture[:3]), mixture.centres.expand(count), 7)
    sampled = many.sample(noise, temperature).bincount(minlength=7) / count
    cooled = mixture._replace(weights=mixture.weights / temperature, precisions=mixture.precisions / temperature)
    assert (sampled - cooled.log_probabilities()[0].exp()).abs().max() < 1e-4


def test_at_temperature_0_the_most_likely_component_decides():
    mixture = random_mixture(256, 1.0)
    best = mixture.weights.argmax(-1, keepdim=True)
    expected = (mixture.centres + mixture.means.gather(-1, best)[:, 0]).round().long().clamp(0, 255)
    assert torch.equal(mixture.sample(torch.rand(20, dtype=torch.float64), 0.0), expected)


@pytest.mark.parametrize(
    ("shape", "channels"), [((5,), 1), ((3, 4), 2), ((1, 6), 3), ((2, 3, 2), 4), ((2, 1, 2, 3), 1)]
)
def test_predictions_are_whole_sums_over_neighbours(shape, channels):
    prediction = LinearPrediction(shape, channels, 300)
    random_coefficients(prediction)
    x = torch.randint(300, (2, *shape, channels))
    found = prediction(x)
    for position in np.ndindex(*shape, channels):
        *indices, channel = position
        pattern = sum(2**axis for axis, index in enumerate(indices) if index == 0)
        *factors, total = prediction.coefficients[pattern, channel].tolist()
        for b in range(2):
            whole = total
            for factor, offset in zip(factors, prediction.offsets):
                at = [min(i + step, size - 1) for i, step, size in zip(position, offset, (*shape, channels))]
                if min(at) >= 0:
                    whole += factor * int(x[(b, *at)])
                else:
                    assert factor == 0
            assert found[(b, *position)] == min(max(whole >> COEFFICIENT_BITS, 0), 299)


@pytest.mark.parametrize(("shape", "channels"), [((5,), 1), ((3, 4), 2), ((1, 6), 3), ((2, 3, 2), 4)])
def test_levels_of_an_activity_are_those_of_whole_sums_over_neighbours(shape, channels):
    activity = Activity(shape, channels, 300)
    random_coefficients(activity)
    activity.coefficients.abs_()
    sizes = torch.randint(300, (2, *shape, channels))
    levels = activity(sizes)
    for position in np.ndindex(*shape, channels):
        *indices, channel = position
        pattern = sum(2**axis for axis, index in enumerate(indices) if index == 0)
        *factors, total = activity.coefficients[pattern, channel].tolist()
        for b in range(2):
            whole = total
            for factor, offset in zip(factors, activity.offsets):
                steps = [i + step for i, step in zip(position, offset)]
                at = [min(max(i, 0), size - 1) for i, size in zip(steps, (*shape, channels))]
                whole += factor * int(sizes[(b, *at)])
            size = min(max((16 * whole) >> COEFFICIENT_BITS, 8), 16 * 300) / 16
            scale, logarithm = (float(table[levels[(b, *position)]]) for table in level_scales())
            assert 8 / 9 - 1e-9 < scale / size < 17 / 16 + 1e-9
            assert abs(np.log(scale) - logarithm) < 1e-6


def test_levels_are_monotone_and_every_one_has_a_size():
    sums = torch.arange(8, (16 << 16) + 1) << COEFFICIENT_BITS - 4
    levels = level_of(sums, 1 << 16)
    assert levels.unique().tolist() == list(range(int(levels.max()) + 1))
    assert (levels.diff() >= 0).all()
    assert int(levels.max()) < LEVELS


def test_an_activity_scales_the_components_of_odd_number():
    config = small_config((3, 2), num_values=300, activity=True, **CENTRED)
    values = values_class(config)(config)
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(4, 9, generator=generator)
    levels = torch.tensor([0, 8, 30, 60])
    scales = torch.from_numpy(level_scales()[0])[levels, None]
    found = values.distribution(outputs, 7 + 300 * levels)
    small = values.distribution(outputs, 7 + 300 * levels.new_zeros(4))
    weights, means, precisions = outputs.unflatten(-1, (3, 3)).unbind(1)
    assert (found.centres == 7).all()
    assert torch.equal(found.weights, weights)
    assert torch.allclose(found.means[:, 1::2], (means * scales)[:, 1::2])
    assert torch.allclose(found.means[:, ::2], 75 * means[:, ::2])
    assert torch.allclose(found.precisions[:, 1::2], (precisions.exp() / scales)[:, 1::2])
    assert torch.equal(found.precisions[:, ::2], small.precisions[:, ::2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scales_are_those_of_the_engine_in_every_dtype_that_holds_them(dtype):
    levels = torch.arange(int(level_of(torch.tensor(65_536 << COEFFICIENT_BITS), 65_536)) + 1)
    expected = torch.from_numpy(level_scales()[0])[: len(levels)].clamp(max=torch.finfo(dtype).max)
    assert torch.equal(scale_of(levels, dtype).float(), expected.float())


def test_a_fitted_activity_finds_the_sizes_of_differences():
    """Rows of differences of sizes 1 and 50 alternate."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([1.0, 50.0]).repeat_interleave(20)[torch.randperm(40, generator=generator)]
    noise = -torch.rand(40, 30, 1, 1, generator=generator).log()
    sizes = (scale[:, None, None, None] * noise).round().long()
    activity = Activity((30, 1), 1, 1000)
    activity.fit(sizes)
    fitted = torch.from_numpy(level_scales()[0])[activity(sizes)][:, 5:]
    expected = scale[:, None, None, None]
    assert ((fitted / expected).log().abs() < 1.5).float().mean() > 0.9
    assert not activity.is_new()


def test_a_fitted_prediction_finds_a_linear_rule():
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(100, (50, 6, 5, 1), generator=generator)
    for row in range(1, 6):
        for column in range(1, 5):
            x[:, row, column] = x[:, row - 1, column] + x[:, row, column - 1] - x[:, row - 1, column - 1]
    x -= x.min()
    prediction = LinearPrediction((6, 5), 1, int(x.max()) + 1)
    prediction.fit(x)
    assert torch.equal(prediction(x)[:, 1:, 1:], x[:, 1:, 1:])


def test_a_prediction_of_constant_data_is_the_constant():
    prediction = LinearPrediction((3, 4), 2, 65_536)
    x = torch.full((1, 3, 4, 2), 65_535)
    prediction.fit(x)
    assert torch.equal(prediction(x), x)


def test_features_tell_neighbouring_values_of_16_bits_apart():
    codes = torch.arange(65_536)
    assert len(Features(65_536, ())(codes, torch.bfloat16).unique(dim=0)) > 65_536 // 4
    assert len(Features(65_536, ())(codes, torch.float32).unique(dim=0)) == 65_536


@pytest.mark.parametrize("num_values", [2, 256, 65_536])
def test_features_of_an_activity_are_about_as_large_as_the_others(num_values):
    levels = torch.arange(int(level_of(torch.tensor(num_values << COEFFICIENT_BITS), num_values)) + 1)
    codes = num_values * num_values * levels
    features = Features(num_values, (), activity=True)(codes, torch.float32)
    assert features.abs().max() < 1.5


@pytest.mark.parametrize(("num_values", "scales"), [(16, (1, 4)), (17, (1, 4, 16))])
def test_differences_have_features_at_the_scales_below_the_number_of_values(num_values, scales):
    config = small_config((3, 2), num_values=num_values, **CENTRED)
    assert values_class(config)(config).features.scales == scales


def test_samples_of_ordinal_values_are_not_restricted_to_likely_values():
    model = random_model(VARIANTS["centred"], torch.float32)
    for compile, restricted in product((True, False), ({"top_k": 3}, {"top_p": 0.5})):
        with pytest.raises(ValueError, match="order"):
            axial.sample(model, 1, compile=compile, **restricted)


def test_fitting_sets_predictions_and_widths_of_a_new_model():
    model = small_model((4, 5), num_values=1000, **CENTRED)
    x = (500 + torch.randn(40, 4, 5, 1).cumsum(2) * 4).round().long().clamp(0, 999)
    before = axial.bits_per_dim(axial.AxialTransformer(model.config), x).mean()
    fitted = axial.AxialTransformer(model.config)
    fitted.fit_values(x)
    assert axial.bits_per_dim(fitted, x).mean() < before - 2


def test_a_training_step_predicts_once(monkeypatch):
    asked, predict = [], LinearPrediction.forward
    monkeypatch.setattr(LinearPrediction, "forward", lambda self, x: asked.append(x) or predict(self, x))
    model = random_model(VARIANTS["centred columns"])
    random_slice_loss(model, random_values(model, 2))
    assert len(asked) == 1


def test_values_stay_in_range_where_weights_overflow():
    """Codes are indices of kernels: a model that somebody made must not let them read elsewhere."""
    model = random_model(VARIANTS["centred columns"], torch.float32)
    with torch.no_grad():
        model.head[1].weight.fill_(3e38)
    for compile in (True, False):
        sampled = axial.sample(model, 3, seed=0, compile=compile)
        assert 0 <= int(sampled.min()) <= int(sampled.max()) < model.config.num_values
