"""Pictures that commands write: large enough to see, with all bits, titles and scales."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers.data.scans import read_scan
from axial_transformers.training import trained_model
from axial_transformers.training.trained_model import open_model
from tests.conftest import Axial
from tests.small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("shape", [(3, 5, 2), (2, 3, 4, 5)], ids=["3 axes", "4 axes"])
def test_volumes_of_any_axes_are_sampled_completed_scored_and_written(axial: Axial, refused, shape):
    random_model(small_config(shape, num_values=700, lowest=-300)).float().save_pretrained("model")
    for suffix in ("png", "npy"):
        done = axial("sample", "model", "--count", 2, "--window", -100, 200.5, "--out", f"s.{suffix}")
        assert (done.status, done.out) == (0, f"s.{suffix}\n"), done.err
    volumes = np.load("s.npy")
    assert (volumes.shape, volumes.dtype) == ((2, *shape, 1), np.int16)
    assert "window needs a lower and a higher number, not 4 2" in refused("sample", "model", "--window", 4, 2)
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
    assert "b.dcm is none of" in refused("sample", "model", "--out", "b.dcm")
    known = replace(open_model("model"), source="scan.nii.gz")
    monkeypatch.setattr(trained_model, "open_model", lambda *_: known)
    argv = ["complete", "model", "volumes.npy", "--data.axes", "NDHW", "--frames", 1, "--examples", 2]
    for words in (["sample", "model", "--count", 1, "--out", "s.nii"], [*argv, "--count", 1, "--out", "c.nii.gz"],
                  ["sample", "model", "--count", 2, "--out", "two.nii.gz"]):  # fmt: skip
        done = axial(*words)
        assert (done.status, done.out) == (0, f"{words[-1]}\n"), done.err
        with_geometry = nibabel.load(words[-1])
        assert np.array_equal(with_geometry.affine, affine)
        assert with_geometry.get_data_dtype() == np.int16
    assert nibabel.load("s.nii").shape == (7, 5, 3)
    assert np.array_equal(np.asarray(nibabel.load("c.nii.gz").dataobj).T[:, 0], volumes[:, 0])
    assert "c.nii.gz exists already" in refused(*argv, "--out", "c.nii.gz")
    assert axial("sample", "model", "--count", 1, "--out", "s.tif").status == 0
    assert read_scan("s.tif").values.shape == (3, 5, 7)


def test_bits_and_completions_of_blocks_lie_where_they_are_in_the_scan(axial: Axial):
    nibabel = pytest.importorskip("nibabel")
    volume, affine = np.random.default_rng(0).integers(0, 300, (6, 5, 7)), np.diag([0.5, -0.75, 2.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(volume.astype(np.int16).T, affine), "scan.nii.gz")
    random_model(small_config((3, 5, 7), num_values=300)).float().save_pretrained("model")
    block = "scan.nii.gz#1,0,0"
    complete = ["complete", "model", "scan.nii.gz", "--only", block, "--frames", 1, "--count", 1, "--out", "c.nii"]
    for words in (complete, ["score", "model", "scan.nii.gz", "--heat-maps", "maps"]):
        done = axial(*words)
        assert done.status == 0, done.err
    (second,) = Path("maps").glob("*scan#1,0,0.nii.gz")
    for path in (Path("c.nii"), second):
        assert nibabel.load(path).affine[:3, 3].tolist() == [0, 0, 6]
    bits = nibabel.load("maps/bits.nii.gz")
    assert np.array_equal(bits.affine, affine)
    assert np.array_equal(bits.dataobj[..., 3:], nibabel.load(second).dataobj)
