"""Archives that carry their model."""

import time
import tracemalloc
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

import axial_transformers as axial
from axial_transformers.compression import (
    ArchiveError,
    DamagedError,
    WrongModelError,
    container,
    embedded_model,
    fingerprint,
    rounding,
)
from axial_transformers.compression.archive import NoGainError
from axial_transformers.compression.embedded_model import FIRST_PRECISION, nearest_codes, pack, step_sizes, unpack
from axial_transformers.compression.rounding import rounded
from axial_transformers.data import DataConfig, load
from axial_transformers.engine import PRECISION, reference
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import UNCONDITIONAL
from tests.compression.archive_parts import HOSTILE, forged, joined, model_joined, model_parts, parts
from tests.small_models import CHUNKS_OF_64, ROUNDED_QUICKLY, VARIANTS, random_model, random_values, small_config

FEW_STEPS = patch("axial_transformers.compression.rounding.MULTIPLIERS", [2**-i for i in range(-2, 6)])
"""Half of those that are tried."""


def labelled(kind, count):
    """A model of weights of scale 1, values and labels; some without a label."""
    model = random_model(VARIANTS[kind], torch.float32)
    classes = model.config.num_classes
    label = torch.arange(count) % (classes + 1) if classes else None
    return model, random_values(model, count) + model.config.lowest, label


def steps_of_weights(model, divisor):
    """Codes of steps of about the largest weight over `divisor`."""
    return {
        name: np.full(
            len(weight) if weight.ndim > 1 else 1, nearest_codes(weight.abs().max().item() / divisor * 2.0**43)
        )
        for name, weight in model.named_parameters()
    }


@pytest.mark.parametrize("kind", ["classes", "ordinal columns"])
def test_values_model_and_labels_come_back_from_the_archive_alone(kind):
    model, x, label = labelled(kind, 26)
    archive = axial.open_archive(axial.compress(model, x, label, embed=True, force=True))
    assert torch.equal(archive.values.long(), x.long())
    assert (archive.labels is None) if label is None else torch.equal(archive.labels, label)
    assert archive.model.config == model.config


@pytest.mark.parametrize(
    ("kind", "divisor"),
    [("2d", 0.4), ("lstm", 3.0), ("classes", 1e4), ("centred axis", 0.4), ("rotary 3d", 3.0), ("centred axis", 1e4)],
)
def test_a_model_comes_back_to_the_last_bit_for_steps_of_every_size(kind, divisor):
    model = random_model(VARIANTS[kind], torch.float32)
    steps = steps_of_weights(model, divisor)
    once, content = pack(model, steps)
    assert fingerprint(unpack(content)) == fingerprint(once)
    assert pack(once, steps).content == content
    with patch.object(embedded_model, "arithmetic", lambda: reference):
        assert pack(model, steps).content == content
        assert fingerprint(unpack(content)) == fingerprint(once)
    for name, codes in steps.items():
        error = (once.get_parameter(name) - model.get_parameter(name)).detach().abs()
        assert (error.reshape(len(codes), -1).amax(1).numpy() <= step_sizes(codes) * 0.50001).all()


def test_numbers_take_the_bits_of_a_logistic_distribution():
    size = embedded_model.sizes(FIRST_PRECISION) * 2.0**-17
    shares = np.diff(1 / (1 + np.exp(-size * (np.arange(10) - 0.5))))
    start = embedded_model.NUMBERS // 2
    found = np.diff(embedded_model._number_starts(FIRST_PRECISION))[start : start + 9] / 2.0**PRECISION
    assert np.abs(found / shares - 1).max() < 0.01


def test_coefficients_that_are_too_large_for_a_number_come_back():
    model = random_model(VARIANTS["centred"], torch.float32)
    coefficients = model.state_dict()["values.prediction.coefficients"]
    coefficients[0, 0, :3] = torch.tensor([1 << 50, -(1 << 40), (1 << 27) + 4096])
    steps = steps_of_weights(model, 100)
    once, content = pack(model, steps)
    assert fingerprint(unpack(content)) == fingerprint(once)
    assert torch.equal(once.state_dict()["values.prediction.coefficients"][0, 0, :3], coefficients[0, 0, :3])


def test_a_small_model_of_a_long_sequence_is_within_the_bounds_of_a_reader():
    """Its rotary tables have more numbers than are stored."""
    config = small_config((9000,), dim=2, heads=1, inner_layers=6, rotary=50.0)
    with torch.device("meta"):
        text = embedded_model.config_text(axial.AxialTransformer(config))
    found, _ = embedded_model.without_weights(container.varint(len(text)) + text + bytes(2000))
    assert found.config == config


def test_rotations_stay_what_they_are_within_a_millionth():
    model = random_model(small_config((3, 200), rotary=50.0), torch.float32)
    once, _ = pack(model, steps_of_weights(model, 1e4))
    for (name, before), after in zip(model.named_buffers(), once.buffers()):
        assert name.endswith("rotations")
        assert (before - after).abs().max() < 2e-5


def test_weights_and_data_together_take_fewer_bits_than_with_other_steps():
    model = axial.AxialTransformer.from_pretrained("digits")
    digits = load("digits", DataConfig(), "all").values[::4]
    images = np.concatenate([digits] * 80)  # enough for weights to matter little
    sample = torch.from_numpy(digits[::20])
    with FEW_STEPS, patch("axial_transformers.compression.rounding.SAMPLE", 32):
        found = rounded(model, images, UNCONDITIONAL)

    def total(candidate, content):
        return 8 * len(content) + bits_per_dim(candidate, sample).mean().item() * images.size

    least = total(found.model, found.content)
    for divisor in (8, 64, 512):
        steps = steps_of_weights(model, divisor)
        assert least < 1.01 * total(*pack(model, steps))
    assert bits_per_dim(found.model, sample).mean() < 1.1 * bits_per_dim(model, sample).mean()


def cost_of_errors(errors: np.ndarray, h: torch.Tensor) -> float:
    """The sum over rows of e' H e."""
    return float(np.einsum("rj,jk,rk->", errors, h.numpy(), errors))


def test_weights_of_a_row_take_back_the_errors_of_others():
    """Rounding each weight to the nearest multiple costs more."""
    generator = torch.Generator().manual_seed(0)
    model = random_model(small_config((3, 5), dim=6, heads=2), torch.float32)
    name = "outer_decoders.0.blocks.0.feedforward.expand.weight"
    with torch.no_grad():
        weight = model.get_parameter(name).normal_(generator=generator).double()
    width = weight.shape[1]
    gradients = torch.randn(4_000, width, generator=generator) + 2 * torch.randn(4_000, 1, generator=generator)
    products = (gradients.T @ gradients).double()
    steps = 0.1 * (1 + torch.rand(len(weight), generator=generator)).double().numpy()
    codes = {name: embedded_model.nearest_codes(steps * 2.0**43)}
    steps = embedded_model.step_sizes(codes[name])
    factors, ratio = rounding._taken_back(products, 4_000)

    def cost(taken_back: np.ndarray) -> float:
        costs = {name: rounding._Cost(steps, taken_back)}
        rounded_model = rounding._with_errors_taken_back(model, None, costs, codes)
        rows = rounded_model.get_parameter(name).detach().double().numpy()
        np.testing.assert_allclose(rows / steps[:, None], np.rint(rows / steps[:, None]), atol=1e-5)
        return cost_of_errors(rows - weight.numpy(), products)

    nearest = cost(np.eye(width))
    assert cost(factors) < 1.5 * ratio * nearest
    assert ratio < 0.5
    alone, ratio = rounding._taken_back(torch.diag(products.diagonal()), 4_000)
    np.testing.assert_allclose(alone, np.eye(width), atol=1e-12)
    assert ratio == pytest.approx(1)


def test_what_weights_take_back_of_errors_is_what_each_step_makes_least():
    """One step of the slow reference: with weight j moved by e, the others minimise the cost by themselves."""
    generator = torch.Generator().manual_seed(1)
    mixing = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    products = mixing.T @ mixing
    factors, _ = rounding._taken_back(products, 10**12)
    h = products + rounding.DAMPING * products.diagonal().mean() * torch.eye(7)
    for j in range(6):
        later = slice(j + 1, 7)
        best = -torch.linalg.solve(h[later, later], h[later, j])  # weight j moves by 1
        np.testing.assert_allclose(factors[j, later], best, rtol=1e-6, atol=1e-9)


def test_rows_that_are_too_wide_are_rounded_weight_by_weight():
    model = random_model(VARIANTS["2d"], torch.float32)
    x = random_values(model, 3)
    content = axial.compress(model, x, embed=True, force=True)
    with patch("axial_transformers.compression.rounding.MAX_WIDTH", 2):
        one_by_one = axial.compress(model, x, embed=True, force=True)
    assert content != one_by_one
    assert torch.equal(axial.open_archive(one_by_one).values, x)


def test_an_embedded_model_is_worth_having_however_few_the_data_are():
    model = axial.AxialTransformer.from_pretrained("digits")
    digits = torch.from_numpy(load("digits", DataConfig(), "all").values)
    with FEW_STEPS:
        found = rounded(model, digits[:4], UNCONDITIONAL)
    with patch("axial_transformers.compression.archive.rounded", lambda *_: found):
        with pytest.raises(NoGainError, match="zlib"):
            axial.compress(model, digits[:4], embed=True)
        embedded = axial.open_archive(axial.compress(model, digits[:4], embed=True, force=True, verify=False)).model
    others = digits[4::32]
    assert bits_per_dim(embedded, others).mean() < 1.12 * bits_per_dim(model, others).mean()


def test_what_an_archive_cannot_hold_is_refused():
    model = random_model(VARIANTS["2d"], torch.float32)
    x = random_values(model, 3)
    with pytest.raises(ValueError, match="no images"):
        axial.compress(model, x[:0], embed=True, force=True)
    with torch.no_grad():
        next(model.parameters()).fill_(np.nan)
    with pytest.raises(ValueError, match="not finite"), np.errstate(invalid="ignore"):
        axial.compress(model, x, embed=True, force=True)
    model, x, label = labelled("classes", 600)  # more than are in a sample
    wrong = label.clone()
    wrong[1] = -1
    for given, embed in [(wrong, True), (label[:5], True), (label[:5], False), (torch.cat([label, label]), False)]:
        with pytest.raises(ValueError, match="label"):
            axial.compress(model, x, given, embed=embed, force=True)


def test_a_path_is_opened_and_closed(tmp_path):
    model, x, _ = labelled("2d", 130)
    with CHUNKS_OF_64, ROUNDED_QUICKLY:
        content = axial.compress(model, x, embed=True, force=True)
    (tmp_path / "x.axl").write_bytes(content)
    with axial.open_archive(tmp_path / "x.axl") as archive:
        assert torch.equal(archive.values.long(), x.long())
    with pytest.raises(ValueError, match="closed"):
        archive.values
    with pytest.raises(FileNotFoundError):
        axial.open_archive(tmp_path / "y.axl")
    with pytest.raises(WrongModelError, match="model"):
        axial.open_archive(axial.compress(model, x[:3]))


@pytest.fixture(scope="module")
def packed():
    model = random_model(VARIANTS["2d"], torch.float32)
    steps = steps_of_weights(model, 50)
    return pack(model, steps).content


def test_what_is_no_model_or_a_stream_that_is_cut_lengthened_or_changed_is_damage(packed):
    config, stream = model_parts(packed)
    streams = (stream[:-4], stream[:-3], stream[:8], b"", stream + b"1234", b"\xff" * 8 + stream[8:])
    none = (b"", b"\x00", b"\xff" * 20, b"\x05{}", container.varint(1 << 40) + b"{}")
    for content in (*(model_joined(config, wrong) for wrong in streams), *none):
        with pytest.raises(DamagedError):
            unpack(content)


def test_a_hostile_configuration_is_refused_within_a_second_and_100_megabytes(packed):
    config, stream = model_parts(packed)
    for fields in HOSTILE:
        began = time.process_time()
        tracemalloc.start()
        try:
            with pytest.raises(DamagedError):
                unpack(model_joined({**config, **fields}, stream))
            assert tracemalloc.get_traced_memory()[1] < 100e6, str(fields)[:50]
        finally:
            tracemalloc.stop()
        assert time.process_time() - began < 1, str(fields)[:50]


def test_turns_that_are_not_finite_are_damage_found_within_a_second():
    model = random_model(small_config((1 << 12,), rotary=50.0, dim=2, heads=1, inner_layers=3), torch.float32)
    model.inner_decoder.blocks[2].attention.attention.rotations.fill_(1e30)
    steps = steps_of_weights(model, 50)
    with np.errstate(over="ignore", invalid="ignore"):
        content = pack(model, steps).content
    began = time.process_time()
    with pytest.raises(DamagedError, match=r"blocks\.2.*rotations"):
        unpack(content)
    assert time.process_time() - began < 1


def test_a_forged_archive_is_refused_with_a_typed_error():
    model, x, label = labelled("classes", 5)
    with ROUNDED_QUICKLY:
        archive = axial.compress(model, x, label, embed=True, force=True)
    header, (content, labels, _) = parts(archive)
    for what, wrong in forged(archive).items():
        with pytest.raises(ArchiveError):
            raise AssertionError((what, axial.open_archive(wrong).values))
    of_none = joined(replace(header, chunks=header.chunks[:2]), [content, labels[:0]])
    with patch("axial_transformers.compression.reader.ExactNetwork", side_effect=AssertionError):
        opened = axial.open_archive(of_none)
        assert opened.values.shape == (0, *model.config.shape, model.config.channels)
        assert opened.labels.shape == (0,)
