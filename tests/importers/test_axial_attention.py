"""Layers of the package axial_attention: its numbers from its weights, and errors."""

import pytest
import torch
from safetensors.torch import load_file

from axial_transformers.importers import from_axial_attention
from axial_transformers.layers.attention import ChannelsFirst
from tests.paths import DATA

STORED = load_file(DATA / "axial_attention_0_6_1.safetensors")
EXACT = {"rtol": 0, "atol": 1e-5}


def state(name):
    return {key.removeprefix(f"{name}/"): tensor for key, tensor in STORED.items() if key.startswith(f"{name}/")}


def test_its_weights_give_its_numbers():
    summed = from_axial_attention(state("sum"), heads=2)
    torch.testing.assert_close(summed(STORED["sum.x"]), STORED["sum.y"], **EXACT)
    wrapped = {f"module.{name}": tensor for name, tensor in state("sequence").items()}
    sequence = ChannelsFirst(from_axial_attention(wrapped, heads=3, combine="sequence"))
    torch.testing.assert_close(sequence(STORED["sequence.x"]), STORED["sequence.y"], **EXACT)


def test_a_layer_of_the_installed_package_gives_its_numbers():
    package = pytest.importorskip("axial_attention", reason="needs the extra benchmarks")
    theirs, x = package.AxialAttention(16, num_dimensions=2), torch.randn(2, 5, 3, 16)
    torch.testing.assert_close(from_axial_attention(theirs.state_dict())(x), theirs(x), **EXACT)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.clear(), "missing .*0.fn.to_kv.weight"),
        (lambda state: state.pop("axial_attentions.1.fn.to_out.bias"), "missing .*1.fn.to_out.bias"),
        (lambda state: state.update(extra=torch.zeros(1)), "left over .*extra"),
        (lambda state: state.update({"axial_attentions.1.fn.to_q.weight": torch.zeros(3)}), r"to_q\.weight"),
        (lambda state: state.update({"axial_attentions.0.fn.to_out.weight": torch.zeros(3)}), "matrix"),
        (lambda state: state["axial_attentions.0.fn.to_out.bias"].fill_(torch.nan), r"to_out\.bias .*NaN"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(spoil, message):
    spoiled = {name: tensor.clone() for name, tensor in state("sum").items()}
    spoil(spoiled)
    with pytest.raises(ValueError, match=message):
        from_axial_attention(spoiled, heads=2)
    with pytest.raises(ValueError, match="heads 3"):
        from_axial_attention(state("sum"), heads=3)
