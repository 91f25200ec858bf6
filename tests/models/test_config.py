"""Fields that are not given are chosen by the others, and what is stored of them does not change."""

import dataclasses
import json
from itertools import combinations, product

import numpy as np
import pytest
import torch

from axial_transformers.compression import fingerprint
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.layouts import LAYOUTS
from axial_transformers.recipes.custom import ModelOfData
from axial_transformers.storage.typed_json import from_json, to_json
from axial_transformers.training import TrainConfig
from tests.small_models import CENTRED, PAIRWISE, random_model, random_values, small_config

SMALL = {"dim": 8, "heads": 2, "num_values": 5}


@pytest.mark.parametrize(
    ("fields", "encoder", "outer"),
    [
        ({"shape": (4,)}, 0, ()),
        ({"shape": (4, 4)}, 0, (4,)),
        ({"shape": (4, 4, 4)}, 0, (6, 4)),
        ({"shape": (2, 3, 2, 2)}, 0, (8, 6, 4)),
        ({"shape": (4, 4), "channels": 3}, 2, (4,)),
        ({"shape": (4, 4), "channels": 3, "layout": "rows"}, 0, (4,)),
        ({"shape": (4, 4), "channels": 3, "layout": "axis"}, 0, (6, 4)),
        ({"shape": (2, 3, 4), "layout": "frames"}, 2, (4,)),
    ],
)
def test_any_shape_has_layers_by_default_that_fit_it(fields, encoder, outer):
    config = AxialTransformerConfig(**fields, **SMALL)
    assert (config.layers_of_encoder, config.layers_of_outer_decoders) == (encoder, outer)
    assert None not in (to_json(config)["encoder_layers"], to_json(config)["outer_layers"])
    assert from_json(AxialTransformerConfig, to_json(config), "here") == config
    AxialTransformer(config)


def test_the_largest_value_is_one_to_the_channel_encoder():
    config = small_config((3, 5), 3, num_values=17)
    new, old = random_model(config), random_model(dataclasses.replace(config, input_divisor=255))
    x, channel = random_values(new, 4), torch.tensor([0, 1, 2, 1])
    with torch.no_grad():
        torch.testing.assert_close(new.encoder(x, channel, 0.0), old.encoder(x / 16 * 255, channel, 0.0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rotary": 1.0}, r"model\.rotary"),
        ({"rotary": float("nan")}, r"model\.rotary .*nan"),
        ({"rotary": 9.0, "dim": 6}, "even"),
        ({"input_divisor": 0}, r"model\.input_divisor"),
        ({"gated_convolutions": 9}, r"model\.gated_convolutions"),
        ({"shape": (3, 0)}, r"model\.shape .*\(3, 0\)"),
        ({"shape": (1,) * 9}, r"model\.shape .*axes"),
        ({"heads": 3}, "multiple"),
        ({"lowest": 1 << 31}, r"model\.lowest"),
        ({"mlp_ratio": 0.1}, r"model\.mlp_ratio"),
        ({"grid": (0.0, 1.0)}, r"model\.grid"),
        ({"inner": "gru"}, r"model\.inner .*gru"),
        ({"inner": "lstm"}, "lstm"),
        ({"centred": True}, r"model\.centred"),
        ({"known_channels": 1}, r"model\.known_channels"),
        ({"inner_layers": 1024}, "1028"),
        ({"channels": 3, "encoder_layers": 0}, "channel encoder"),
        ({"shape": (4, 4, 4), "outer_layers": 4}, r"outer_layers\[0\]"),
        (
            {"shape": (4,), "layout": "frames"},
            r"model\.layout",
        ),
        ({"shape": (1,) * 8, "outer_layers": 0, "inner_layers": 1, "gated_convolutions": 1}, "gated_convolutions"),
        ({"channels": 3, "layout": "pixels"}, r"values=ordinal or model\.layout=columns"),
        ({"channels": 1, "layout": "pixels", "values": "ordinal"}, r"model\.layout=columns"),
        ({"channels": 9, "layout": "pixels", "values": "ordinal"}, r"model\.layout=columns"),
        ({"channels": 3, "layout": "pixels", "values": "ordinal", "known_channels": 1}, r"model\.layout=channels"),
        ({"channels": 3, "layout": "pixels", "values": "ordinal", "encoder_layers": 2}, r"model\.encoder_layers"),
    ],
)
def test_fields_out_of_range_and_fields_that_contradict_each_other_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        AxialTransformerConfig(**{"shape": (3, 2)} | SMALL | fields)


@pytest.mark.parametrize(
    ("fields", "given"),
    [
        ({"shape": (4, 5)}, {"encoder_layers": 0, "outer_layers": 4}),
        ({"shape": (4, 5), "channels": 2}, {"encoder_layers": 2, "dropout": 0.0}),
        ({"shape": (2, 3, 4)}, {"outer_layers": (6, 4), "rotary": None}),
    ],
)
def test_fingerprints_do_not_depend_on_how_the_layers_were_given(fields, given):
    others = {"dropout": 0.5}, {"rotary": 9.0}
    plain, explicit, *different = (
        fingerprint(random_model(AxialTransformerConfig(**fields, **SMALL | more))) for more in ({}, given, *others)
    )
    assert plain == explicit
    assert plain not in different


def test_a_description_tells_models_apart():
    """Settings that change the computation, one by one."""
    changes = (
        {}, {"layout": "columns"}, {"values": "ordinal"}, CENTRED, CENTRED | {"activity": True},
        {"gated_convolutions": 1}, {"rotary": 9.0}, {"inner": "lstm"}, {"num_classes": 3}, {"encoder_layers": 4},
    )  # fmt: skip
    told = [small_config((3, 2), 2, **fields).describe() for fields in changes]
    assert all(first != second for first, second in combinations(told, 2))


def options_of(config: AxialTransformerConfig) -> list:
    some = config.gated_convolutions, config.rotary, config.num_classes, config.known_channels
    moved, values = config.layout != "channels", (config.values, config.centred)
    return [len(config.shape), config.channels, moved, values, config.inner, *map(bool, some)]


def test_some_variants_have_every_two_options_together():
    columns = [*zip(*map(options_of, PAIRWISE.values()))]
    for first, second in combinations(columns, 2):
        assert {*zip(first, second)} == {*product(first, second)}
    assert {config.layout for config in PAIRWISE.values()} == LAYOUTS.keys()
    assert {*columns[0]} == {1, 2, 3}


def test_numbers_of_numpy_become_those_of_python():
    config = AxialTransformerConfig(shape=[np.int64(4), 3], num_values=np.int64(17), dim=np.int32(8), heads=2)
    assert config == AxialTransformerConfig(shape=(4, 3), num_values=17, dim=8, heads=2)
    json.dumps(to_json(config))
    for shape in (torch.Size((4, 3)), np.array([4, 3])):
        assert AxialTransformerConfig(shape=shape, dim=8).shape == (4, 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"heads": True},
        {"lowest": 0.5},
        {"num_values": 17.0},
        {"shape": (4, "3")},
        {"shape": 4},
        {"dim": None},
        {"dim": np.array([8])},
    ],
)
def test_settings_of_another_type_are_refused(fields):
    with pytest.raises(ValueError, match=rf"model\.{next(iter(fields))}"):
        AxialTransformerConfig(**{"shape": (4, 4), "dim": 8, "heads": 2, **fields})


def test_a_setting_that_a_subclass_states_again_keeps_its_bounds():
    with pytest.raises(ValueError, match=r"model\.heads must be at least 1"):
        ModelOfData(heads=0)
    with pytest.raises(ValueError, match=r"training\.steps is 10\.0, not int"):
        TrainConfig(steps=1e1)
