"""A run may start from trained weights: on data of another shape or of other classes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformer
from axial_transformers.models.layouts import LAYOUTS
from axial_transformers.models.start import start_from
from axial_transformers.training import RunConfig, TrainConfig, read_run, train
from tests.conftest import Axial
from tests.small_models import random_model, small_config

SMALL = small_config((4, 6), 2, "columns", num_classes=3)


def started(before, after) -> tuple[AxialTransformer, AxialTransformer, list[str]]:
    trained, model = random_model(before, seed=1), random_model(after, seed=2)
    return trained, model, start_from(model, trained, "trained")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_model_of_equal_shape_computes_what_the_trained_one_does(layout):
    shape = (2, 3, 4) if layout == "frames" else (3, 4)
    config = small_config(shape, 2, layout)
    trained, model, changed = started(config, config)
    assert changed == []
    x = torch.randint(config.num_values, (2, *shape, 2))
    assert torch.equal(model(x), trained(x))


def test_positions_are_cut_along_shorter_axes_and_interpolated_along_longer_ones():
    trained, model, changed = started(SMALL, replace(SMALL, shape=(2, 11)))
    assert changed == ["positions along axis 1 are cut: 4 to 2", "positions along axis 2 are interpolated: 12 to 22"]
    (rows, columns), (old_rows, old_columns) = model.position.tables, trained.position.tables
    assert torch.equal(rows, old_rows[:2])
    for channel in range(2):  # channels lie side by side along the row, and do not mix
        new, old = columns[channel::2], old_columns[channel::2]
        torch.testing.assert_close(new[::2], old)
        torch.testing.assert_close(new[1::2], (old[1:] + old[:-1]) / 2)


def test_other_classes_start_anew_and_all_else_is_kept():
    trained, model, changed = started(SMALL, replace(SMALL, num_classes=5))
    assert changed == ["classes start anew: 3 before, 5 now"]
    kept = trained.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items() if "labels" not in name)
    assert started(SMALL, replace(SMALL, num_classes=None))[2] == ["classes start anew: 3 before, none now"]


def test_new_classes_begin_with_the_outputs_of_a_model_without_any():
    trained, model, changed = started(replace(SMALL, num_classes=None), SMALL)
    assert changed == ["classes start anew: none before, 3 now"]
    x = torch.randint(SMALL.num_values, (3, 4, 6, 2))
    for label in (None, torch.tensor([0, 2, 1])):
        assert torch.equal(model(x, label), trained(x))


@pytest.mark.parametrize(
    ("before", "change", "said"),
    [
        (SMALL, {"num_values": 7}, r"model\.num_values.*5.* 7"),
        (SMALL, {"layout": "rows"}, r"model\.layout"),
        (small_config((4, 6), 2, "raster"), {"shape": (3, 5)}, r"raster.*model\.shape=\(4, 6\)"),
    ],
)
def test_what_must_be_equal_is_named(before, change, said):
    with pytest.raises(ValueError, match=said):
        started(before, replace(before, **change))


def test_a_run_in_python_starts_from_a_model_and_goes_on_by_itself(tmp_path, monkeypatch):
    config = small_config((4,), 1, num_values=5)
    random_model(config, torch.float32, seed=1).save_pretrained(tmp_path / "trained")
    values = np.arange(32, dtype=np.uint8).reshape(8, 4, 1) % 5
    examples = Examples(values, [*map(str, range(8))], range=ValueRange(0, 4))
    training = TrainConfig(steps=1, batch_size=4, learning_rate=1e-12, device="cpu", precision="float32")
    out, first = tmp_path / "run", tmp_path / "trained"
    begun = RunConfig(model=config, start_from=str(first), training=training)
    with monkeypatch.context() as killed:
        killed.setattr("axial_transformers.training.fit._Run.make_steps", lambda *given: 1 / 0)  # before the first step
        with pytest.raises(ZeroDivisionError):
            train(AxialTransformer(config), examples, begun, out)
    train(AxialTransformer(config), examples, training, out, resume=True)
    trained, exported = (AxialTransformer.from_pretrained(folder) for folder in (first, out))
    for one, other in zip(trained.parameters(), exported.parameters()):
        torch.testing.assert_close(one, other)
    (first / "config.json").unlink()  # once there is a checkpoint, a resume does not read it again
    train(AxialTransformer(config), examples, replace(training, steps=2), out, resume=True)
    assert read_run(out).run.start_from == str(first)


def test_a_run_goes_on_from_its_own_weights_only(refused, trained):
    assert f"{trained} is a run, which goes on from its own weights: leave out --from digits" in refused(
        "train", trained, "--from", "digits"
    )


def test_the_command_takes_the_model_of_the_weights_and_the_shape_of_the_data(axial: Axial, tmp_path):
    random_model(replace(SMALL, num_values=256), torch.float32).save_pretrained(tmp_path / "trained")
    values = np.random.default_rng(0).integers(0, 256, (12, 3, 5, 2), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", images=values, labels=np.arange(12) % 4)
    words = ("train", tmp_path / "data.npz", "--from", tmp_path / "trained", "--out", tmp_path / "run")
    settings = ("--training.steps", 2, "--training.batch-size", 2, "--samples", 0, "--data.axes", "NHWC")
    status, _, said = axial(*words, *settings)
    assert status == 0, said
    assert "positions along axis 2 are cut: 12 to 10" in said
    record = read_run(tmp_path / "run")
    assert record.run.start_from == str(tmp_path / "trained")
    layers = record.run.model.outer_layers
    assert record.run.model == replace(SMALL, num_values=256, shape=(3, 5), num_classes=4, outer_layers=layers)
