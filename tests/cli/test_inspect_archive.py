"""What `axial inspect` says of an archive."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers.compression import compress, fingerprint, open_archive
from axial_transformers.models import AxialTransformer
from tests.conftest import Axial
from tests.scan_writer import make_scan
from tests.small_models import archiving_model, random_model, small_config

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def model() -> AxialTransformer:
    archiving_model().save_pretrained("model")
    return AxialTransformer.from_pretrained("model")


@pytest.fixture
def images() -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (140, 3, 5), np.uint8)
    np.savez("images.npz", images=values)
    return values


def words_of(axial: Axial, archive: str) -> str:
    done = axial("inspect", archive)
    assert done.status == 0, done.err
    return " ".join(done.out.split())


@pytest.mark.parametrize("embed", [True, False])
def test_an_archive_says_what_it_holds_and_how_to_open_it(axial: Axial, model, images, embed):
    words = ["model", "images.npz", "a.axl", "--force", "--json", *["--no-embed"] * (not embed)]
    metrics = json.loads(axial("compress", *words).out)
    facts = json.loads(axial("inspect", "a.axl", "--json").out)
    assert facts["bytes"] == {"all": metrics["bytes"], "model": metrics["model_bytes"], "stored files": 0}
    assert facts["fingerprint"] == fingerprint(open_archive("a.axl").model if embed else model).hex()
    said = words_of(axial, "a.axl")
    assert "holds images.npz: uint8 [140, 3, 5], with the same values" in said
    assert ("layout columns" in said, f"needs the model {facts['fingerprint'][:16]}" in said) == (embed, not embed)
    command = facts["to_open"].replace("MODEL", "model").split()
    assert axial(*command[1:]).status == 0
    assert np.array_equal(np.load(command[-1])["images"], images)


def test_images_scans_and_examples_from_python_are_named(axial: Axial, model):
    Path("photos").mkdir()
    for name in ("a", "b"):
        Image.new("L", (7, 4), 9).save(f"photos/{name}.png")
    Path("photos/notes.txt").write_text("of the holidays")
    assert axial("compress", "model", "photos", "a.axl", "--force").status == 0
    assert "holds 2 images, with the same pixels; 1 stored file" in words_of(axial, "a.axl")
    random_model(small_config((2, 4, 4), num_values=250)).float().save_pretrained("volumes")
    make_scan(Path("a.nii.gz"), np.random.default_rng(0).integers(0, 250, (3, 5, 7)).astype(np.uint8))
    assert axial("compress", "volumes", "a.nii.gz", "b.axl", "--force").status == 0
    assert "holds a.nii.gz: uint8 [3, 5, 7], with the same values" in words_of(axial, "b.axl")
    net = random_model(small_config((3, 4)), torch.float32)
    x = torch.zeros(2, 3, 4, 1, dtype=torch.long)
    Path("c.axl").write_bytes(compress(net, x, embed=True, force=True))
    assert "holds 2 examples of [3, 4, 1], from Python" in words_of(axial, "c.axl")


def test_a_damaged_archive_is_one_line(axial: Axial, refused, model, images):
    assert axial("compress", "model", "images.npz", "a.axl", "--force").status == 0
    whole = Path("a.axl").read_bytes()
    for damaged in (whole[:9], whole[:60], whole[:60] + b"x" + whole[61:], b"no archive"):
        Path("a.axl").write_bytes(damaged)
        refused("inspect", "a.axl")
