"""The decoder in one C file, `tools/axl/axl.c`, restores the same bits as the package."""

import io
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from axial_transformers.compression import compress, compress_files, container
from axial_transformers.kernels.exact.definition import GROUP
from tests.small_models import (
    CENTRED,
    CHUNKS_OF_64,
    NO_WEBP,
    VARIANTS,
    archiving_model,
    random_model,
    random_values,
    small_config,
)

pytest.importorskip("numba", reason="exact kernels are compiled by numba")

SOURCE = Path(__file__).parents[2] / "tools" / "axl" / "axl.c"
VECTORS = Path(__file__).parents[1] / "data" / "archives"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
FLAGS = ["-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-pedantic"]
MORE = {
    "eight axes": small_config((1, 2, 1, 2, 1, 2, 1, 3), 2, "axis"),
    "eight axes with an encoder": small_config((2, 1, 2, 1, 1, 2, 1, 2), 2),
    "wide": small_config((3, 18), dim=76, heads=2, mlp_ratio=1.7, rotary=50.0, convolution=1, inner_layers=2),
    "tokens": small_config((3, 4), num_values=3000),
    "signed": small_config((3, 4), 2, "columns", num_values=700, lowest=-90, **CENTRED),
    "floats": small_config((3, 4), num_values=300, grid=(1e-5, -2.5e16), dropout=0.1, rotary=1.0625, **CENTRED),
}
"""What the variants lack: many axes, sizes beyond whole tiles and lanes, many values, and numbers of every length."""


@pytest.fixture(scope="module")
def axl(tmp_path_factory):
    """Return a function that runs the program: (model folder, archive, output, ..) -> what it prints."""
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("axl") / "axl"
    subprocess.run([COMPILER, *FLAGS, "-o", program, SOURCE, "-lm"], check=True)

    def run(*arguments: Path) -> str:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            assert (done.returncode, done.stderr[:5], done.stderr.count("\n")) == (2, "axl: ", 1)
            raise ValueError(done.stderr)
        return done.stdout

    return run


def restored(axl, tmp_path, model, archive, label=None):
    """Return the array that the program restores of an archive."""
    model.save_pretrained(tmp_path / "model", overwrite=True)
    (tmp_path / "x.axl").write_bytes(archive)
    more = []
    if label is not None:
        more = [tmp_path / "labels"]
        more[0].write_text("\n".join(map(str, label.tolist())))
    return read(axl(tmp_path / "model", tmp_path / "x.axl", tmp_path / "x", *more), tmp_path / "x")


def read(line, path):
    dtype, _, shape = line.partition(" ")
    return np.fromfile(path, dtype).reshape(tuple(map(int, shape.strip("[]\n").split(", "))))


@pytest.mark.parametrize("kind", [kind for kind in {**VARIANTS, **MORE} if "known" not in kind])
def test_the_program_restores_random_values_of_random_models(kind, axl, tmp_path):
    model = random_model({**VARIANTS, **MORE}[kind], torch.float32)
    count = GROUP + 2
    x = random_values(model, count) + model.config.lowest
    label = torch.arange(count) % (model.config.num_classes + 1) if model.config.num_classes else None
    with NO_WEBP:
        archive = compress(model, x, label, verify=False)
    assert np.array_equal(restored(axl, tmp_path, model, archive, label), x.numpy())


def test_weights_of_16_bits_several_chunks_and_images_that_zlib_stores_are_restored(axl, tmp_path):
    model = random_model(small_config((4, 6), num_values=3000)).half().float()
    x = random_values(model, 150)
    x[::3] = 1234
    with CHUNKS_OF_64:
        archive = compress(model, x, verify=False)
    assert np.array_equal(restored(axl, tmp_path, model.half(), archive), x.numpy())


def test_images_without_labels_are_restored(axl, tmp_path):
    model = random_model(VARIANTS["classes"], torch.float32)
    x = random_values(model, 3)
    assert np.array_equal(restored(axl, tmp_path, model, compress(model, x, verify=False)), x.numpy())


@pytest.mark.parametrize("name", ["tokens", "numbers"])
def test_the_program_restores_the_shipped_archives(name, axl, tmp_path):
    line = axl(VECTORS / name, VECTORS / f"{name}.axl", tmp_path / "x")
    assert np.array_equal(read(line, tmp_path / "x"), np.load(VECTORS / f"{name}.npz")["values"])


def test_webp_is_refused_in_one_line(axl, tmp_path):
    (tmp_path / "labels").write_text(" ".join(str(i % 4) for i in range(70)))
    with pytest.raises(ValueError, match="WebP"):
        axl(VECTORS / "model", VECTORS / "labelled.axl", tmp_path / "x", tmp_path / "labels")
    assert not (tmp_path / "x").exists()


def test_files_come_back_as_they_were_and_pictures_as_raw_values(axl, tmp_path):
    from PIL import Image

    source, target, model = tmp_path / "source", tmp_path / "target", archiving_model(3)
    source.mkdir()
    target.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 7, 9, 3), dtype=np.uint8)
    for i, each in enumerate(pixels):
        Image.fromarray(each).save(source / f"{i} é.png")
    (source / "notes.txt").write_bytes(b"notes\n" * 50)
    model.save_pretrained(tmp_path / "model")
    with NO_WEBP:
        compress_files(model, source, tmp_path / "x.axl", other_sizes="tile")
    lines = axl(tmp_path / "model", tmp_path / "x.axl", target)
    assert lines == "0 é.png.raw: |u1 [7, 9, 3]\n1 é.png.raw: |u1 [7, 9, 3]\nnotes.txt: as it was\n"
    for i, each in enumerate(pixels):
        assert (target / f"{i} é.png.raw").read_bytes() == each.tobytes()
    assert (target / "notes.txt").read_bytes() == b"notes\n" * 50


def test_damage_and_other_models_are_refused_in_one_line(axl, tmp_path):
    model = random_model(VARIANTS["centred columns"], torch.float32)
    archive = compress(model, random_values(model, 9), verify=False)
    header = container.read_header(io.BytesIO(archive))
    content = bytearray(archive[header.start(0) :])
    content[20] ^= 4
    entry = header.chunks[0]._replace(checksum=zlib.crc32(content))
    wrong = {
        "ends early": archive[:-3],
        "checksum differs": archive[:-1] + b"?",
        "no archive": b"PK" + archive[2:],
        "format version 9": archive[:8] + b"\x09" + archive[9:],
        "damage": replace(header, chunks=(entry,)).pack() + content,
        "another model": replace(header, fingerprint=bytes(32)).pack() + archive[header.start(0) :],
    }
    for reason, changed in wrong.items():
        with pytest.raises(ValueError, match=reason):
            restored(axl, tmp_path, model, changed)
        assert not (tmp_path / "x").exists()


def test_other_weights_than_the_configuration_needs_are_refused(axl, tmp_path):
    model = random_model(VARIANTS["2d"], torch.float32)
    archive = compress(model, random_values(model, 2), verify=False)
    restored(axl, tmp_path, model, archive)
    config = tmp_path / "model" / "config.json"
    text = config.read_text()
    wrong = {
        "outer_layers must": ('"shape": [', '"shape": [1048576,'),
        "config.json is not": ('"inner_layers": 1', '"more": 1'),
        "heads must be": ('"heads": 2', '"heads": null'),
        "another model": ('"dim": 8', '"dim": 16'),
    }
    for reason, (old, new) in wrong.items():
        assert old in text
        config.write_text(text.replace(old, new, 1))
        with pytest.raises(ValueError, match=reason):
            axl(tmp_path / "model", tmp_path / "x.axl", tmp_path / "x")
