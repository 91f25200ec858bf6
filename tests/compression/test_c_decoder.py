"""The decoder in one C file, which `tools/axl/join.py` joins, restores the same bits as the package."""

import json
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from axial_transformers.compression import compress, compress_files, container
from axial_transformers.compression.embedded_model import fingerprint
from axial_transformers.data import load
from axial_transformers.data.grid import Grid
from axial_transformers.engine import GROUP
from axial_transformers.models import AxialTransformer
from tests.compression.archive_parts import HOSTILE, archive_of_changes, changed, forged, hostile, joined, parts
from tests.fuzz import archives
from tests.small_models import (
    CENTRED,
    CHUNKS_OF_64,
    ROUNDED_QUICKLY,
    VARIANTS,
    archiving_model,
    random_model,
    random_values,
    rounded_quickly,
    small_config,
)

JOIN = Path(__file__).parents[2] / "tools" / "axl" / "join.py"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
FLAGS = ["-std=c99", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-pedantic"]
MORE = {
    "few values": small_config((3, 4), 2, "columns", lowest=-70, levels=(-70, -3, 0, 41, 40_000), **CENTRED),
    "eight axes": small_config((1, 2, 1, 2, 1, 2, 1, 3), 2, "axis"),
    "eight axes with an encoder": small_config((2, 1, 2, 1, 1, 2, 1, 2), 2),
    "wide": small_config((3, 18), dim=76, heads=2, mlp_ratio=1.7, rotary=50.0, gated_convolutions=1, inner_layers=2),
    "tokens": small_config((3, 4), num_values=3000),
    "signed": small_config((3, 4), 2, "columns", num_values=700, lowest=-90, **CENTRED),
    "floats": small_config((3, 4), num_values=300, grid=(1e-5, -2.5e16), dropout=0.1, rotary=1.0625, **CENTRED),
}
"""What the variants lack: many axes, sizes beyond whole tiles and lanes, many values, and numbers of every length."""

LIMITED = ("sh", "-c", 'ulimit -v 100000; exec "$@"', "sh")
"""Runs a program in 100 MB."""

IN_NODE = """
import {WASI} from 'node:wasi'
import {readFileSync} from 'node:fs'
const [module, ...words] = process.argv.slice(1)
const wasi = new WASI({version: 'preview1', args: ['axl', ...words], preopens: {'/': '/'}})
const {instance} = await WebAssembly.instantiate(readFileSync(module), wasi.getImportObject())
process.exitCode = wasi.start(instance)
"""
PLATFORMS = {
    "aarch64-linux-musl": ["qemu-aarch64"],
    "riscv64-linux-musl": ["qemu-riscv64"],
    "s390x-linux-musl": ["qemu-s390x"],
    "wasm32-wasi": ["node", "--no-warnings", "--input-type=module", "-e", IN_NODE, "--"],
    "x86_64-windows-gnu": ["wine"],
}
"""Processors and systems of every kind, s390x with the highest byte first, and what runs their programs on Linux."""


@pytest.fixture(autouse=True)
def quickly():
    with ROUNDED_QUICKLY:
        yield


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    """Return the command in one C file."""
    source = tmp_path_factory.mktemp("axl") / "axl.c"
    subprocess.run([sys.executable, JOIN, source], check=True)
    return source


@pytest.fixture(scope="module")
def axl(one_file):
    """Return a function that runs the program: (archive, output) -> what it prints."""
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    program = one_file.with_name("axl")
    subprocess.run([COMPILER, *FLAGS, "-o", program, one_file, "-lm"], check=True)

    def run(*arguments: Path, within: tuple[str, ...] = ()) -> str:
        done = subprocess.run([*within, program, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            assert (done.returncode, done.stderr[:5], done.stderr.count("\n")) == (2, "axl: ", 1)
            raise ValueError(done.stderr)
        return done.stdout

    return run


def restored(axl, tmp_path, archive, *words, **options):
    """Return the array that the program restores of an archive."""
    (tmp_path / "x.axl").write_bytes(archive)
    dtype, _, shape = axl(tmp_path / "x.axl", tmp_path / "x", *words, **options).partition(" ")
    return np.fromfile(tmp_path / "x", dtype).reshape(json.loads(shape))


KINDS = [kind for kind in {**VARIANTS, **MORE} if "known" not in kind]
OFTEN = [*KINDS[::2], *MORE, *(kind for kind in KINDS if "pixels" in kind), "two values", "classes", "activity columns"]
"""Others are slow tests: layers and values of every kind occur in these."""


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in OFTEN)) for kind in KINDS])
def test_the_program_restores_random_values_of_random_models(kind, axl, tmp_path):
    model = random_model({**VARIANTS, **MORE}[kind], torch.float32)
    count = 150 if kind == "two values" else 3 if kind in MORE else GROUP + 2  # several chunks, one, several groups
    x = model.to_data(random_values(model, count))
    label = torch.arange(count) % (model.config.num_classes + 1) if model.config.num_classes else None
    for given in (label, None)[: 1 + (label is not None)]:
        with CHUNKS_OF_64:
            archive = compress(model, x, given, embed=True, force=True, verify=False)
        assert np.array_equal(restored(axl, tmp_path, archive), x.numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", ["2d", "centred axis", "ordinal columns", "rotary 3d"])
def test_the_program_restores_what_a_named_model_or_its_changes_have_coded(kind, dtype, axl, shipped, tmp_path):
    base = random_model(VARIANTS[kind], torch.float32)
    for tensor in base.state_dict().values():
        tensor.copy_(tensor.to(dtype))  # numbers of 16 bits have the same value in both
    shipped(base, dtype=dtype)
    folder = tmp_path / "pretrained" / "small"
    x = base.to_data(random_values(base, GROUP + 2))
    archives = [compress(base, x), archive_of_changes(changed(base, share=0.5), base, x)[0]]
    for archive in archives:
        (tmp_path / "x.axl").write_bytes(archive)
        with pytest.raises(ValueError, match="small"):
            axl(tmp_path / "x.axl", tmp_path / "x")
        kind_of_values, _, shape = axl("--model", folder, tmp_path / "x.axl", tmp_path / "x").partition(" ")
        assert np.array_equal(np.fromfile(tmp_path / "x", kind_of_values).reshape(json.loads(shape)), x.numpy())
    shipped(changed(base), dtype=torch.float32)
    with pytest.raises(ValueError, match="another model"):
        axl("--model", folder, tmp_path / "x.axl", tmp_path / "x")


def test_a_program_with_models_inside_needs_no_folder(tmp_path):
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    source, program = tmp_path / "axl.c", tmp_path / "axl"
    subprocess.run([sys.executable, JOIN, source, "digits"], check=True)
    subprocess.run([COMPILER, *FLAGS, "-O0", "-o", program, source, "-lm"], check=True)
    x = load("digits", split="test").values[:9]
    (tmp_path / "x.axl").write_bytes(compress(AxialTransformer.from_pretrained("digits"), x))
    subprocess.run([program, tmp_path / "x.axl", tmp_path / "x"], check=True, capture_output=True)
    assert np.array_equal(np.fromfile(tmp_path / "x", np.uint8), x.ravel())


def test_a_damaged_first_line_or_model_is_refused_in_one_line(axl, shipped, tmp_path):
    base = shipped(random_model(VARIANTS["2d"], torch.float32))
    folder = tmp_path / "pretrained" / "small"
    archive, _ = archive_of_changes(changed(base), base, random_values(base, 3))
    header, contents = parts(archive)
    draw = Random(0)
    wrong = [archive[:length] for length in range(0, 200, 7)]
    wrong += [archive[:at] + bytes([archive[at] ^ 1]) + archive[at + 1 :] for at in range(0, 200, 3)]
    for _ in range(40):
        content = bytearray(contents[0])
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        wrong.append(joined(header, [bytes(content), *contents[1:]]))
    for content in wrong:
        (tmp_path / "x.axl").write_bytes(content)
        with pytest.raises(ValueError, match="axl: "):
            axl("--model", folder, tmp_path / "x.axl", tmp_path / "x")
    tensors = (folder / "model.safetensors").read_bytes()
    (tmp_path / "x.axl").write_bytes(archive)
    for length in (0, 7, 100, len(tensors) - 1):
        (folder / "model.safetensors").write_bytes(tensors[:length])
        with pytest.raises(ValueError, match="axl: "):
            axl("--model", folder, tmp_path / "x.axl", tmp_path / "x")


@pytest.mark.slow
@pytest.mark.parametrize("target", PLATFORMS)
def test_the_program_restores_random_values_on_another_processor(target, one_file, tmp_path):
    """Cross-compiled by ziglang, and run by an emulator where there is one."""
    runner = PLATFORMS[target]
    if find_spec("ziglang") is None or shutil.which(runner[0]) is None:
        pytest.skip(f"there is no ziglang or no {runner[0]}")
    program = tmp_path / "axl.exe"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS]
    subprocess.run([*compiler, "-o", program, one_file, "-lm"], check=True)

    def emulated(*arguments: Path) -> str:
        return subprocess.run([*runner, program, *arguments], capture_output=True, text=True, check=True).stdout

    for kind in ("2d", "lstm", "centred columns", "rotary 3d", "pixels of clips", "gated convolutions"):
        model = random_model(VARIANTS[kind], torch.float32)
        archive = compress(model, x := random_values(model, 5), embed=True, force=True, verify=False)
        assert np.array_equal(restored(emulated, tmp_path, archive), x.numpy())


def test_files_come_back_as_they_were_and_pictures_as_raw_values(axl, tmp_path):
    from PIL import Image

    source, target, model = tmp_path / "source", tmp_path / "target", archiving_model(3)
    source.mkdir()
    target.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 7, 9, 3), dtype=np.uint8)
    for i, each in enumerate(pixels):
        Image.fromarray(each).save(source / f"{i} é.png")
    (source / "notes.txt").write_bytes(b"notes\n" * 50)
    compress_files(model, source, tmp_path / "x.axl", force=True)
    lines = axl(tmp_path / "x.axl", target)
    assert lines == "0 é.png.raw: |u1 [7, 9, 3]\n1 é.png.raw: |u1 [7, 9, 3]\nnotes.txt: as it was\n"
    for i, each in enumerate(pixels):
        assert (target / f"{i} é.png.raw").read_bytes() == each.tobytes()
    assert (target / "notes.txt").read_bytes() == b"notes\n" * 50


@pytest.mark.parametrize(
    ("dtype", "grid"),
    [
        ("|b1", None), ("|u1", None), (">i2", None), ("<u4", None), (">i8", None),
        ("<f2", (0.1, 0.0)), (">f4", (1 / 3, -2.5)), ("<f8", (0.37, 5.0)),
    ],
)  # fmt: skip
def test_an_array_of_every_type_comes_back_as_its_values(dtype, grid, axl, tmp_path):
    fields = {"num_values": 40, "lowest": -3, "values": "ordinal", "mixtures": 2, "grid": grid}
    model = random_model(small_config((2, 4, 4), 1, "columns", **fields), torch.float32)
    whole = np.random.default_rng(0).integers(0, 2 if dtype == "|b1" else 37, (2, 1, 5, 7, 9))
    values = Grid(*grid).floats(whole, dtype) if grid else whole.astype(dtype)
    np.save(tmp_path / "a.npy", np.asfortranarray(values))
    compress_files(model, tmp_path / "a.npy", tmp_path / "a.axl", force=True, verify=False)
    found = restored(axl, tmp_path, (tmp_path / "a.axl").read_bytes())
    assert (found.dtype, found.shape) == (values.dtype.newbyteorder("<"), (2, 1, 5, 7, 9, 1))
    assert found.tobytes() == values.astype(found.dtype).tobytes()


def test_damage_is_refused_in_one_line(axl, tmp_path):
    model = random_model(VARIANTS["centred rows"], torch.float32)
    label = torch.arange(9) % 4
    archive = compress(model, random_values(model, 9), label, embed=True, force=True, verify=False)
    without = compress(model, random_values(model, 2), verify=False)
    for what, wrong in {**forged(archive), "no model inside": without}.items():
        with pytest.raises(ValueError, match="axl: "):
            restored(axl, tmp_path, wrong)
        assert not (tmp_path / "x").exists(), what


def test_a_hostile_configuration_is_refused_within_a_second_and_100_megabytes(axl, tmp_path):
    model = random_model(VARIANTS["2d"], torch.float32)
    archive = compress(model, random_values(model, 2), embed=True, force=True, verify=False)
    for fields in HOSTILE:
        wrong, began = hostile(archive, fields), time.monotonic()
        with pytest.raises(ValueError, match="axl: "):
            restored(axl, tmp_path, wrong, within=LIMITED)
        assert time.monotonic() - began < 1, str(fields)[:50]


def test_memory_has_a_limit_in_proportion_to_the_archive_that_can_be_raised(axl, tmp_path):
    model = random_model(small_config((500, 500, 500), dim=1, heads=1), torch.float32)
    once, content, *_ = rounded_quickly(model)
    header = container.Header(
        fingerprint=fingerprint(once), shape=model.config.shape, channels=1, num_values=5, carries_model=True,
        chunks=(container.ChunkEntry(0, 0, 0), container.ChunkEntry(200, 0, 0)),
    )  # fmt: skip
    archive = joined(header, [content, b"\1" * 16])
    for words, said in [
        ((), r"more than 1\d\d MiB of memory"),
        (("90",), "more than 90 MiB"),
        (("x",), "MIB must be a"),
    ]:
        with pytest.raises(ValueError, match=said):
            restored(axl, tmp_path, archive, *words, within=LIMITED)
    model = random_model(VARIANTS["2d"], torch.float32)
    archive = compress(model, x := random_values(model, 2), embed=True, force=True, verify=False)
    assert np.array_equal(restored(axl, tmp_path, archive, "500"), x.numpy())


@pytest.mark.slow
def test_mutated_archives_give_what_was_written_or_an_error_of_one_line(one_file, tmp_path):
    """Under the address and undefined-behaviour sanitizers; the seconds of a call are bounded."""
    program, path, target = tmp_path / "axl", tmp_path / "x.axl", tmp_path / "x"
    checks = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    built = (
        COMPILER
        and not subprocess.run(
            [COMPILER, *FLAGS, "-O0", *checks, "-o", program, one_file, "-lm"], capture_output=True, check=False
        ).returncode
    )
    if not built:
        pytest.skip("there is no C compiler with sanitizers")
    seeds, draw, right = archives.seeds(tmp_path), Random(0), dict[str, list[bytes]]()
    sound = [(name, content, False) for name, content in seeds.items()]
    for name, content, mended in [*sound, *(archives.changed(seeds, draw) for _ in range(5000))]:
        path.write_bytes(content)
        if name == archives.FOLDER:
            target.mkdir()
        done = subprocess.run(
            [program, path, target], capture_output=True, text=True, errors="replace", timeout=30, check=False,
            env={"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=8"},
        )  # fmt: skip
        files = [file.read_bytes() for file in (target, *sorted(target.rglob("*"))) if file.is_file()]
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
        if done.returncode:
            lines = done.stderr.splitlines()
            errors = [line for line in lines if line.startswith("axl: ")]
            assert (done.returncode, errors) == (2, lines[-1:]), (path, done.stderr)
        else:
            assert files == right.setdefault(name, files) or mended, f"{path}: other values from a damaged archive"
    assert right.keys() == seeds.keys()
