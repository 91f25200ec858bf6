"""Every logit depends on every value before it in generation order, and on no other."""

from itertools import product

import pytest
import torch

from axial_transformers.models import AxialTransformer
from axial_transformers.models.layouts import LAYOUTS
from experiments.dependencies import check, influence
from tests.small_models import VARIANTS, random_model, random_values, small_config, small_model

SHAPES = [(1, 7), (7, 1), (3, 5), (5,), (2, 3, 4), (2, 2, 3, 2)]
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))


def leaks_and_holes(model: AxialTransformer, label: torch.Tensor | None = None) -> tuple[int, int]:
    found = check(influence(model, random_values(model, 1), label))
    return found.leaks, found.holes


@by_shape
@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_depend_on_every_earlier_position_and_on_no_other(shape, layout):
    if layout == "frames" and len(shape) == 1:
        pytest.skip("a sequence has no frames")
    for channels, inner, planes in product((1, 2, 3), ("attention", "lstm"), ("one_hot", "index")):
        if layout == "pixels" and channels == 1:
            continue
        if planes == "index" and (inner == "lstm" or small_config(shape, channels, layout).encoder_layers == 0):
            continue  # planes are the encoder's, whatever the inner decoder is, if there is one
        if layout == "raster" and inner == "lstm":
            continue  # over one row of all positions an LSTM's memory decays below the threshold of dependence
        model = small_model(shape, channels, layout, inner=inner, channel_planes=planes)
        assert leaks_and_holes(model) == (0, 0), (channels, inner, planes)


WHOLE = {name: config for name, config in VARIANTS.items() if config.num_values <= 300 and config.outer_layers != 0}


@pytest.mark.parametrize("config", WHOLE.values(), ids=WHOLE)
def test_no_variant_has_a_leak_or_a_hole(config):
    assert leaks_and_holes(random_model(config)) == (0, 0)


@by_shape
def test_labels_change_no_dependency_and_reach_every_position(shape):
    for channels in (1, 2):
        model = small_model(shape, channels, num_classes=3)
        label = torch.tensor([1])
        assert leaks_and_holes(model, label) == (0, 0)
        x = random_values(model, 1)
        for other in (None, torch.tensor([2])):
            assert ((model(x, label) - model(x, other)).abs().amax(dim=-1) > 1e-9).all()


@pytest.mark.parametrize(
    ("shape", "channels", "layout", "known"),
    [((3, 5), 3, "channels", 1), ((3, 5), 3, "channels", 2), ((5,), 2, "channels", 1), ((3, 2, 3), 2, "frames", 2)],
)
def test_logits_depend_on_known_positions_which_are_not_predicted(shape, channels, layout, known):
    model = small_model(shape, channels, layout, known_channels=known)
    assert leaks_and_holes(model) == (0, 0)
    x = random_values(model, 1)
    logits = model(x)
    generated = {tuple(position) for position in model.order.tolist()}
    at_generated = (slice(None), *model.order.T)
    for position in product(*map(range, x.shape[1:])):
        if position in generated:
            continue
        assert not logits[(0, *position)].any()
        changed = x.clone()
        changed[(0, *position)] = (changed[(0, *position)] + 1) % model.config.num_values
        assert ((model(changed) - logits)[at_generated].abs().amax(dim=-1) > 1e-9).all()


def test_without_an_outer_decoder_rows_are_independent():
    model = small_model((3, 4), outer_layers=0)
    depends = influence(model, random_values(model, 1)) > 1e-9
    row = model.order[:, 0]
    assert torch.equal(depends, (row[:, None] == row) & torch.ones(12, 12, dtype=torch.bool).tril(-1))


def test_check_counts_pairs():
    matrix = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    assert check(matrix)[:2] == (2, 1)
