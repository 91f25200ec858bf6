"""What `axial inspect` says of a model."""

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers import cli
from axial_transformers.messages import engineering
from axial_transformers.planning import machine
from tests.cli.test_train import picture
from tests.conftest import TINY, Axial


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def imagenet64() -> tuple[dict, str]:
    """The facts of a recipe on eight devices, and the tables of them."""
    options = [
        "--devices",
        "8",
        "--utilisation",
        "0.5",
        "--rate",
        "300",
        "--memory",
        "24",
        "--training.accumulate",
        "1",
    ]
    printed = []
    for form in (["--json"], []):
        with redirect_stdout(StringIO()) as out:
            assert cli.main(["inspect", "imagenet64", *options, *form]) == 0
        printed.append(out.getvalue())
    return json.loads(printed[0]), printed[1]


def test_options_alone_are_refused(refused):
    assert "a recipe or a source comes first, then overrides: axial inspect digits" in refused("inspect", "--json")


def test_a_recipe_is_described_without_being_built(imagenet64):
    facts, words = imagenet64
    assert facts["config"]["dim"] == 2048
    assert facts["positions"] == 64 * 64 * 3
    assert facts["parameters"]["total"] > 500_000_000
    assert facts["dependencies"] is None
    assert "not checked" in words


def test_a_small_models_dependencies_are_exact(axial: Axial, trained):
    assert "no leak and no hole in 4,096 pairs" in axial("inspect", trained, "--devices", 1, "--dependencies").out


@pytest.mark.parametrize(("number", "text"), [(12, "12 "), (1234, "1.23 k"), (2.5e12, "2.5 T")])
def test_large_numbers_are_readable(number, text):
    assert engineering(number) == text


def test_training_is_sized_for_the_devices_named(imagenet64):
    facts, words = imagenet64
    found = facts["training"]
    assert (found["device_batch"], found["batch_size"], found["precision"]) == (8, 64, "bfloat16")
    assert found["seconds_per_step"] == pytest.approx(found["flops_per_step"] / (8 * 300e12 * 0.5))
    assert found["seconds_of_all_steps"] == pytest.approx(200_000 * found["seconds_per_step"])
    kept, again = found["memory_bytes"].values()
    assert again["total"] < kept["total"]
    assert kept["total"] == sum(v for k, v in kept.items() if k not in ("total", "needed"))
    assert "training on 8 devices, 64 examples a step in bfloat16" in words
    assert "does not fit into 24 GB" in words
    assert "200,000 steps" in words


@pytest.mark.slow
def test_overrides_of_training_change_its_size(axial: Axial):
    def found(*options: str) -> dict:
        return json.loads(axial("inspect", "imagenet32", "--devices", "4", *options, "--json").out)["training"]

    whole, shared = found(), found("--training.shard")
    assert shared["sharded"]
    assert shared["memory_bytes"]["blocks_kept"]["weights"] == whole["memory_bytes"]["blocks_kept"]["weights"] / 4
    assert found("--training.batch-size", "128")["flops_per_step"] == 2 * whole["flops_per_step"]
    assert found("--training.accumulate", "4")["device_batch"] == whole["device_batch"] / 2


def test_a_runs_own_settings_are_sized(axial: Axial, trained):
    found = json.loads(axial("inspect", trained, "--devices", "2", "--json").out)["training"]
    assert (found["steps"], found["device_batch"]) == (4, 32)


def test_without_devices_it_is_this_machine_and_a_run_tells_its_data(axial: Axial, trained, monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda device, whole: 7_000_000_000)
    facts = json.loads(axial("inspect", trained, "--json").out)
    hardware, sized = facts["training"]["hardware"], facts["training"]
    assert (hardware["devices"], hardware["memory"], hardware["rate"]) == (1, pytest.approx(7.0), None)
    elsewhere = json.loads(axial("inspect", trained, "--utilisation", 1, "--json").out)["training"]
    assert elsewhere["seconds_per_step"] == pytest.approx(sized["flops_per_step"] / 989e12)
    assert facts["dependencies"] is None
    assert facts["data"]["test"] == 297
    words = " ".join(axial("inspect", trained).out.split())
    for said in (
        "training on this machine",
        "classes 10: 0, 1, 2",
        "1,350 train, 150 validation",
    ):
        assert said in words
    assert "H100" not in words
    assert "200,000 steps" not in words


def test_devices_that_do_not_share_a_batch_are_one_line(refused):
    assert "a batch of 64 does not divide" in refused("inspect", "imagenet64", "--devices", "7")
    says = "utilisation must be above 0 and at most 1, not 40"
    assert says in refused("inspect", "imagenet64", "--utilisation", "40")


def dna(file: str) -> str:
    np.save(file, np.random.default_rng(0).integers(0, 4, (200, 64)).astype(np.uint8))
    return file


def table(file: str) -> str:
    highest = [1, 4, 89, 199]
    np.save(file, np.random.default_rng(0).integers(0, highest, (200, 4), endpoint=True))
    return file


def weather(file: str) -> str:
    np.save(file, np.round(np.cumsum(np.random.default_rng(0).normal(size=(100, 48)), 1), 1).astype(np.float32))
    return file


def clips(file: str) -> str:
    np.save(file, np.random.default_rng(0).integers(0, 256, (20, 2, 4, 4, 3)).astype(np.uint8))
    return file


def photos(folder: str) -> str:
    for i in range(24):
        picture(f"{folder}/{'ab'[i % 2]}/{i}.png", i)
    for i in (0, 6, 9):
        Path(f"{folder}/{'ab'[i % 2]}/{i}.png").write_text("damaged")
    Path(f"{folder}/notes.txt").write_text("")
    return folder


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (dna, "sequence", ["kind sequences", "200 sequences: 180 train, 20 validation", "4 symbols (categorical)"]),
        (table, "row", ["kind rows of a table", "200 rows: 180 ", "columns 0: 0..1, 1: 0..4, 2: 0..89, 3: 0..199"]),
        (weather, "series", ["100 series: 90 train", "numbers (ordinal), floats in steps of 0.1 from 0; found: -"]),
        (clips, "clip", ["20 clips: 18 train", "frame 2 x height 4 x width 4, 3 channels (red, green, blue)"]),
        (photos, "image", ["files 24 image files", "not read 1 other file: notes.txt", "classes 2: a, b",
                           "skipped 3 files: image.npy/a/0.png is not a whole image", "(also image.npy/"]),
    ],
)  # fmt: skip
def test_data_are_shown_first_and_called_by_their_kind(axial: Axial, make, kind, says):
    done = axial("inspect", make(f"{kind}.npy"), "--training.steps", 9)
    words = " ".join(done.out.split())
    assert [each for each in says if each not in words] == []
    assert words.index(says[0]) < words.index("model data")
    assert "skipped" not in done.err
    assert ("(gray)" in words or "image" in words) == (kind == "image")
    for engineers in ("FLOP a step", "caches", "embed_value", "gradients"):
        assert engineers not in words
    assert re.search(r"time about .*: 9 steps of [0-9.]+ s, .*; three were timed", words)
    assert f"to start axial train {kind}.npy --training.steps 9 " in words
    assert json.loads(axial("inspect", f"{kind}.npy", "--json").out)["data"]["kind"] == kind


def test_rows_for_engineers_come_when_asked_for(axial: Axial):
    words = " ".join(axial("inspect", dna("data.npy"), "--verbose").out.split())
    for engineers in ("FLOP a step", "caches of decoding", "embed_value", "gradients"):
        assert engineers in words


def test_the_plan_is_the_one_that_train_prints(axial: Axial):
    small = [*TINY, "--training.steps", 1, "--samples", 0]
    inspected = axial("inspect", dna("data.npy"), *small).out
    trained = axial("train", "data.npy", *small, "--out", "run").err
    rows = (line.strip().partition(" ") for line in inspected.splitlines() if line.startswith(" "))
    names = ("width", "layers", "steps", "batches", "examples")
    found = {name: text.strip() for name, _, text in rows if name in names}
    assert len(found) == 5
    for name, text in found.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", trained, re.MULTILINE), (name, text)


def test_a_sheet_is_written_only_when_asked_for(axial: Axial, refused):
    axial("inspect", clips("data.npy"))
    assert not list(Path().glob("*.png"))
    words = " ".join(axial("inspect", "data.npy", "--sheet", "sheet.png").out.split())
    assert "sheet sheet.png" in words
    with Image.open("sheet.png") as sheet:
        assert sheet.width > 256
    says = "--sheet sheet.png is for a sheet of examples: name the data"
    assert says in refused("inspect", "imagenet64", "--sheet", "sheet.png")
