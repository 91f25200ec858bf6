"""Pictures that commands write: large enough to see, with all bits, titles and scales."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.data.scans import read_scan
from axial_transformers.training import trained_model
from axial_transformers.training.trained_model import open_model
from tests.conftest import TINY, Axial
from tests.small_models import random_model, small_config

ONE_STEP = ["--training.steps", "1", "--training.sample-every", "1", "--training.batch-size", "2"]


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on 12-bit colour images in 16 bits, and the images themselves."""
    folder = tmp_path_factory.mktemp("deep")
    values = np.random.default_rng(0).integers(0, 4096, (40, 4, 5, 3)).astype(np.uint16)
    np.savez(folder / "deep.npz", images=values)
    return folder


def train_deep(axial: Axial, deep: Path) -> str:
    if (deep / "run").exists():
        return ""
    tiny = [*TINY, "--model.encoder-layers", "2"]
    done = axial("train", deep / "deep.npz", *tiny, *ONE_STEP, "--samples", 2, "--out", deep / "run")
    assert done.status == 0, done.err
    return done.out


def test_samples_of_more_than_8_bits_keep_all_in_arrays_and_are_stretched_in_images(axial: Axial, deep, home):
    train_deep(axial, deep)
    for output in ("samples", "samples.npz", "samples.npy"):
        assert axial("sample", deep / "run", "--count", 2, "--output", output).status == 0
    whole = np.load("samples.npz")["images"]
    assert whole.dtype == np.int16
    assert whole.max() > 255
    assert np.array_equal(np.load("samples.npy"), whole)
    low, high = np.percentile(whole, (0.5, 99.5))
    with Image.open(home / "samples" / "0001.png") as picture:
        expected = np.clip((whole[1] - low) * (255 / (high - low)), 0, 255)
        assert np.abs(np.asarray(picture) - expected).max() < 1


def test_12_bit_data_is_no_black_grid(axial: Axial, deep):
    train_deep(axial, deep)
    axial("complete", deep / "run", deep / "deep.npz", "--channels", 2, "--approximate",
          "--examples", 1, "--output", "c.png")  # fmt: skip
    with Image.open("c.png") as picture:
        original = np.asarray(picture)[18:, -picture.width // 6 :]
    assert np.percentile(original, 90) > 200
    (grid,) = (deep / "run" / "samples").iterdir()
    with Image.open(grid) as picture:
        assert picture.width >= 512


@pytest.mark.parametrize(
    ("shape", "values", "known"),
    [((7,), 64, "--rows"), ((30,), 4, "--rows"), ((3, 4), 5, "--rows"), ((2, 3, 4), 17, "--frames")],
    ids=["sequence", "sequence of categories", "board", "clip"],
)
def test_pictures_of_any_data_are_large_enough_to_see(axial: Axial, shape, values, known):
    random_model(small_config(shape, num_values=values)).float().save_pretrained("model")
    np.savez("data.npz", values=np.random.default_rng(0).integers(0, values, (2, *shape, *[1] * (len(shape) == 3))))
    argv = ["complete", "model", "data.npz", known, 1, "--count", 1, "--output", "c.png"]
    for command in (["sample", "model"], argv, ["score", "model", "data.npz", "--heat-maps", "maps", "--top", 1]):
        assert axial(*command).status == 0, axial(*command).err
    for picture in ("samples.png", "c.png", *Path("maps").glob("*.png")):
        with Image.open(picture) as opened:
            assert opened.width >= 500
            assert min(opened.size) >= 40


@pytest.mark.parametrize("shape", [(3, 5, 2), (2, 3, 4, 5), (2, 1, 2, 3, 2)], ids=["3 axes", "4 axes", "5 axes"])
def test_volumes_of_any_axes_are_sampled_completed_scored_and_written(axial: Axial, refused, shape):
    random_model(small_config(shape, num_values=700, lowest=-300)).float().save_pretrained("model")
    for suffix in ("png", "npy"):
        done = axial("sample", "model", "--count", 2, "--window", -100, 200.5, "--output", f"s.{suffix}")
        assert (done.status, done.out) == (0, f"s.{suffix}\n"), done.err
    volumes = np.load("s.npy")
    assert (volumes.shape, volumes.dtype) == ((2, *shape, 1), np.int16)
    assert "window needs a lower and a higher number, not 4 2" in refused("sample", "model", "--window", 4, 2)
    if len(shape) > 4:
        return  # arrays of examples are read to four axes
    for words in (
        ["complete", "model", "s.npy", "--frames", 1, "--count", 1],
        ["score", "model", "s.npy", "--heat-maps", "maps"],
    ):
        assert axial(*words).status == 0, axial(*words).err
    assert sorted(path.suffix for path in Path("maps").iterdir()) == [".html", ".npy", ".npy", ".png", ".png"]
    assert np.load(next(Path("maps").glob("*.npy"))).shape == shape
    for picture in ("s.png", "completions.png", *Path("maps").glob("*.png")):
        with Image.open(picture) as opened:
            assert opened.width >= 500


def test_samples_completions_and_bits_of_a_scan_have_its_geometry(axial: Axial, refused, monkeypatch):
    nibabel = pytest.importorskip("nibabel")
    volumes = np.random.default_rng(0).integers(-300, 400, (2, 3, 5, 7)).astype(np.int16)
    affine = np.diag([0.5, -0.75, 2.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(volumes.T, affine), "scan.nii.gz")
    np.save("volumes.npy", volumes)
    random_model(small_config((3, 5, 7), num_values=700, lowest=-300)).float().save_pretrained("model")
    assert "b.dcm is none of" in refused("sample", "model", "--output", "b.dcm")
    known = replace(open_model("model"), source="scan.nii.gz")
    monkeypatch.setattr(trained_model, "open_model", lambda *_: known)
    argv = ["complete", "model", "volumes.npy", "--frames", 1, "--examples", 2]
    for words in (["sample", "model", "--count", 1, "--output", "s.nii"], [*argv, "--count", 1, "--output", "c.nii.gz"],
                  ["sample", "model", "--count", 2, "--output", "two.nii.gz"]):  # fmt: skip
        done = axial(*words)
        assert (done.status, done.out) == (0, f"{words[-1]}\n"), done.err
        with_geometry = nibabel.load(words[-1])
        assert np.array_equal(with_geometry.affine, affine)
        assert with_geometry.get_data_dtype() == np.int16
    assert nibabel.load("s.nii").shape == (7, 5, 3)
    assert np.array_equal(np.asarray(nibabel.load("c.nii.gz").dataobj).T[:, 0], volumes[:, 0])
    assert "c.nii.gz exists already" in refused(*argv, "--output", "c.nii.gz")
    assert axial("sample", "model", "--count", 1, "--output", "s.tif").status == 0
    assert read_scan("s.tif").values.shape == (3, 5, 7)


def test_samples_of_any_data_of_one_channel_are_written_as_a_scan(axial: Axial, refused):
    pytest.importorskip("nibabel")
    random_model(small_config((3, 5, 7), num_values=700, lowest=-300)).float().save_pretrained("model")
    for name in ("s.npy", "s.nii.gz", "s.tif"):
        assert axial("sample", "model", "--count", 1, "--output", name).status == 0
    volume = np.load("s.npy")[0]
    assert np.array_equal(read_scan("s.nii.gz").values, volume)
    assert np.array_equal(read_scan("s.tif").values, volume)
    random_model(small_config((4,), num_values=4)).float().save_pretrained("sequences")
    assert "s2.nii is none of" in refused("sample", "sequences", "--output", "s2.nii")


def test_heat_maps_have_a_scale_of_bits(axial: Axial):
    random_model(small_config((4, 4), num_values=17)).float().save_pretrained("model")
    np.save("data.npy", np.full((1, 4, 4), 3, np.uint8))
    axial("score", "model", "data.npy", "--heat-maps", "maps")
    with Image.open("maps/0001-0.png") as picture:
        below = np.asarray(picture.convert("L"))[-32:].astype(int)
    ramp = below[10]
    assert ramp[0] < 40
    assert ramp[-1] > 200
    assert (below[-14:] < 128).any()  # numbers
