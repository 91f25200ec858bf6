"""Models of differences from a prediction: an exact bijection of the values, with the likelihood of the values."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from axial_transformers import complete, compress, decompress, recipes, sample
from axial_transformers.data import Examples
from axial_transformers.decoding import GumbelChoice, decode, decode_naively, gumbel
from axial_transformers.inference.exact_network import ExactNetwork
from axial_transformers.kernels.exact import reference
from axial_transformers.kernels.exact.definition import PRECISION
from axial_transformers.likelihood import bits_map, random_slice_loss
from axial_transformers.likelihood.dependencies import check, influence
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, Conditioning
from axial_transformers.models.layouts import LAYOUTS
from axial_transformers.models.prediction import Predictor
from small_models import random_given, random_model, random_values, small_config

pytest.importorskip("numba", reason="exact kernels are compiled by numba")

from axial_transformers.kernels.exact import compiled

KINDS = ("neighbours", "neighbours_and_channels")
VARIANTS = {
    "sequence": small_config((5,), 2, "columns", prediction="neighbours_and_channels"),
    "gray": small_config((3, 4), prediction="neighbours"),
    "columns": small_config((2, 3), 3, "columns", prediction="neighbours_and_channels"),
    "channels": small_config((3, 2), 2, prediction="neighbours_and_channels"),
    "frames": small_config((3, 1, 2), 2, "frames", known_channels=2, prediction="neighbours"),
    "volume": small_config((2, 3, 2), prediction="neighbours", num_values=2),
    "classes": small_config((1, 4), 3, "rows", prediction="neighbours", num_classes=3),
    "signed": small_config((3, 4), prediction="neighbours", signed_differences=True),
    "signed columns": small_config((2, 3), 3, "columns", prediction="neighbours_and_channels", signed_differences=True),
    "signed raster": small_config(
        (3, 2), 2, "raster", prediction="neighbours_and_channels", signed_differences=True, inner="lstm", inner_layers=1
    ),
    "signed channels": small_config(
        (3, 2), 3, known_channels=1, prediction="neighbours_and_channels", signed_differences=True
    ),
}
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def by_definition(x: torch.Tensor, values: int, of_channels: bool, signed: bool) -> torch.Tensor:
    """`Predictor.predictions`, site by site."""
    found = torch.zeros_like(x)
    for site in product(*map(range, x.shape)):
        *outer, row, column, channel = site if x.ndim > 3 else (site[0], 0, *site[1:])

        def value(row: int, column: int, outer=tuple(outer), channel=channel) -> int:
            pixel = (*outer, row, column) if x.ndim > 3 else (*outer, column)
            own = int(x[*pixel, channel])
            return (own - int(x[*pixel, channel - 1]) + values // 2) % values if of_channels and channel else own

        if row and column:
            w, n, nw = value(row, column - 1), value(row - 1, column), value(row - 1, column - 1)
            predicted = sorted([w, n, w + n - nw])[1]
        elif row or column:
            predicted = value(row - 1, column) if row else value(row, column - 1)
        else:
            predicted = values // 2
        if of_channels and channel:
            predicted += int(x[*site[:-1], channel - 1]) - values // 2
        found[site] = min(max(predicted, 0), values - 1) if signed else predicted % values
    return found


@pytest.mark.parametrize("shape", [(2, 7, 1), (1, 1, 6, 2), (2, 5, 1, 3), (2, 3, 4, 3), (1, 2, 3, 2, 2)], ids=str)
@pytest.mark.parametrize("values", [2, 5, 256])
def test_predictions_are_those_of_the_definition(shape, values):
    x = torch.randint(values, shape, generator=torch.Generator().manual_seed(values))
    for of_channels, signed in product((False, True), repeat=2):
        predictor = Predictor(values, of_channels, signed)
        found = predictor.predictions(x)
        assert torch.equal(found, by_definition(x, values, of_channels, signed))
        assert torch.equal((predictor.differences(x) + found) % values, x)


def test_a_difference_that_leads_beyond_the_last_value_has_the_logit_of_the_difference_minus_the_number_of_values():
    logits = torch.arange(8.0).expand(4, 8)  # the first half: 0, 1, 2, 3; the second: -4, -3, -2, -1
    assert Predictor(4, False, True).logits(logits, torch.arange(4)).tolist() == [
        [0, 1, 2, 3],
        [0, 1, 2, 7],
        [0, 1, 6, 7],
        [0, 5, 6, 7],
    ]


def test_untrained_models_find_small_differences_likelier_in_either_direction_if_differences_are_signed():
    modular, signed = (AxialTransformer(replace(VARIANTS[kind], num_values=9)) for kind in ("gray", "signed"))
    assert not modular.head[1].bias.any()
    logits = signed.head[1].bias  # of 0, 1, .., 8, -9, -8, .., -1
    assert torch.equal(logits[1:9], logits[10:].flip(0))
    assert (logits[:9].diff() < 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_depend_on_every_earlier_site_and_on_no_other(layout):
    for kind, signed in (*product(KINDS, (False,)), (KINDS[1], True)):
        model = random_model(small_config((3, 2), 2, layout, prediction=kind, signed_differences=signed))
        found = check(influence(model, random_values(model, 1)))
        assert (found.leaks, found.holes) == (0, 0)


@every_variant
def test_bits_are_those_of_the_logits_of_values(config):
    model = random_model(config)
    x, given = random_values(model, 2), random_given(model, 2)
    with torch.no_grad():
        log_p = model(x, **given).log_softmax(-1).gather(-1, x.unsqueeze(-1)).squeeze(-1)
    bits = bits_map(model, x, **given)
    generated = tuple(model.order.T)
    torch.testing.assert_close(bits[:, *generated], -log_p[:, *generated] / torch.tensor(2.0).log().double())


@every_variant
def test_samples_equal_those_of_naive_decoding(config):
    model = random_model(config)
    x, given = random_values(model, 3), random_given(model, 3)
    draw = GumbelChoice(noise=gumbel((*x.shape, config.num_values), torch.Generator().manual_seed(1)))
    expected = decode_naively(model, draw, x, Conditioning(**given))
    assert torch.equal(decode(model, draw, x, Conditioning(**given)), expected)
    assert torch.equal(sample(model, noise=draw.noise, known=x, **given).long(), expected)


@every_variant
def test_compiled_samples_and_completions_equal_the_eager_ones(config):
    model = random_model(config, torch.float32)
    x, given = random_values(model, 2), random_given(model, 2)
    noise = gumbel((*x.shape, config.num_values), torch.Generator().manual_seed(0))
    mask = torch.rand(x.shape[1:], generator=torch.Generator().manual_seed(3)) < 0.5
    some = {"noise": noise, **given}
    assert torch.equal(sample(model, known=x, compile=True, **some), sample(model, known=x, compile=False, **some))
    compiled, eager = (
        complete(model, x, mask=mask, approximate=True, top_k=3, compile=compile, **some) for compile in (True, False)
    )
    assert torch.equal(compiled, eager)


@pytest.mark.parametrize("kind", ["gray", "columns", "channels", "signed columns", "signed raster"])
def test_archives_hold_the_values(kind):
    model = random_model(VARIANTS[kind], torch.float32)
    x = random_values(model, 3)
    assert torch.equal(decompress(model, compress(model, x)).long(), x)


@pytest.mark.parametrize("kind", ["columns", "signed columns", "signed raster"])
def test_the_kernels_of_archives_and_their_reference_give_the_same_intervals(kind):
    model = random_model(VARIANTS[kind], torch.float32)
    x = random_values(model, 3)
    found, slow = (ExactNetwork(model, each).intervals(x) for each in (compiled, reference))
    assert np.array_equal(found, slow)
    bits = (PRECISION - np.log2(found[..., 1])).sum((1, 2))
    np.testing.assert_allclose(bits, bits_map(model, x).flatten(1).sum(1), rtol=1e-3)


@every_variant
def test_known_values_of_any_mask_are_kept_and_the_others_are_the_likeliest_after_them(config):
    model = random_model(config)
    known, given = random_values(model, 2), random_given(model, 2)
    mask = torch.rand((*config.shape, config.channels), generator=torch.Generator().manual_seed(3)) < 0.5
    found = complete(model, known, mask=mask, approximate=True, temperature=0, **given).long()
    assert torch.equal(found[:, mask], known[:, mask])
    logits = model(found, **given)
    missing = [tuple(site) for site in model.order.tolist() if not mask[tuple(site)]]
    assert missing
    for site in missing:
        here = (slice(None), *site)
        assert torch.equal(logits[here].argmax(-1), found[here])


def test_values_that_come_first_are_kept_without_leaving_compiled_decoding():
    model = random_model(VARIANTS["columns"], torch.float32)
    known = random_values(model, 2)
    found = complete(model, known, rows=1, temperature=0, compile=True).long()
    assert torch.equal(found[:, :1], known[:, :1])
    assert torch.equal(found, complete(model, known, rows=1, temperature=0, compile=False).long())


def test_a_mask_whose_sites_do_not_come_first_needs_leave():
    model = random_model(VARIANTS["columns"])
    with pytest.raises(ValueError, match=r"completion is not exact.*approximate=True"):
        complete(model, random_values(model, 1), channels=1)


def test_an_unknown_prediction_is_refused():
    with pytest.raises(ValueError, match="prediction must be"):
        AxialTransformerConfig(shape=(2, 2), prediction="left")
    with pytest.raises(ValueError, match="signed_differences need a prediction"):
        AxialTransformerConfig(shape=(2, 2), signed_differences=True)


def test_a_made_up_model_predicts_where_differences_are_much_shorter_than_values():
    rng = np.random.default_rng(0)
    ramps = rng.uniform(-2, 2, (2, 40, 1, 1, 1)) * np.indices((16, 16))[:, None, :, :, None]
    smooth = (ramps.sum(0) + rng.uniform(0, 256, (40, 1, 1, 1))).clip(0, 250)
    noise = rng.integers(0, 256, (40, 16, 16, 3))
    alike = smooth + rng.integers(0, 6, (40, 16, 16, 1)) + np.zeros(3)
    found = {"neighbours_and_channels": alike, "neighbours": smooth, "none": noise}
    for prediction, values in found.items():
        examples = Examples(values.astype(np.uint8), [""] * 40)
        assert recipes.custom(examples).model.prediction == prediction
    assert recipes.custom(Examples(noise[..., :1].astype(np.uint8), [""] * 40)).model.prediction == "none"


def test_a_training_step_predicts_once(monkeypatch):
    asked, predict = [], Predictor.predictions
    monkeypatch.setattr(Predictor, "predictions", lambda self, x: asked.append(x) or predict(self, x))
    model = random_model(VARIANTS["signed"])
    random_slice_loss(model, random_values(model, 2))
    assert len(asked) == 1
