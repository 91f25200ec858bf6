"""Columns of a table are found by their titles, wherever a model reads one."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from axial_transformers import data
from axial_transformers.models import AxialTransformer
from axial_transformers.training import RunConfig, TrainConfig, read_run, train
from tests.conftest import TINY, Axial, Refused
from tests.small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")

TITLES = ("age", "height", "weight")
STEPS = ["--training.steps", "2", "--training.batch-size", "2", "--samples", "0", "--data.num-values", "9"]


def table(name: str, titles: Sequence[str] = TITLES, count: int = 12, header: bool = True) -> Path:
    """Write the same numbers for each title, whatever the order."""
    numbers = dict(zip(TITLES, np.random.default_rng(0).integers(0, 9, (3, count)), strict=True))
    columns = [numbers.get(title, np.zeros(count, int)) for title in titles]
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    Path(name).write_text("\n".join([",".join(titles)] * header + lines))
    return Path(name)


@pytest.fixture
def model(home: Path) -> AxialTransformer:
    """The model of the run `run`, on a table with titles."""
    options = data.DataConfig(num_values=9)
    examples = data.load(table("own.csv"), options, "all")
    model = random_model(small_config((3,), num_values=9)).float()
    training = TrainConfig(steps=1, batch_size=2, device="cpu", precision="float32")
    run = RunConfig(source="own.csv", data=options, model=model.config, training=training)
    train(model, examples, run, "run")
    assert read_run("run").facts.columns == TITLES
    return model


@pytest.mark.usefixtures("model")
def test_columns_in_another_order_cost_the_same_bits(axial: Axial):
    found = []
    for titles in (TITLES, ("weight", "age", "height")):
        source = table("other.csv", titles)
        assert axial("score", "run", source, "--out", "s.json", "--heat-maps", f"maps{titles[0]}").status == 0
        scores = [(row["name"], row["bits_per_dim"]) for row in json.loads(Path("s.json").read_text())["scores"]]
        words = ["--frames", "1", "--count", "2", "--out", f"{titles[0]}.npy"]
        assert axial("complete", "run", source, *words).status == 0
        evaluated = json.loads(axial("evaluate", "run", source, "--json").out)
        found.append(
            (scores, evaluated["bits_per_dim"], evaluated["fingerprint"], np.load(f"{titles[0]}.npy").tolist())
        )
    assert found[0] == found[1]


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("titles", [("age", "height", "width"), ("age", "age", "height")])
def test_other_titles_are_refused_with_both_lists(refused: Refused, titles):
    source = table("other.csv", titles)
    for command in ("evaluate", "score"):
        said = refused(command, "run", source)
        assert f"other.csv has the columns {', '.join(titles)}, not age, height, weight" in said


@pytest.mark.usefixtures("model")
def test_rows_without_titles_are_taken_in_the_order_of_the_model_and_that_is_said(axial: Axial):
    np.save("rows.npy", data.load("own.csv", data.DataConfig(num_values=9), "all").values[..., 0])
    expected = json.loads(axial("evaluate", "run", "own.csv", "--split", "all", "--json").out)["bits_per_dim"]
    for source in (table("bare.csv", header=False), Path("rows.npy")):
        done = axial("evaluate", "run", source, "--json")
        assert json.loads(done.out)["bits_per_dim"] == expected
        assert f"{source} has no titles: its columns are taken as age, height, weight" in done.err


def test_an_archive_by_a_model_of_other_columns_is_refused_with_both_lists(axial: Axial, refused: Refused, model):
    source = table("other.csv", ("weight", "age", "height"), 400)
    said = refused("compress", "run", source, "other.axl", "--force")
    assert "other.csv has the columns weight, age, height, not age, height, weight: bring them" in said
    assert axial("compress", "run", table("same.csv", TITLES, 4), "same.axl", "--force", "--no-embed").status == 0
    assert axial("decompress", "run", "same.axl", "back.csv").status == 0
    assert Path("back.csv").read_text().split() == Path("same.csv").read_text().split()


def test_files_of_a_folder_may_differ_in_the_order_of_their_columns(axial: Axial, refused: Refused):
    for name, titles in {"train_1": TITLES, "train_2": TITLES[::-1], "val": TITLES[1:] + TITLES[:1]}.items():
        Path("tables").mkdir(exist_ok=True)
        table(f"tables/{name}.csv", titles)
    one = data.load("own.csv" if table("own.csv").exists() else "", data.DataConfig(num_values=9), "all").values
    both = data.load("tables", data.DataConfig(num_values=9)).values
    assert np.array_equal(both, [*one, *one])
    assert axial("train", "tables", *TINY, *STEPS).status == 0
    validated = json.loads(axial("evaluate", "runs/tables", "--split", "validation", "--json").out)["bits_per_dim"]
    assert json.loads(axial("evaluate", "runs/tables", "own.csv", "--json").out)["bits_per_dim"] == validated
    table("tables/val.csv", ("age", "height", "width"))
    done = axial("train", "tables", *TINY, *STEPS, "--out", "again")
    assert done.status == 2
    assert "tables, validation has the columns age, height, width, not age, height, weight" in done.err


def test_a_run_goes_on_with_its_columns_in_another_order(axial: Axial):
    table("own.csv")
    assert axial("train", "own.csv", *TINY, *STEPS, "--out", "r").status == 0
    moved = table("moved.csv", TITLES[::-1])
    done = axial("train", "r", moved, "--training.steps", "3")
    assert done.status == 0, done.err
    assert read_run("r").facts.columns == TITLES


def test_a_start_takes_the_order_of_the_columns_of_the_model_that_it_starts_from(axial: Axial):
    table("own.csv")
    assert axial("train", "own.csv", *TINY, *STEPS, "--out", "r").status == 0
    words = ["--from", "r", "--training.steps", "1", "--training.batch-size", "2", "--samples", "0"]
    assert axial("train", table("more.csv", TITLES[::-1]), *words, "--data.num-values", "9").status == 0
    assert read_run("runs/more").facts.columns == TITLES
    assert read_run("runs/more").facts.fingerprint == read_run("r").facts.fingerprint
    done = axial("train", table("else.csv", ("age", "height", "width")), *words, "--data.num-values", "9")
    assert "r was trained on the columns age, height, weight, not age, height, width" in done.err
