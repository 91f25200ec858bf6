"""axial compress without a model: one is trained on the source."""

import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers.compression import open_archive, shipped_models
from axial_transformers.data.scans import read_scan
from axial_transformers.decoding.sampling import sample
from axial_transformers.recipes import for_archive, watching
from axial_transformers.storage import model_folders
from axial_transformers.training import RunConfig
from tests.conftest import Axial
from tests.scan_writer import make_scan
from tests.small_models import random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def _often_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = for_archive.of_own_data

    def often(source: str) -> RunConfig:
        run = usual(source)
        return replace(run, training=replace(run.training, evaluate_every=8, save_every=8))

    monkeypatch.setattr(for_archive, "of_own_data", often)


@pytest.fixture
def images() -> np.ndarray:
    """Diagonal stripes, which a model learns."""
    values = np.add.outer(np.arange(40), np.add.outer(np.arange(6), np.arange(6))) % 5 * 20
    np.savez("images.npz", images=values.astype(np.uint8), labels=np.arange(40) % 3)
    return values


def test_one_command_makes_an_archive_and_after_ctrl_c_goes_on(axial: Axial, images, monkeypatch):
    usual = watching.score
    with monkeypatch.context() as patch:
        patch.setattr(watching, "score", lambda *given: signal.raise_signal(signal.SIGINT) or usual(*given))
        stopped = axial("compress", "images.npz", "a.axl", "--minutes", "60", "--force")
    assert (stopped.status, stopped.out.startswith("a.axl: 40 images, ")) == (0, True)
    assert "a model of images.npz, width 8" in stopped.err
    assert "stopped at step 8: the archive gets the best weights so far" in stopped.err
    assert "the training is in " in stopped.err
    with open_archive("a.axl") as archive:
        assert np.array_equal(archive.values[..., 0].numpy(), images)
        assert archive.model.config.num_classes is None
    again = axial("compress", "images.npz", "a.axl", "--minutes", "0.01", "--force")
    assert "resumed at step 8" in again.err
    assert axial("decompress", "a.axl", "back.npz").status == 0
    assert np.array_equal(np.load("back.npz")["images"], images)


def test_a_source_may_have_the_name_of_a_recipe_and_must_stay_what_it_was(axial: Axial, images):
    Path("digits").mkdir()
    for i, image in enumerate(images[:20].astype(np.uint8)):
        Image.fromarray(image).save(f"digits/{i}.png")
    assert axial("compress", "./digits", "a.axl", "--minutes", "0.01", "--force").status == 0
    assert open_archive("a.axl").values.shape == (20, 6, 6, 1)
    Image.fromarray(255 - images[0].astype(np.uint8)).save("digits/0.png")
    done = axial("compress", "./digits", "a.axl", "--minutes", "0.01", "--force")
    assert (done.status, "a.axl.run was trained on other data" in done.err) == (2, True)


def test_a_run_goes_on_with_the_data_as_it_has_read_them(axial: Axial, images):
    assert axial("compress", "images.npz", "a.axl", "--minutes", "0.01", "--force").status == 0
    done = axial("compress", "images.npz", "a.axl", "--minutes", "0.01", "--data.size", "3", "--force")
    assert (done.status, "a.axl.run was begun with other settings" in done.err) == (2, True)


def test_a_source_that_cannot_be_restored_is_refused_before_the_training(axial: Axial, monkeypatch):
    np.savez("images.npz", images=np.zeros((20, 6, 6), np.uint8))
    monkeypatch.setattr(
        for_archive, "read_contents", lambda *given: (_ for _ in ()).throw(ValueError("it cannot come back"))
    )
    done = axial("compress", "images.npz", "a.axl", "--minutes", "1")
    assert (done.status, "it cannot come back" in done.err, "training" in done.err) == (2, True, False)


def test_a_scan_is_fitted_in_blocks_and_comes_back(axial: Axial, tmp_path):
    make_scan(tmp_path / "a.nii.gz", np.random.default_rng(0).integers(0, 300, (6, 9, 8), np.int16))
    done = axial("compress", "a.nii.gz", "a.axl", "--minutes", "0.01", "--data.size", "2", "4", "4", "--force")
    assert done.status == 0, done.err
    assert axial("decompress", "a.axl", "back.nii.gz").status == 0
    assert np.array_equal(read_scan("back.nii.gz").values, read_scan("a.nii.gz").values)


def test_a_model_whose_weights_are_too_many_is_not_trained(axial: Axial):
    np.savez("noise.npz", images=np.random.default_rng(0).integers(0, 256, (8, 6, 6), np.uint8))
    done = axial("compress", "noise.npz", "noise.axl", "--minutes", "0.01")
    assert (done.status, done.out, Path("noise.axl").exists()) == (1, "", False)
    assert re.search(r"the archive would take about [\d,]+ bytes, its values by zlib [\d,]+: ", done.err)
    assert "the training is in" not in done.err


def test_what_is_not_trained_on_is_in_the_archive_nevertheless(axial: Axial, images):
    Path("icons").mkdir()
    for i, image in enumerate(images[:9].astype(np.uint8)):
        Image.fromarray(np.kron(image, np.ones((4, 4), np.uint8))[: 16 + i % 9]).save(f"icons/{i}.png")
    Image.fromarray(images[0][:3, :2].astype(np.uint8)).save("icons/small.png")
    for i in range(6):
        Path(f"icons/torn{i}.png").write_bytes(Path("icons/0.png").read_bytes()[:60])
    done = axial("compress", "icons", "a.axl", "--minutes", "0.01", "--force")
    assert done.status == 0, done.err
    assert "stored, not coded by the model: 6 files, torn0.png, " in done.err
    assert "left out" not in done.err
    assert axial("decompress", "a.axl", "back").status == 0
    assert {path.name for path in Path("back").iterdir()} == {path.name for path in Path("icons").iterdir()}
    for name in ("0.png", "8.png", "small.png"):
        with Image.open(f"back/{name}") as back, Image.open(f"icons/{name}") as icon:
            assert (back.size, back.tobytes()) == (icon.size, icon.tobytes())


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A model of 4x4 gray images, the only one of the package."""
    for module in (model_folders, shipped_models, for_archive):
        monkeypatch.setattr(module, "SHIPPED", tmp_path / "pretrained")
    monkeypatch.setattr(for_archive, "TRIAL_STEPS", 3)
    model = random_model(small_config((4, 4), num_values=256, dim=16), torch.float32)
    with torch.no_grad():
        model.head[1].weight.mul_(4)  # it knows well what its samples are
    model.save_pretrained(tmp_path / "pretrained" / "small")
    identity = shipped_models.identity(model)
    (tmp_path / "pretrained" / "small" / shipped_models.IDENTITY).write_text(identity)
    return model


def test_images_that_a_model_of_the_package_knows_are_coded_by_it(axial: Axial, shipped):
    images = sample(shipped, 300, seed=1).numpy().astype(np.uint8)
    np.savez("images.npz", images=images)
    done = axial("compress", "images.npz", "a.axl", "--minutes", "0.01")
    assert done.status == 0
    with open_archive("a.axl") as archive:
        assert archive.header.needs is not None
        assert archive.header.needs.name == "small"
    assert axial("decompress", "a.axl", "back.npz").status == 0
    assert np.array_equal(np.load("back.npz")["images"], images)
    assert axial("compress", "images.npz", "b.axl", "--minutes", "0.01", "--embed", "--force").status == 0
    assert open_archive("b.axl").header.needs is None


def test_images_that_no_model_of_the_package_knows_get_a_new_one(axial: Axial, shipped):
    images = np.repeat(np.arange(0, 200, 40), 60)[:, None, None] + np.zeros((1, 4, 4), np.int64)
    np.savez("images.npz", images=images.astype(np.uint8))
    assert axial("compress", "images.npz", "a.axl", "--minutes", "0.01", "--force").status == 0
    assert open_archive("a.axl").header.needs is None


def test_changes_of_a_named_model_of_the_package_go_on_after_ctrl_c(axial: Axial, shipped, monkeypatch):
    images = sample(shipped, 300, seed=1).numpy().astype(np.uint8)
    np.savez("images.npz", images=images)
    usual = watching.score
    with monkeypatch.context() as patch:
        patch.setattr(watching, "score", lambda *given: signal.raise_signal(signal.SIGINT) or usual(*given))
        stopped = axial("compress", "images.npz", "a.axl", "--from", "small", "--minutes", "60")
    assert (stopped.status, "stopped at step 8" in stopped.err) == (0, True)
    again = axial("compress", "images.npz", "a.axl", "--minutes", "0.01", "--force")
    assert "resumed at step 8" in again.err
    with open_archive("a.axl") as archive:
        assert archive.header.needs is not None
        assert np.array_equal(archive.values.numpy(), images)
    assert axial("compress", "images.npz", "a.axl", "--minutes", "0.01", "--force", "--embed").status == 0
    with open_archive("a.axl") as archive:
        assert archive.header.needs is None
        assert np.array_equal(archive.values.numpy(), images)


def test_alike_frames_of_a_scan_are_channels_and_come_back_as_frames(axial: Axial):
    generator = np.random.default_rng(0)
    volume = generator.integers(0, 100, (6, 7, 16, 1))
    alike = (volume + generator.integers(0, 3, (6, 7, 16, 3))).astype(np.int16)
    other = generator.integers(0, 100, (6, 7, 16, 3)).astype(np.int16)
    for name, values, channels in (("alike", alike, 3), ("other", other, 1)):
        nibabel.Nifti1Image(values, np.diag([2, 3, 4, 1])).to_filename(f"{name}.nii.gz")
        assert axial("compress", f"{name}.nii.gz", "a.axl", "--minutes", "0.01", "--force").status == 0
        with open_archive("a.axl") as archive:
            assert archive.model.config.channels == channels
        assert axial("decompress", "a.axl", f"{name}_again.nii.gz").status == 0
        assert np.array_equal(np.asanyarray(nibabel.load(f"{name}_again.nii.gz").dataobj), values)
        shutil.rmtree("a.axl.run")
