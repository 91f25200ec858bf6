"""Models of differences from a prediction: an exact bijection of the values, with the likelihood of the values.

Sampling, likelihoods and archives are tested of them as of all `small_models.VARIANTS`.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from axial_transformers import complete, recipes
from axial_transformers.data import Examples
from axial_transformers.likelihood import random_slice_loss
from axial_transformers.likelihood.dependencies import check, influence
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.layouts import LAYOUTS
from axial_transformers.models.prediction import Predictor
from tests.small_models import VARIANTS, random_given, random_model, random_values, small_config

KINDS = ("neighbours", "neighbours_and_channels")
PREDICTED = {name: config for name, config in VARIANTS.items() if config.prediction != "none"}
every_predicted = pytest.mark.parametrize("config", PREDICTED.values(), ids=PREDICTED)


def by_definition(x: torch.Tensor, values: int, of_channels: bool, signed: bool) -> torch.Tensor:
    """`Predictor.predictions`, position by position."""
    found = torch.zeros_like(x)
    for position in product(*map(range, x.shape)):
        *outer, row, column, channel = position if x.ndim > 3 else (position[0], 0, *position[1:])

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
            predicted += int(x[*position[:-1], channel - 1]) - values // 2
        found[position] = min(max(predicted, 0), values - 1) if signed else predicted % values
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
    modular, signed = (AxialTransformer(replace(VARIANTS[kind], num_values=9)) for kind in ("predicted", "signed"))
    assert not modular.head[1].bias.any()
    logits = signed.head[1].bias  # of 0, 1, .., 8, -9, -8, .., -1
    assert torch.equal(logits[1:9], logits[10:].flip(0))
    assert (logits[:9].diff() < 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_depend_on_every_earlier_position_and_on_no_other(layout):
    for kind, signed in (*product(KINDS, (False,)), (KINDS[1], True)):
        model = random_model(small_config((3, 2), 2, layout, prediction=kind, signed_differences=signed))
        found = check(influence(model, random_values(model, 1)))
        assert (found.leaks, found.holes) == (0, 0)


@every_predicted
def test_known_values_of_any_mask_are_kept_and_the_others_are_the_likeliest_after_them(config):
    model = random_model(config)
    known, given = random_values(model, 2), random_given(model, 2)
    mask = torch.rand((*config.shape, config.channels), generator=torch.Generator().manual_seed(3)) < 0.5
    found = complete(model, known, mask=mask, approximate=True, temperature=0, **given).long()
    assert torch.equal(found[:, mask], known[:, mask])
    logits = model(found, **given)
    missing = [tuple(position) for position in model.order.tolist() if not mask[tuple(position)]]
    assert missing
    for position in missing:
        here = (slice(None), *position)
        assert torch.equal(logits[here].argmax(-1), found[here])


def test_a_mask_whose_positions_do_not_come_first_needs_leave():
    model = random_model(VARIANTS["predicted columns"])
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
