"""Integers of any range are trained on, evaluated, sampled, completed and scored; or one line says why not."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from axial_transformers.models import AxialTransformer
from tests.conftest import TINY, Axial

pytestmark = pytest.mark.usefixtures("home")

STEPS = ["--training.steps", "2", "--training.batch-size", "2", "--training.sample-every", "2", "--samples", "2"]


def noise(low: int, high: int, *shape: int, dtype: str = "int64") -> np.ndarray:
    """Integers low..high, of which each example has the first and the last."""
    values = np.random.default_rng(0).integers(low, high + 1, (12, *shape))
    values.reshape(12, -1)[:, :2] = low, high
    return values.astype(dtype)


DATA = {
    "negative, told": (noise(-1024, 3071, 4, 4, dtype="int16"), (-1024, 5000), ["--data.num-values", "5000"]),
    "big-endian bytes": (noise(0, 255, 4, 4, dtype=">u2"), (0, 256), []),
    "all of 16 bits": (noise(0, 65535, 2, 2, dtype="uint16"), (0, 65536), []),
    "300 channels": (noise(0, 3, 2, 1, 300, dtype="int16"), (0, 4), ["--data.axes", "NHWC"]),
    "one pixel": (noise(0, 255, 1, 2, dtype="uint8")[:, :, :1], (0, 256), []),
    "constant": (np.full((12, 3, 3), -7, np.int8), (-7, 2), []),
    "bool": (noise(0, 1, 4, 4, dtype="bool"), (0, 2), []),
    "DNA": (noise(0, 3, 8, dtype="uint8"), (0, 4), []),
}


QUICK = ("negative, told", "all of 16 bits", "300 channels", "one pixel", "constant")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in DATA])
def test_every_command_takes_integers_of_any_range(axial: Axial, name):
    values, (lowest, number), options = DATA[name]
    np.savez("data.npz", values)
    trained = axial("train", "data.npz", *options, *TINY, *STEPS)
    assert trained.status == 0, trained.err
    assert f"values {lowest}..{lowest + number - 1}" in trained.err + trained.out
    config = AxialTransformer.from_pretrained("runs/data").config
    assert (config.lowest, config.num_values) == (lowest, number)
    assert f"values {lowest}..{lowest + number - 1}" in axial("inspect", "runs/data").out
    found = json.loads(axial("evaluate", "runs/data", "data.npz", "--json").out)
    assert 0 < found["bits_per_dim"] < 2 * np.log2(number) + 8
    for words in (
        ["sample", "runs/data", "--count", "2", "--out", "s.npz"],
        ["sample", "runs/data", "--count", "2", "--out", "s.png"],
        [
            "complete",
            "runs/data",
            "data.npz",
            "--split",
            "all",
            "--rows",
            "1",
            "--count",
            "1",
            "--examples",
            "2",
            "--out",
            "c.npz",
        ],
        ["score", "runs/data", "data.npz", "--out", "s.csv", "--heat-maps", "maps"],
    ):
        done = axial(*words)
        assert done.status == 0, done.err
    (sampled,), (completed,) = (list(np.load(file).values()) for file in ("s.npz", "c.npz"))
    for some in (sampled, completed):
        assert lowest <= some.min() <= some.max() < lowest + number
        assert some.dtype.itemsize == (1 if lowest >= 0 and lowest + number <= 256 else 2)
    assert np.array_equal(completed.reshape(2, -1)[:, 0], values[[0, 6]].reshape(2, -1)[:, 0])
    if number <= 256 and name != "300 channels":  # whose tables take long to round
        assert axial("compress", "runs/data", "data.npz", "a.axl", "--force").status == 0
        assert axial("decompress", "a.axl", "back.npz").status == 0
        (back,) = np.load("back.npz").values()
        assert back.dtype == values.dtype
        assert np.array_equal(back, values)


def test_a_model_of_own_data_knows_the_values_of_all_parts(axial: Axial):
    values = noise(-5, 9, 4, 4)
    values[-1] = -6
    np.savez("data.npz", values)
    status, _, err = axial("train", "data.npz", *TINY, *STEPS, "--model.num-values", "15")
    assert status == 2
    assert "values -5..9 of data.npz, but the model knows -6..8: give " in err
    assert axial("train", "data.npz", *TINY, *STEPS).status == 0
    config = json.loads(Path("runs/data/config.json").read_text())
    assert (config["lowest"], config["num_values"]) == (-6, 16)


def test_floats_are_rounded_by_the_setting_that_the_line_says(axial: Axial):
    values = np.random.default_rng(0).normal(size=(12, 3, 3)).astype(np.float32)
    np.save("some data.npy", values)
    said = axial("train", "some data.npy", *TINY, *STEPS).err
    step, offset, loss = re.search(r"--data.grid (\S+) (\S+) rounds them, by at most (\S+), ", said).groups()
    done = axial("train", "some data.npy", *TINY, *STEPS, "--data.grid", step, offset)
    assert done.status == 0, done.err
    (found,) = {float(each) for each in re.findall(r"as --data.grid says, by at most (\S+)", done.err)}
    assert found <= float(loss)


@pytest.mark.parametrize("titles", ["", "age;weight;a;b;c\n"])
def test_a_table_is_trained_on_and_comes_back_from_an_archive(axial: Axial, titles):
    rows = ["1;2,5;3;4;5", "2;3,5;3;4;6", "3;2,0;3;1;5"] * 9
    Path("some.csv").write_text(titles + "\n".join(rows) + "\n")
    assert axial("train", "some.csv", *TINY, *STEPS, "--out", "run").status == 0
    assert axial("compress", "run", "some.csv", "a.axl", "--force").status == 0
    assert axial("decompress", "a.axl", "back.csv").status == 0
    expected = Path("some.csv").read_text().replace(",", ".").replace(";", ",")
    assert Path("back.csv").read_text() == expected
