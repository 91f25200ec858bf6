"""Compiled code is kept on disk for one content of the kernels, and compilation is announced once."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import axial_transformers

pytest.importorskip("numba", reason="kernels are compiled by numba")
import numba
from numba import njit
from numba.core.event import Event, EventStatus

from axial_transformers.kernels import compilation, compilation_time

SCRIPT = """
import sys
import numpy as np
import torch
from axial_transformers import AxialTransformer, AxialTransformerConfig, sample
from axial_transformers.layers.initialisation import randomise

sizes = {"shape": (5,), "num_values": 40, "dim": 12, "heads": 2, "outer_layers": (), "inner_layers": 1}
model = AxialTransformer(AxialTransformerConfig(**sizes, inner="lstm")).eval()
randomise(model, torch.Generator().manual_seed(0))
np.savez(sys.argv[1], samples=sample(model, 6, seed=0, compile=True))
"""


def run_in(folder: Path) -> tuple[dict[str, np.ndarray], str]:
    """The outputs of the package's copy in `folder`, and what it says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    command = [sys.executable, "-c", SCRIPT, "outputs.npz"]
    environment |= {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    ran = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return dict(np.load(folder / "outputs.npz")), ran.stderr


def test_numba_without_its_compiler_is_a_value_error_which_commands_print_as_one_line():
    command = [sys.executable, "-c", "import axial_transformers.kernels.compilation"]
    ran = subprocess.run(command, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("ValueError: NUMBA_DISABLE_JIT is set")


@pytest.mark.slow
def test_kernels_are_compiled_again_when_a_file_that_they_take_constants_from_changes(tmp_path):
    source = Path(axial_transformers.__file__).parent
    shutil.copytree(source, tmp_path / source.name)
    before, _ = run_in(tmp_path)
    tiles = tmp_path / source.name / "kernels" / "register_tiles.py"
    text = tiles.read_text()
    assert "PANEL = 4, 2 * LANES" in text
    tiles.write_text(text.replace("PANEL = 4, 2 * LANES", "PANEL = 2, 1 * LANES"))
    after, said = run_in(tmp_path)
    for name, outputs in before.items():
        np.testing.assert_allclose(after[name], outputs, rtol=0, atol=1e-5, err_msg=name)
    assert said.count("compiling kernels") == 1, said


@pytest.fixture(autouse=True)
def _kept_here(tmp_path, monkeypatch):
    """Compiled code is kept in the test's own folder."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))


def twice(x):
    return 2 * x


DAMAGE = {
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "one bit": lambda content: content[:99] + bytes([content[99] ^ 4]) + content[100:],
    "lengthened": lambda content: content + b"x",
    "another file": lambda content: b"{}",
}


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_code_on_disk_is_compiled_again_and_replaced(tmp_path, suffix, damage):
    assert compilation.compiled(twice)(21) == 42
    (file,) = tmp_path.rglob(f"*.{suffix}")
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    for loaded in (0, 1):
        kernel = compilation.compiled(twice)
        assert kernel(21) == 42
        assert sum(kernel.stats.cache_hits.values()) == loaded


def test_code_of_other_types_is_not_taken_when_the_index_is_lost(tmp_path):
    compilation.compiled(twice)(21)
    (code,) = tmp_path.rglob("*.nbc")
    (index,) = tmp_path.rglob("*.nbi")
    before = code.read_bytes()
    index.unlink()
    assert compilation.compiled(twice)(0.5) == 1.0
    assert len([*tmp_path.rglob("*.nbc")]) == 2
    assert code.read_bytes() == before


def test_code_is_kept_in_a_folder_named_by_the_digest_of_the_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "new"))
    for digest in ("0123456789abcdef" * 4, "f" * 64):
        monkeypatch.setattr(compilation, "sources_digest", lambda found=digest: found)
        compilation.code_folder.cache_clear()
        kernel = compilation.compiled(twice)
        assert kernel(21) == 42
        assert not kernel.stats.cache_hits
        assert [*(tmp_path / "new" / digest[:16]).rglob("*.nbc")]
        assert stat.S_IMODE((tmp_path / "new" / digest[:16]).stat().st_mode) == 0o700
    assert str(tmp_path / "new") == numba.config.CACHE_DIR
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Path(compilation.compiled(twice).stats.cache_path).is_relative_to(tmp_path / "axial-transformers")


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("why", ["another user owns", "every user may write to"])
def test_a_folder_that_others_can_write_to_is_refused_with_one_warning(tmp_path, monkeypatch, caplog, why, inner):
    folder = tmp_path / "code"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    unsafe = folder / compilation.sources_digest()[:16] if inner else folder
    unsafe.mkdir(parents=True)
    if why == "every user may write to":
        unsafe.chmod(0o777)
    elif os.getuid() == 0:
        os.chown(unsafe, 12345, -1)
    elif inner:
        pytest.skip("only root can give a folder away")
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    for _ in range(2):
        kernel = compilation.compiled(twice)
        assert kernel(21) == 42
        assert kernel.stats.cache_path is None
    (record,) = [each for each in caplog.records if "not kept" in each.getMessage()]
    assert f"{why} {unsafe}" in record.getMessage()
    assert not [*tmp_path.rglob("*.nb*")]


def test_a_kernel_runs_where_its_code_cannot_be_kept(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compilation.CheckedFiles, "_save_data", full)
    assert compilation.compiled(twice)(21) == 42
    assert not [*tmp_path.rglob("*.nb*")]


def test_code_with_a_closure_is_kept_by_what_the_closure_holds():
    def times(count):
        @compilation.part
        def product(x):
            return count * x

        return compilation.compiled(lambda x: product(x))

    for kept in (0, 1):
        for count in (2, 3):
            kernel = times(count)
            assert kernel(21) == 21 * count
            assert sum(kernel.stats.cache_hits.values()) == kept


def test_a_part_of_kernels_is_called_by_kernels_and_never_by_python():
    part = compilation.exact_part(twice)
    assert njit(lambda x: part(x) + 1)(21) == 43
    with pytest.raises(TypeError, match="twice is a part of kernels"):
        part(21)


def test_a_compilation_is_announced_once_with_its_duration_and_only_that_of_kernels(caplog):
    def kernel():
        pass

    def event(module):
        kernel.__module__ = module
        return Event("numba:compile", EventStatus.START, data={"dispatcher": njit(kernel)})

    announcement = compilation.Announcement()
    announcement.notify(event("another_package.kernels"))
    assert not caplog.records
    for _ in range(2):
        announcement.notify(event("axial_transformers.kernels.rows"))
    (record,) = caplog.records
    assert record.name == "axial_transformers"
    assert record.levelname == "WARNING"
    assert "seconds" in record.getMessage()


def test_time_spent_compiling_is_known():
    before = compilation_time()
    assert njit(twice)(2) == 4
    assert compilation_time() > before
