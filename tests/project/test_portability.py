"""Other systems, as far as they can be shown on this one: their missing modules, calls and encodings, each faked."""

import errno
import io
import os
import shutil
import sys
from pathlib import Path, PureWindowsPath

import pytest
import torch

from axial_transformers import machine
from axial_transformers.cli import main
from axial_transformers.compression import description
from axial_transformers.storage.files import folder_written_whole, written_whole
from axial_transformers.training import metrics


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls on files that fail as those of Windows do."""
    open_, fsync, replace, reading = os.open, os.fsync, os.replace, set[int]()

    def opened(path, flags, *rest, **more):
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        descriptor = open_(path, flags, *rest, **more)
        (reading.discard if flags & (os.O_WRONLY | os.O_RDWR) else reading.add)(descriptor)
        return descriptor

    def synchronised(descriptor):
        if descriptor in reading:
            raise OSError(errno.EBADF, "Bad file descriptor")
        fsync(descriptor)

    def moved(source, target):
        if Path(source).is_dir() and Path(target).is_dir():
            raise PermissionError(errno.EACCES, "Access is denied", str(source))
        replace(source, target)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(shutil, "_use_fd_functions", False)
    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", synchronised)
    monkeypatch.setattr(os, "replace", moved)


def test_files_and_folders_appear_whole_on_windows(windows, tmp_path):
    for text in ("first", "second"):
        with written_whole(tmp_path / "file") as aside:
            aside.write_text(text)
        assert (tmp_path / "file").read_text() == text
    (tmp_path / "folder").mkdir()  # empty: it may be replaced
    for replace in (False, True):
        with folder_written_whole(tmp_path / "folder", replace) as aside:
            (aside / "part").mkdir()
            (aside / "part" / "file").write_text(str(replace))
        assert (tmp_path / "folder" / "part" / "file").read_text() == str(replace)
    with pytest.raises(FileExistsError), folder_written_whole(tmp_path / "folder"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_file_system_that_synchronises_no_folders_is_no_error(monkeypatch, tmp_path):
    fsync = os.fsync

    def synchronised(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(refusal, "refused")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", synchronised)
    refusal = errno.EINVAL
    with written_whole(tmp_path / "file") as aside:
        aside.write_text("text")
    refusal = errno.EIO
    with pytest.raises(OSError, match="refused"), written_whole(tmp_path / "file") as aside:
        aside.write_text("other")


def test_memory_is_unknown_where_nothing_tells_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "resource", None)  # importing it fails
    for module, name in [(machine, "MEMORY"), (metrics, "STATUS")]:
        monkeypatch.setattr(module, name, tmp_path / "none")
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    assert machine.free_memory() is None
    assert metrics.peak_memory(torch.device("cpu")) == 0


def test_the_consoles_own_stream_of_windows_is_kept(monkeypatch):
    class Console(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    console = Console(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "platform", "win32")
    for name in ("stdout", "__stdout__"):
        monkeypatch.setattr(sys, name, console)
    assert main(["--version"]) == 0
    assert sys.stdout is console
    print("\u2028±", file=console, flush=True)  # one letter that it has not, and one that it has
    assert console.buffer.getvalue().splitlines()[-1] == b"\\u2028\xb1"


@pytest.mark.parametrize("name", ["a\\..\\..\\b.png", "C:x.png", "\\\\host\\b.png"])
def test_names_that_lead_elsewhere_on_windows_are_refused_there(monkeypatch, name):
    description._check_names([name])
    monkeypatch.setattr(description, "PurePath", PureWindowsPath)
    with pytest.raises(ValueError, match="outside"):
        description._check_names([name])
