"""The measurements of table 1 and of complexity count what they say."""

import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import complexity
import table1
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.planning.operations import decode_operations


def build(name, n, depth, local=4):
    with table1.META:
        return table1.build(name, n, local, depth)


@pytest.mark.parametrize("name", table1.PAPER)
@pytest.mark.parametrize("depth", [1, 4])
def test_every_row_has_as_many_layers_as_the_depth(name, depth):
    model = build(name, 8, depth)
    assert model.config.layers == depth == sum(isinstance(part, table1.LineAttention) for part in model.modules())


def test_receptive_fields_grow_with_the_depth():
    image = [table1.reach("Image Transformer", 8, 4, depth) for depth in (1, 2, 3)]
    assert image == pytest.approx([0.635, 0.881, 1], abs=1e-3)
    assert [table1.reach("Axial Transformer", 8, 4, depth) for depth in (2, 3)] == pytest.approx([1 / 9, 1])


@pytest.mark.parametrize("name", table1.PAPER)
def test_decoding_with_caches_takes_one_forward_pass_without_masked_pairs(name):
    model = build(name, 4, 3 if name == "Axial Transformer" else 2, local=2)
    attention, everything = table1.operations(model)
    found = table1.decoding(model)
    assert found["cached"] == everything - attention + table1.needed(model)
    assert found["naive"] == 16 * everything
    inner = model.config if name != "Axial Transformer" else replace(model.config, outer_layers=0)
    if type(inner) is AxialTransformerConfig:
        assert found["sequential"] == decode_operations(inner)
    else:
        assert found["sequential"] == found["cached"]


def test_semi_parallel_sampling_takes_the_outer_decoder_once_a_row_and_the_inner_one_once_a_site():
    model, n = build("Axial Transformer", 4, 4), 4
    inside, everything = table1.sequential(model), table1.operations(model)[1]
    head = 2 * n * n * model.config.dim * model.config.num_values
    assert table1.semi_parallel(model) == n * (everything - inside) + n * (inside - head) + head


def test_operators_of_another_origin_are_found():
    axial = build("Axial Transformer", 4, 3)
    assert not own(table1.operators(axial, lambda: table1.logits(axial)))

    @torch.library.custom_op("for_a_test::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    weight = torch.nn.Linear(2, 2)
    with_kernel = table1.operators(weight, lambda: weight(doubled(torch.zeros(1, 2))))
    assert own(with_kernel) == {"for_a_test::doubled"}


def own(names):
    return {name for name in names if name.split("::")[0] not in table1.TORCH}


@pytest.mark.parametrize("sides", [(5,), (3, 4), (2, 3, 4), (3, 2, 2, 3)])
def test_counted_products_are_two_for_each_site_and_each_of_its_keys(sides):
    keys = {"full": prod(sides), "axial": sum(sides)}
    for kind, number in keys.items():
        assert complexity.products(kind, sides) == prod(sides) * 2 * complexity.DIM * number
