"""Checkpoints of the authors' code become our models: every variable in its place, or an error that says which."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from axial_transformers.importers.official import VariablesError, import_official, import_official_to
from axial_transformers.importers.official_variables import variables
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from tests.small_models import random_model, small_config
from tests.tensor_bundle_writer import write_bundle

Variables = dict[str, np.ndarray]

SIZES = {"num_values": 11, "outer_layers": 2, "inner_layers": 1, "mlp_ratio": 0.5}
RGB = small_config((3, 5), 3, **SIZES | {"outer_layers": 4, "inner_layers": 3, "mlp_ratio": 1.5}, input_divisor=255)
SINGLE = small_config((12, 5), heads=4, **SIZES)
ROWS = small_config((4, 5), 3, "rows", heads=4, **SIZES)
SCOPES = [(RGB, "ar_decoder/transformer2d/"), (SINGLE, "model/"), (ROWS, "model/transformer2d/")]


def raw(model: AxialTransformer, scope: str) -> Variables:
    return {name: view.numpy() for name, view in variables(model.state_dict(), scope).items()}


def as_trained(model: AxialTransformer, averaged: AxialTransformer, scope: str) -> Variables:
    """With what training adds: averages, Adam's slots, counters."""
    both = raw(model, scope)
    both |= {f"{name}/ExponentialMovingAverage": values for name, values in raw(averaged, scope).items()}
    both |= {f"{name}/{slot}": values * 0 for name, values in raw(model, scope).items() for slot in ("Adam", "Adam_1")}
    powers = {f"beta{i}_power": np.array(0.9, np.float32) for i in (1, 2)}
    return both | powers | {"global_step": np.array(1234)}


def write(folder: Path, values: Variables) -> Path:
    folder.mkdir(exist_ok=True)
    write_bundle(folder / "model.ckpt", sorted(values.items()))
    return folder


def assert_same_weights(a: AxialTransformer, b: AxialTransformer) -> None:
    torch.testing.assert_close(a.state_dict(), b.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("config", "scope"), SCOPES)
def test_weights_and_configuration_survive(tmp_path: Path, config: AxialTransformerConfig, scope: str) -> None:
    model = random_model(config, torch.float32)
    imported = import_official(write(tmp_path, raw(model, scope)), raw=True, heads=config.heads, verify=True)
    assert imported.config == config
    assert not imported.training
    assert all(parameter.requires_grad for parameter in imported.parameters())
    assert_same_weights(imported, model)


def test_averages_are_taken_unless_the_raw_weights_are_asked_for(tmp_path: Path) -> None:
    model, averaged = (random_model(RGB, torch.float32, seed) for seed in (0, 1))
    write(tmp_path, as_trained(model, averaged, "ar_decoder/transformer2d/"))
    assert_same_weights(import_official(tmp_path, heads=2), averaged)
    assert_same_weights(import_official(tmp_path, heads=2, raw=True), model)


def test_a_checkpoint_without_averages_says_how_to_import_it(tmp_path: Path) -> None:
    with pytest.raises(VariablesError, match="raw=True"):
        import_official(write(tmp_path, raw(random_model(SINGLE, torch.float32), "model/")), heads=4)


def test_channels_as_rows_are_one_channel_of_more_rows(tmp_path: Path) -> None:
    model = random_model(SINGLE, torch.float32)
    write(tmp_path, raw(model, "model/"))
    stacked = import_official(tmp_path, raw=True, heads=4, channels=3)
    assert stacked.config == ROWS
    x = torch.randint(11, (2, 4, 5, 3), generator=torch.Generator().manual_seed(2))
    rows = x.movedim(-1, 1).reshape(2, 12, 5, 1)
    cond = torch.randn(2, 4, 5, 8, generator=torch.Generator().manual_seed(3))
    logits = model(rows, cond=cond.repeat(1, 3, 1, 1)).reshape(2, 3, 4, 5, 11).movedim(1, -2)
    torch.testing.assert_close(stacked(x, cond=cond), logits, rtol=0, atol=1e-5)


def drop(name: str) -> Callable[[Variables], None]:
    return lambda values: values.__delitem__(name)


def put(name: str, values: np.ndarray) -> Callable[[Variables], None]:
    return lambda all_values: all_values.__setitem__(name, values)


NORM = "ar_decoder/transformer2d/final_ln/g"
ZEROS = np.zeros((3,), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop(f"{NORM}/ExponentialMovingAverage"), f"missing: {NORM}/ExponentialMovingAverage$"),
        (drop("ar_decoder/exterior_input_conv/w/ExponentialMovingAverage"), "exterior_input_conv/w"),
        (drop("ar_decoder/transformer2d/embs/ExponentialMovingAverage"), "SCOPE/embs"),
        (put("ar_decoder/label_embs", ZEROS), "unknown: ar_decoder/label_embs$"),
        (put("ar_decoder/label_embs/ExponentialMovingAverage", ZEROS), "unknown: ar_decoder/label_embs/Exp"),
        (put("other/embs/ExponentialMovingAverage", ZEROS), "SCOPE/embs"),
        (put(f"{NORM}/ExponentialMovingAverage", ZEROS), r"g/Exp\w+ is float32 \[3\], not float32 \[8\]"),
        (put(f"{NORM}/ExponentialMovingAverage", np.zeros(8, np.int32)), r"is int32 \[8\], not float32 \[8\]"),
        (put("ar_decoder/transformer2d/embs/ExponentialMovingAverage", np.zeros((4, 0), np.float32)), "mlp_ratio|dim"),
        (put("ar_decoder/transformer2d/embs/ExponentialMovingAverage", ZEROS), "embs .*2 axes"),
    ],
)
def test_every_difference_is_named(tmp_path: Path, change: Callable[[Variables], None], message: str) -> None:
    model = random_model(RGB, torch.float32)
    values = as_trained(model, model, "ar_decoder/transformer2d/")
    change(values)
    with pytest.raises(VariablesError, match=message) as error:
        import_official(write(tmp_path, values), heads=2)
    assert str(tmp_path / "model.ckpt.index") in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_of_many_layers_is_not_built_for_a_few_variables(tmp_path: Path) -> None:
    values = raw(random_model(SINGLE, torch.float32), "model/")
    values |= {f"model/outer_row_{i}/x": np.zeros(0, np.float32) for i in range(500)}
    write(tmp_path, values)
    begun = time.process_time()
    with pytest.raises(VariablesError, match="16016"):
        import_official(tmp_path, raw=True, heads=4)
    assert time.process_time() - begun < 0.3


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path) -> None:
    values = raw(random_model(SINGLE, torch.float32), "model/")
    values["model/embs"] = np.where(values["model/embs"] == values["model/embs"].max(), -np.inf, values["model/embs"])
    with pytest.raises(ValueError, match=r"model/embs .*NaN"):
        import_official(write(tmp_path, values), raw=True, heads=4)


@pytest.mark.parametrize("value", [np.array(np.inf, np.float32), np.array([3, 4]), np.array(-1)])
def test_a_global_step_that_is_none_is_refused_and_a_failed_import_leaves_no_folder(
    tmp_path: Path, value: np.ndarray
) -> None:
    write(tmp_path / "in", raw(random_model(SINGLE, torch.float32), "model/") | {"global_step": value})
    with pytest.raises(VariablesError, match="global_step"):
        import_official_to(tmp_path / "in", tmp_path / "out", raw=True, heads=4)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    with pytest.raises(FileExistsError):
        import_official_to(tmp_path / "in", tmp_path / "in", raw=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "heads 3"),
        ({"heads": 2, "channels": 5}, "5 channels"),
        ({"heads": 2, "channels": 0}, "channels"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(tmp_path: Path, options: dict[str, int], message: str) -> None:
    values = raw(random_model(SINGLE, torch.float32), "model/")
    with pytest.raises(VariablesError, match=re.escape(message)):
        import_official(write(tmp_path, values), raw=True, **options)  # type: ignore[arg-type]
    values = raw(random_model(RGB, torch.float32), "ar_decoder/transformer2d/")
    with pytest.raises(VariablesError, match="3 channels"):
        import_official(write(tmp_path, values), raw=True, heads=2, channels=1)


def test_sizes_that_no_data_backs_are_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    values = raw(random_model(SINGLE, torch.float32), "model/")
    values["model/embs"] = np.zeros((2, 1 << 19), np.float32)
    with pytest.raises(VariablesError, match="different: "):
        import_official(write(tmp_path, values), raw=True)


def test_the_model_folder_is_an_ordinary_one_with_a_card(tmp_path: Path) -> None:
    model = random_model(RGB, torch.float32)
    write(tmp_path / "tensorflow", as_trained(model, model, "ar_decoder/transformer2d/"))
    import_official_to(tmp_path / "tensorflow", tmp_path / "model", heads=2)
    assert_same_weights(AxialTransformer.from_pretrained(tmp_path / "model"), model)
    card = (tmp_path / "model" / "README.md").read_text()
    for said in ("Apache License 2.0", "1912.12180", "exponential moving average", "1,234", "model.ckpt.index"):
        assert said in card
