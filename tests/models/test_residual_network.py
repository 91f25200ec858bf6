"""The axial residual network: the authors' numbers from the authors' weights, sizes, strides, errors."""

import json
from math import sqrt

import numpy as np
import pytest
import torch

from axial_transformers.importers.axial_deeplab import load_axial_deeplab
from axial_transformers.models.residual_network import AxialResNet, AxialResNetConfig
from tests.paths import DATA

PUBLISHED = json.loads((DATA / "axial_deeplab.json").read_text())
GAINS = ("bn1", "bn2", "bn_qkv", "bn_similarity", "bn_output", "downsample.1")


def normal(rng: np.random.Generator, name: str, shape: list[int]) -> torch.Tensor:
    x = rng.standard_normal(shape)
    if name.endswith("running_var"):
        x = np.abs(x) + 0.5
    elif name.endswith(tuple(f"{gain}.weight" for gain in GAINS)):
        x = 1 + 0.1 * x
    elif name.endswith(("bias", "running_mean")):
        x = 0.1 * x
    elif not name.endswith("relative"):
        x = x / sqrt(np.prod(shape[1:]))
    return torch.tensor(x, dtype=torch.float32)


def imported(case: dict) -> tuple[AxialResNet, dict[str, torch.Tensor], torch.Tensor]:
    rng = np.random.default_rng(case["seed"])
    state = {name: normal(rng, name, shape) for name, shape in case["shapes"].items()}
    images = torch.tensor(rng.standard_normal((2, 3, 224, 224)), dtype=torch.float32)
    norms = [name.removesuffix("running_var") for name in state if name.endswith("running_var")]
    state |= {f"{norm}num_batches_tracked": torch.tensor(0) for norm in norms}
    model = AxialResNet(AxialResNetConfig(blocks=tuple(case["blocks"]), width=case["width"], num_classes=10))
    load_axial_deeplab(model, {f"module.{name}": tensor for name, tensor in state.items()})
    return model, state, images.movedim(1, -1)


@pytest.mark.parametrize("name", ["tiny", pytest.param("axial26s", marks=pytest.mark.slow)])
@torch.no_grad()
def test_the_authors_weights_give_the_authors_numbers(name):
    case = PUBLISHED[name]
    model, _, images = imported(case)
    model.eval()
    torch.testing.assert_close(model(images), torch.tensor(case["eval"]), rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(model.features(images), case["features"]):
        some = ours.flatten()[:: ours.numel() // 7][:7]
        torch.testing.assert_close(some, torch.tensor(theirs), rtol=1e-4, atol=1e-4)
    model.train()
    torch.testing.assert_close(model(images), torch.tensor(case["train"]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_weights_of_other_heads_go_where_they_belong(heads):
    case = PUBLISHED["tiny"]
    rng = np.random.default_rng(0)
    state = {}
    for name, shape in case["shapes"].items():
        if "bn_similarity" in name:
            shape = [3 * heads]
        elif name.endswith("relative"):
            shape = [shape[0] * 8 // heads, shape[1]]
        state[name] = normal(rng, name, shape)
    config = AxialResNetConfig(blocks=tuple(case["blocks"]), width=case["width"], num_classes=10, heads=heads)
    model = AxialResNet(config)
    for name in [name for name in state if name.endswith("running_var")]:
        state[name.replace("running_var", "num_batches_tracked")] = torch.tensor(0)
    load_axial_deeplab(model, state)
    ours = model.state_dict()
    terms = [ours[f"stages.0.0.height.normalise.of_terms.{term}.weight"] for term in range(3)]
    assert torch.equal(torch.cat(terms), state["layer1.0.hight_block.bn_similarity.weight"])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("fc.weight"), "nothing for .*head.weight"),
        (lambda state: state.update(extra=torch.zeros(1)), "nowhere to put .*extra"),
        (lambda state: state.update({"fc.bias": torch.zeros(3)}), "head.bias must be"),
        (lambda state: state.pop("layer1.0.hight_block.relative"), "nothing for .*query_table"),
        (lambda state: state["fc.bias"][3:4].fill_(torch.nan), "head.bias holds NaN"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(spoil, message):
    model, state, _ = imported(PUBLISHED["tiny"])
    spoil(state)
    with pytest.raises(ValueError, match=message):
        load_axial_deeplab(model, state)


SMALL = {"blocks": (1, 1, 1, 1), "width": 8, "channels": 1, "num_classes": 3}


@pytest.mark.parametrize(
    ("shape", "stride", "span"),
    [((64, 64), 4, None), ((45, 37), 4, None), ((28, 28), 2, None), ((33, 70), 4, 5)],
    ids=str,
)
def test_features_come_at_strides_from_that_of_the_stem_for_any_size_up_to_the_trained_one(shape, stride, span):
    """With a span, for larger ones, too."""
    model = AxialResNet(AxialResNetConfig(shape=(64, 64), stem_stride=stride, span=span, **SMALL)).eval()
    features = model.features(torch.randn(1, *shape, 1))
    for level, feature in enumerate(features):
        assert feature.shape[1:3] == tuple(-(-size // (stride << level)) for size in shape)
    assert [feature.shape[-1] for feature in features] == [32, 64, 128, 256]
    if span is None:
        with pytest.raises(ValueError, match="size"):
            model(torch.randn(1, 64, 72, 1))


def test_published_networks_have_as_many_parameters_as_the_authors_networks():
    shallow, deep = (1, 2, 4, 1), (3, 4, 6, 3)
    for blocks, width, count in ((shallow, 32, 5944936), (deep, 64, 43973480)):
        with torch.device("meta"):
            network = AxialResNet(AxialResNetConfig(blocks=blocks, width=width))
        assert sum(parameter.numel() for parameter in network.parameters()) == count


@pytest.mark.parametrize(
    ("options", "message"),
    [({"stem_stride": 3}, "stem_stride"), ({"width": 12}, "multiple"), ({"blocks": (1, 0, 1, 1)}, "from 1 on")],
)
def test_what_cannot_be_is_refused_with_the_reason(options, message):
    with pytest.raises(ValueError, match=message):
        AxialResNetConfig(**options)
