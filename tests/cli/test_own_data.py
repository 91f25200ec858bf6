"""Of the data that trained a model, commands take the test part unless told otherwise, and say so."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import data
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from axial_transformers.recipes import NAMED
from tests.conftest import Axial

pytestmark = pytest.mark.usefixtures("home")


def evaluated(axial: Axial, *words: object) -> tuple[str, str]:
    """Return which data were evaluated, and what was said."""
    done = axial("evaluate", *words, "--json")
    assert done.status == 0, done.err
    return json.loads(done.out)["data"], done.err


def test_a_model_of_the_package_takes_the_test_part_of_its_own_data(axial: Axial):
    test = data.load("digits", split="test")
    bits = bits_per_dim(AxialTransformer.from_pretrained("digits"), torch.from_numpy(test.values))
    done = axial("evaluate", "digits", "digits", "--json")
    found = json.loads(done.out)
    assert (found["data"], found["images"], found["fingerprint"]) == ("digits, test", 297, test.fingerprint)
    assert found["bits_per_dim"] == pytest.approx(bits.mean().item(), abs=1e-9)
    assert "only its test part is taken; --split all takes all" in done.err
    assert evaluated(axial, "digits") == ("digits, test", "digits: the model that comes with the package\n")
    data_of_all, said = evaluated(axial, "digits", "digits", "--split", "all", "--limit", "4")
    assert (data_of_all, "is taken" in said) == ("digits, all", False)


def test_scores_and_completions_of_own_data_are_of_the_test_part(axial: Axial, trained):
    done = axial("score", trained, "digits", "--out", "s.json", "--against", "digits", "--typical", "digits")
    names = {row["name"] for row in json.loads(Path("s.json").read_text())["scores"]}
    assert names == {*data.load("digits", split="test").names}
    assert "only its test part is taken" in done.err
    assert "297 examples of digits as anomalies" in done.out
    words = ["complete", trained, "digits", "--rows", "4", "--count", "1", "--out", "c.npy"]
    assert axial(*words, "--only", "1500", "1796").status == 0
    done = axial(*words[:-1], "d.npy", "--only", "3")
    assert done.status == 2
    assert "no example 3: there are names from 1500 to 1796" in done.err


@pytest.fixture
def run(axial: Axial) -> str:
    """The run `runs/photos`, on a folder of that name."""
    for i, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (60, 4, 4), dtype=np.uint8)):
        Path("photos/some").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(f"photos/some/{i}.png")
    sizes = ["--model.dim", "16", "--model.heads", "2", "--training.steps", "2", "--training.batch-size", "2"]
    assert axial("train", "photos", *sizes, "--samples", "0").status == 0
    return "runs/photos"


def test_the_source_of_a_run_is_known_by_any_path(axial: Axial, run: str):
    Path("link").symlink_to("photos")
    said = f"is what {run} was trained on: only its test part is taken; --split all takes all"
    for source in ("photos", "photos/", "./photos", Path("photos").resolve(), "photos/../photos", "link"):
        found, err = evaluated(axial, run, source)
        assert found == f"{source}, test"
        assert f"{source} {said}" in err
    own, other = (json.loads(axial("evaluate", run, *words, "--json").out) for words in ([], ["photos"]))
    assert own["fingerprint"] == other["fingerprint"]
    assert evaluated(axial, run, "photos", "--split", "train")[0] == "photos, train"


def test_data_that_were_moved_are_known_by_what_they_hold(axial: Axial, run: str):
    shutil.move("photos", "moved")
    assert "name its new path after the folder" in axial("evaluate", run).err
    found, said = evaluated(axial, run, "moved")
    assert (found, "only its test part is taken" in said) == ("moved, test", True)
    shutil.copytree("moved", "elsewhere/photos")
    shutil.copytree("moved", "photos")
    assert evaluated(axial, run, "elsewhere/photos")[0] == "elsewhere/photos, test"
    Path("elsewhere/photos/some/0.png").unlink()
    Path("elsewhere/photos/some/1.png").unlink()
    assert evaluated(axial, run, "elsewhere/photos")[0] == "elsewhere/photos, all"


def test_other_data_count_as_a_whole(axial: Axial, run: str):
    shutil.copytree("photos/some", "others")
    (Path("others") / "0.png").unlink()
    found, said = evaluated(axial, run, "others")
    assert found == "others, all"
    assert "is taken" not in said


def test_a_part_of_own_data_is_spoken_of_unless_it_is_for_the_test(axial: Axial, run: str):
    may_have = f"photos/some is a part of the data of {run}, which may have trained on it"
    assert may_have in evaluated(axial, run, "photos/some")[1]
    shutil.move("photos/some", "photos/train")
    shutil.copytree("photos/train", "photos/test")
    assert "may have trained on it" in evaluated(axial, run, "photos/train")[1]
    assert "may have trained on it" not in evaluated(axial, run, "photos/test")[1]


def test_a_model_of_the_package_knows_the_file_that_it_was_trained_on_by_its_content(axial: Axial, monkeypatch):
    values, recipe = np.random.default_rng(0).integers(0, 256, (40, 28, 28, 1), dtype=np.uint8), NAMED["fashion_mnist"]
    data.save_arrays("mine.npz", values)
    data.save_arrays("other.npz", values[::-1])
    fingerprint = data.load("mine.npz", recipe.settings.data).fingerprint
    monkeypatch.setitem(NAMED, "fashion_mnist", replace(recipe, trained_on=fingerprint))
    assert evaluated(axial, "fashion_mnist", "mine.npz")[0] == "mine.npz, validation"
    assert evaluated(axial, "fashion_mnist", "mine.npz", "--split", "all")[0] == "mine.npz, all"
    assert evaluated(axial, "fashion_mnist", "other.npz")[0] == "other.npz, all"
