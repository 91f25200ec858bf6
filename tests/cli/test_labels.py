"""Classes are found by their names, in each kind of source, and a model that knows no other examples needs them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import axial_transformers
from axial_transformers import data
from axial_transformers.models import AxialTransformer
from axial_transformers.models.hub_card import model_card
from axial_transformers.studio import Studio
from axial_transformers.training import RunConfig, TrainConfig, read_run, train
from axial_transformers.training.metrics import read_curves
from axial_transformers.training.trained_model import open_model
from tests.conftest import TINY, Axial, Refused
from tests.small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")

CLASSES = ("apple", "banana", "cherry")


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)


def folder(path: Path, names: Sequence[str]) -> Path:
    for number, name in enumerate(names):
        (path / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(len(names), 2, 3)[number]).save(path / name / f"{number}.png")
    return path


def strings(path: Path, names: Sequence[str]) -> Path:
    np.savez(path.with_suffix(".npz"), images=pixels(len(names), 2, 3), labels=np.array(names))
    return path.with_suffix(".npz")


def saved(path: Path, names: Sequence[str]) -> Path:
    """A data set of classes whose names stand in the order of their first row."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Array2D((2, 3), "uint8"), "label": datasets.ClassLabel(names=[*dict.fromkeys(names)])}
    )
    rows = {"image": list(pixels(len(names), 2, 3)), "label": list(names)}
    datasets.Dataset.from_dict(rows, features).save_to_disk(path)
    return path


def text_column(path: Path, names: Sequence[str]) -> Path:
    datasets = pytest.importorskip("datasets")
    rows = {"image": [each.tolist() for each in pixels(len(names), 2, 3)], "label": list(names)}
    features = datasets.Features({"image": datasets.Array2D((2, 3), "uint8"), "label": datasets.Value("string")})
    datasets.Dataset.from_dict(rows, features).to_parquet(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def table(path: Path, names: Sequence[str]) -> Path:
    rows = [f"{a},{name},{b}" for (a, b), name in zip(pixels(len(names), 2), names, strict=True)]
    path.with_suffix(".csv").write_text("\n".join(["x,fruit,y", *rows]))
    return path.with_suffix(".csv")


OF_TABLE = data.DataConfig(label_column="fruit", num_values=256)


def trained(source: Path, options: data.DataConfig | None = None, **settings: float) -> AxialTransformer:
    """Train a model of random weights for a step, in the folder `run`."""
    options = options or data.DataConfig()
    examples = data.load(source, options, "all")
    model = random_model(small_config(examples.shape, num_values=256, num_classes=examples.num_classes), torch.float32)
    training = TrainConfig(steps=1, batch_size=2, device="cpu", precision="float32", **settings)
    run = RunConfig(source=str(source), data=options, model=model.config, training=training)
    train(model, examples, run, "run")
    return AxialTransformer.from_pretrained("run")


def mean_bits(model: AxialTransformer, examples: data.Examples, numbers: Sequence[int] | None) -> float:
    label = None if numbers is None else torch.tensor(numbers)
    values = torch.from_numpy(np.asarray(examples.values[:]))
    return axial_transformers.bits_per_dim(model, values, label=label).mean().item()


def bits(axial: Axial, *words: object) -> float:
    done = axial("evaluate", "run", *words, "--json")
    assert done.status == 0, done.err
    return float(json.loads(done.out)["bits_per_dim"])


@pytest.mark.parametrize("write", [folder, strings, saved, text_column, table])
@pytest.mark.parametrize("names", [["banana", "cherry", "cherry"], ["cherry", "apple", "banana"]])
def test_labels_are_matched_by_the_names_of_classes(axial: Axial, write: Callable[..., Path], names):
    options = OF_TABLE if write is table else data.DataConfig()
    model = trained(write(Path("own"), [*CLASSES, *CLASSES]), options, label_dropout=0.5)
    source = write(Path("other"), names)
    examples = data.load(source, options, "all")
    order = names if write is not folder else sorted(names)
    numbers = [CLASSES.index(name) for name in order]
    assert bits(axial, source, "--labels") == pytest.approx(mean_bits(model, examples, numbers), abs=1e-9)
    assert bits(axial, source) == pytest.approx(mean_bits(model, examples, None), abs=1e-9)


@pytest.mark.parametrize("write", [folder, strings, saved, text_column, table])
def test_a_class_that_the_model_does_not_know_is_named(refused: Refused, write: Callable[..., Path]):
    trained(write(Path("own"), CLASSES), OF_TABLE if write is table else None)
    options = OF_TABLE if write is table else data.DataConfig()
    data.load(source := write(Path("other"), ["banana", "plum"]), options, "all")  # copies parquet files
    said = refused("evaluate", "run", source, "--labels")
    assert "has classes that the model does not know, plum; it knows apple, banana, cherry" in said


def test_classes_that_no_example_has_need_not_be_known(axial: Axial):
    model = trained(folder(Path("own"), CLASSES))
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Array2D((2, 3), "uint8"), "label": datasets.ClassLabel(names=["plum", "cherry"])}
    )
    rows = datasets.Dataset.from_dict({"image": list(pixels(2, 2, 3)), "label": [1, 1]}, features)
    rows.save_to_disk("other")
    assert bits(axial, "other") == pytest.approx(mean_bits(model, data.load("other", split="all"), [2, 2]), abs=1e-9)


def test_numbers_in_place_of_names_are_those_of_the_model_and_that_is_said(axial: Axial, refused: Refused):
    model = trained(folder(Path("own"), CLASSES))
    np.savez("numbers.npz", images=pixels(3, 2, 3), labels=[2, 0, 2])
    examples = data.load("numbers.npz", split="all")
    done = axial("evaluate", "run", "numbers.npz", "--json")
    assert json.loads(done.out)["bits_per_dim"] == pytest.approx(mean_bits(model, examples, [2, 0, 2]), abs=1e-9)
    assert (
        "numbers.npz, all has numbers as labels, taken as those of the model's classes, from 0 on: apple," in done.err
    )
    np.savez("numbers.npz", images=pixels(3, 2, 3), labels=[2, 0, 3])
    assert "does not know, 3; it knows" in refused("evaluate", "run", "numbers.npz")


def test_folders_named_by_numbers_are_the_classes_of_these_numbers(axial: Axial):
    np.savez("own.npz", images=pixels(12, 2, 3), labels=np.arange(12))
    model = trained(Path("own.npz"), label_dropout=0.5)
    source = folder(Path("other"), ["10", "2", "9"])
    expected = mean_bits(model, data.load(source, split="all"), [10, 2, 9])
    assert bits(axial, source, "--labels") == pytest.approx(expected, abs=1e-9)


def test_a_model_without_names_takes_numbers_and_refuses_names(axial: Axial, refused: Refused):
    """A model folder, which goes to others, has no names of classes: these are facts of the data, in train.json."""
    model = trained(strings(Path("own"), CLASSES), label_dropout=0.5)
    Path("run/train.json").unlink()
    np.savez("numbers.npz", images=pixels(3, 2, 3), labels=[2, 0, 2])
    examples = data.load("numbers.npz", split="all")
    assert bits(axial, "numbers.npz", "--labels") == pytest.approx(mean_bits(model, examples, [2, 0, 2]), abs=1e-9)
    said = refused("evaluate", "run", strings(Path("named"), CLASSES), "--labels")
    assert "does not know, apple, banana, cherry; it knows 0, 1, 2" in said


def test_a_model_trained_with_labels_only_uses_those_of_the_source_and_says_so(axial: Axial):
    model = trained(folder(Path("own"), CLASSES))
    source = folder(Path("other"), ["cherry", "banana"])
    examples = data.load(source, split="all")
    expected = mean_bits(model, examples, [1, 2])
    assert bits(axial, source) == pytest.approx(expected, abs=1e-9)
    said = "the labels of other, all are used: run was trained with labels only"
    for words in ["evaluate", "run", source], ["score", "run", source, "--out", "s.json", "--heat-maps", "maps"]:
        assert said in axial(*words).err
    scores = {row["name"]: row["bits_per_dim"] for row in json.loads(Path("s.json").read_text())["scores"]}
    assert np.mean(list(scores.values())) == pytest.approx(expected, abs=1e-5)
    done = axial("complete", "run", source, "--rows", "1", "--count", "2", "--seed", "3", "--out", "c.npy")
    assert said in done.err
    known, label = torch.from_numpy(examples.values), torch.tensor([1, 2])
    filled = axial_transformers.complete(model, known, rows=1, count=2, seed=3, label=label)
    assert np.array_equal(np.load("c.npy").reshape(filled.shape), filled)


def test_heat_maps_are_of_the_labels_that_the_scores_are_of(axial: Axial, monkeypatch):
    from axial_transformers.likelihood import outliers

    given = []
    usual = outliers.bits_map
    monkeypatch.setattr(
        outliers, "bits_map", lambda model, x, label=None: given.append(label) or usual(model, x, label)
    )
    trained(folder(Path("own"), CLASSES))
    assert axial("score", "run", folder(Path("other"), ["cherry"]), "--heat-maps", "maps").status == 0
    assert [label.tolist() for label in given] == [[2]]


def test_without_labels_it_is_refused_in_one_line(refused: Refused):
    trained(folder(Path("own"), CLASSES))
    np.save("bare.npy", pixels(3, 2, 3))
    classes = "the classes are 0 to 2, called apple, banana, cherry"
    for words in (
        ["evaluate", "run", "bare.npy"],
        ["score", "run", "bare.npy"],
        ["complete", "run", "bare.npy", "--rows", "1"],
        ["sample", "run"],
    ):
        said = refused(*words)
        assert "trained with labels" in said
        assert classes in said
    assert "without labels, which this model needs" in refused("compress", "run", "bare.npy", "a.axl")


def test_a_label_that_is_named_serves(axial: Axial):
    trained(folder(Path("own"), CLASSES))
    np.save("bare.npy", pixels(3, 2, 3))
    assert axial("sample", "run", "--label", "cherry", "--count", "2").status == 0
    assert axial("complete", "run", "bare.npy", "--rows", "1", "--label", "0").status == 0


def test_functions_know_it_too_wherever_the_model_goes(tmp_path):
    trained(folder(Path("own"), CLASSES)).save_pretrained(tmp_path / "exported")
    model = AxialTransformer.from_pretrained(tmp_path / "exported")
    x = torch.from_numpy(pixels(2, 2, 3)[..., None])
    for call in (
        lambda: axial_transformers.bits_per_dim(model, x),
        lambda: axial_transformers.sample(model, count=2),
        lambda: axial_transformers.complete(model, x, rows=1),
        lambda: axial_transformers.compress(model, x),
        lambda: model(x),
        lambda: model(x, label=3),
    ):
        with pytest.raises(ValueError, match=r"label (is missing, and|must be \[2\] classes in 0..2)"):
            call()
    blob = axial_transformers.compress(model, x, label=torch.tensor([1, 2]))
    assert torch.equal(axial_transformers.decompress(model, blob, label=torch.tensor([1, 2])), x)
    card = model_card(model, model.config, "alice/fruit")
    assert "bits_per_dim(model, x, label=y)" in card
    assert "sample(model, count=4, label=0)" in card
    assert "axial sample alice/fruit --label 0 --out" in card
    studio = Studio(open_model("run"), tmp_path)
    assert studio.choices == [(each, each) for each in CLASSES]


def test_a_resume_that_hides_labels_teaches_the_model_to_do_without():
    source = folder(Path("own"), CLASSES)
    model = trained(source)
    assert model.config.needs_label
    for dropout, needs in ((0.0, True), (0.9, False), (0.0, False)):
        steps = read_run("run").run.training.steps + 1
        config = TrainConfig(steps=steps, batch_size=2, device="cpu", precision="float32", label_dropout=dropout)
        train(model, data.load(source, split="all"), config, "run", resume=True)
        assert AxialTransformer.from_pretrained("run").config.needs_label == needs


def test_training_with_labels_only_evaluates_and_samples_with_them(axial: Axial):
    Path("arrays").mkdir()
    strings(Path("arrays/train"), [*CLASSES] * 4)
    strings(Path("arrays/val"), ["cherry", "banana"])
    words = ["--training.steps", "2", "--training.label-dropout", "0", "--training.batch-size", "2", "--samples", "3"]
    assert axial("train", "arrays", *TINY, *words).status == 0
    model = AxialTransformer.from_pretrained("runs/arrays")
    _, found = read_curves(Path("runs/arrays"))["validation_bits_per_dim"][-1]
    expected = mean_bits(model, data.load("arrays", split="validation"), [2, 1])
    assert found == pytest.approx(expected, abs=1e-6)
    strings(Path("arrays/val"), ["plum"])
    done = axial("train", "arrays", *TINY, *words, "--out", "again")
    assert done.status == 2
    assert done.err.endswith("does not know, plum; it knows apple, banana, cherry\n")


def test_a_table_without_the_column_of_classes_has_none_and_that_is_said(axial: Axial):
    model = trained(table(Path("own"), CLASSES), OF_TABLE, label_dropout=0.5)
    Path("bare.csv").write_text("x,y\n1,2\n3,4\n")
    done = axial("evaluate", "run", "bare.csv", "--json")
    examples = data.load("own.csv", OF_TABLE, "all")
    assert examples.class_names == CLASSES
    bare = data.Examples(values=np.array([[[1], [2]], [[3], [4]]], np.uint8), names=["0", "1"])
    assert json.loads(done.out)["bits_per_dim"] == pytest.approx(mean_bits(model, bare, None), abs=1e-9)
    assert "bare.csv has no column fruit, which --data.label-column names: its rows have no classes" in done.err


def test_files_of_one_part_number_their_classes_together():
    Path("arrays").mkdir()
    strings(Path("arrays/train_1"), ["b", "c"])
    strings(Path("arrays/train_2"), ["a", "c"])
    examples = data.load("arrays", data.DataConfig(validation_fraction=0))
    assert (examples.class_names, examples.labels.tolist()) == (("a", "b", "c"), [1, 2, 0, 2])
    np.savez("arrays/train_2.npz", images=pixels(2, 2, 3), labels=[0, 1])
    with pytest.raises(ValueError, match="names"):
        data.load("arrays", data.DataConfig(validation_fraction=0))


def test_a_start_from_trained_weights_finds_classes_by_their_names(axial: Axial):
    model = trained(folder(Path("own"), CLASSES))
    source = folder(Path("more"), ["banana", "cherry", "durian"] * 9)
    words = ["--from", "run", "--training.steps", "1", "--training.learning-rate", "1e-30", "--samples", "0"]
    done = axial("train", source, *words, "--training.optimizer", "adam", "--training.label-dropout", "0")
    assert "classes start anew: durian" in done.err, done.err
    before, after = (each.labels.embed.table for each in (model, AxialTransformer.from_pretrained("runs/more")))
    torch.testing.assert_close(after[[0, 1, 3]], before[[1, 2, 3]], rtol=0, atol=1e-6)
    assert (after[2] - before[[0, 1, 2, 3]]).abs().sum(1).min() > 0.1
