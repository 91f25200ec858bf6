"""What `axial inspect` says of an archive."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers.compression import compress, decompress, fingerprint, open_archive
from axial_transformers.models import AxialTransformer
from tests.conftest import Axial
from tests.scan_writer import make_scan
from tests.small_models import CHUNKS_OF_64, archiving_model, random_model, small_config

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
    metrics = json.loads(
        axial("compress", "model", "images.npz", "a.axl", "--force", "--json", *["--embed"] * embed).out
    )
    facts = json.loads(axial("inspect", "a.axl", "--json").out)
    assert facts["bytes"]["all"] == sum(facts["bytes"].values()) / 2 == Path("a.axl").stat().st_size
    assert facts["bytes"]["model"] == metrics["model_bytes"]
    assert facts["bits_per_dim"] == metrics["bits_per_dim"]["archive"]
    words = words_of(axial, "a.axl")
    assert "holds array, 1: images; uint8 140 x 3 x 5 bytes" in words
    if embed:
        weights = sum(weight.numel() for weight in model.parameters())
        assert f"weights {weights:,}, rounded, in {metrics['model_bytes']:,} bytes" in words
        assert "layout columns" in words
        assert "weights counted" in words
        assert facts["model"]["fingerprint"] == fingerprint(open_archive("a.axl").model).hex()
    else:
        assert f"needed {fingerprint(model).hex()[:16]}, which is not in the archive" in words
    command = facts["to_open"]["command"].replace("MODEL", "model").split()
    assert axial(*command[1:]).status == 0
    assert np.array_equal(np.load(command[-1])["images"], images)
    names = {"axial.open_archive": open_archive, "axial.decompress": decompress, "model": model}
    for name in names:
        facts["to_open"]["Python"] = facts["to_open"]["Python"].replace(name, f"names[{name!r}]")
    assert np.array_equal(eval(facts["to_open"]["Python"], {"names": names})[..., 0], images)


def test_images_and_kept_files_are_named(axial: Axial, model):
    Path("photos").mkdir()
    for name in ("a", "b"):
        Image.new("L", (7, 4), 9).save(f"photos/{name}.png")
    Path("photos/notes.txt").write_text("of the holidays")
    assert axial("compress", "model", "photos", "a.axl", "--force", "--other-sizes", "tile").status == 0
    words = words_of(axial, "a.axl")
    assert "holds images, 2: a.png, b.png; files as they are, 1: notes.txt" in words
    assert "axial decompress MODEL a.axl restored/" in words
    assert json.loads(axial("inspect", "a.axl", "--json").out)["holds"]["values"] == 2 * 4 * 7


def test_a_scan_is_named_with_shape_and_type(axial: Axial):
    random_model(small_config((2, 4, 4), num_values=250)).float().save_pretrained("model")
    make_scan(Path("a.nii.gz"), np.random.default_rng(0).integers(0, 250, (3, 5, 7)).astype(np.uint8))
    assert axial("compress", "model", "a.nii.gz", "a.axl", "--force").status == 0
    words = words_of(axial, "a.axl")
    assert "holds scan, 1: a.nii.gz; uint8 3 x 5 x 7 x 1" in words
    assert "axial decompress MODEL a.axl restored.nii.gz" in words


def test_an_archive_from_python_is_opened_in_python(axial: Axial):
    net = random_model(small_config((3, 4), num_classes=3), torch.float32)
    x, label = torch.zeros(2, 3, 4, 1, dtype=torch.long), torch.tensor([0, 2])
    for name, embed in (("a.axl", False), ("b.axl", True)):
        Path(name).write_bytes(compress(net, x, label, embed=embed, force=True, metadata=b"anything"))
    assert "conditions label, not stored" in words_of(axial, "a.axl")
    assert "conditions label, stored" in words_of(axial, "b.axl")
    assert "holds examples from Python; 2 x 3 x 4 x 1" in words_of(axial, "b.axl")
    assert json.loads(axial("inspect", "a.axl", "--json").out)["to_open"] == {
        "Python": "axial.decompress(model, open('a.axl', 'rb'), label=label)"
    }


def test_a_damaged_archive_is_one_line_or_says_what_can_be_saved(axial: Axial, refused, model, images):
    with CHUNKS_OF_64:
        assert axial("compress", "model", "images.npz", "a.axl", "--force", "--embed").status == 0
    whole = Path("a.axl").read_bytes()
    start = len(whole) - json.loads(axial("inspect", "a.axl", "--json").out)["bytes"]["values"] - 1
    Path("a.axl").write_bytes(whole[:-1])
    assert "damaged 1 of 3 chunks: --salvage saves the others" in words_of(axial, "a.axl")
    for damaged in (whole[:9], whole[:60], whole[:60] + b"x" + whole[61:], b"no archive", whole[:start]):
        Path("a.axl").write_bytes(damaged)
        refused("inspect", "a.axl")
    assert "nowhere.axl" in refused("inspect", "nowhere.axl")
    assert "--devices" in refused("inspect", "a.axl", "--devices", 2)
