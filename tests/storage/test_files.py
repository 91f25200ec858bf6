"""Outputs appear whole or not at all."""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from axial_transformers.storage.files import folder_written_whole, require_writable, written_whole


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def write_half_of(output: AbstractContextManager[Path]) -> None:
    with output as aside:
        (aside / "file" if aside.is_dir() else aside).write_text("half")
        raise OSError("disk full")


def test_a_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "new" / "picture.png"
    with written_whole(path) as aside:
        assert aside.suffix == ".png"
        aside.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(path.parent) == ["picture.png"]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"):
        write_half_of(written_whole(path))
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_folder_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "new" / "folder"
    with folder_written_whole(path) as aside:
        (aside / "inside").mkdir()
        (aside / "inside" / "file").write_text("new")
        assert not path.exists()
    assert (path / "inside" / "file").read_text() == "new"
    assert names(path.parent) == ["folder"]


def test_a_failed_folder_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="disk full"):
        write_half_of(folder_written_whole(tmp_path / "folder"))
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_exists_is_not_overwritten(tmp_path, kind):
    path = tmp_path / "there"
    if kind == "file":
        path.write_text("old")
    else:
        path.mkdir()
        (path / "file").write_text("old")
    with pytest.raises(FileExistsError, match="there exists already"), folder_written_whole(path):
        raise AssertionError("not reached")
    assert names(tmp_path) == ["there"]


def write_while_another_does(output: Callable[[], AbstractContextManager[Path]]) -> None:
    with output() as later, output() as first:  # which ends first
        for aside in (later, first):
            (aside / "file" if aside.is_dir() else aside).write_text("first" if aside == first else "later")


def without_links(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("link", [os.link, without_links])
def test_of_two_writers_of_one_new_file_the_first_to_end_succeeds_and_the_other_is_told(tmp_path, monkeypatch, link):
    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "file.npz"
    with pytest.raises(FileExistsError, match=r"file\.npz exists already"):
        write_while_another_does(lambda: written_whole(path, replace=False))
    assert (path.read_text(), names(tmp_path)) == ("first", ["file.npz"])
    with pytest.raises(FileExistsError, match="exists already"), written_whole(path, replace=False):
        raise AssertionError("not reached")


def test_of_two_writers_of_one_new_folder_the_first_to_end_succeeds_and_the_other_is_told(tmp_path):
    with pytest.raises(FileExistsError, match="model exists already"):
        write_while_another_does(lambda: folder_written_whole(tmp_path / "model"))
    assert ((tmp_path / "model" / "file").read_text(), names(tmp_path)) == ("first", ["model"])


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_what_is_written_has_the_modes_of_new_files_and_folders(tmp_path, umask):
    before = os.umask(umask)
    try:
        with folder_written_whole(tmp_path / "folder") as aside:
            (aside / "private").touch(mode=0o600)
        with written_whole(tmp_path / "file") as aside:
            aside.write_text("new")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("folder", "folder/private", "file")]
    assert modes == [0o777 & ~umask, 0o666 & ~umask, 0o666 & ~umask]


def test_temporary_names_cannot_be_guessed_and_links_are_not_followed(tmp_path):
    path, names = tmp_path / "file.png", set()
    for _ in range(3):
        with written_whole(path) as aside:
            assert stat.S_ISREG(aside.lstat().st_mode)  # exists already: nobody can put a link there
            assert str(os.getpid()) not in aside.name.split(".")
            assert aside.match(".*.part*")
            names.add(aside.name)
    assert len(names) == 3
    (tmp_path / "link.png").symlink_to(path)
    path.write_text("kept")
    with written_whole(tmp_path / "link.png") as aside:
        aside.write_text("new")
    assert path.read_text() == "kept"


def test_devices_folders_and_pipes_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "pipe", tmp_path / "folder", Path("/dev/null")):
        with pytest.raises(FileExistsError, match="no regular file"), written_whole(path):
            raise AssertionError("not reached")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(FileExistsError, match="exists already"), folder_written_whole(tmp_path / "link"):
        raise AssertionError("not reached")
    assert sorted(names(tmp_path)) == ["folder", "link", "pipe"]


@pytest.mark.skipif(os.name != "posix", reason="folders that POSIX synchronises")
@pytest.mark.parametrize("before", ["nothing", "an old one"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_content_is_on_disk_before_it_has_its_name_and_the_name_at_the_end(tmp_path, monkeypatch, kind, before):
    path, events = tmp_path / "new" / "target", []

    def fsync(descriptor: int) -> None:
        number = path.stat().st_ino if path.exists() else None
        status = os.fstat(descriptor)
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        events.append((status.st_ino, size, number))

    def write(text: str) -> None:
        if kind == "file":
            with written_whole(path) as aside:
                aside.write_text(text)
            return
        with folder_written_whole(path, replace=True) as aside:
            (aside / "inside").mkdir()
            for name in ("file", "inside/file"):
                (aside / name).write_text(text)

    if before != "nothing":
        write("old")
    monkeypatch.setattr(os, "fsync", fsync)
    write("a new one")
    target, folder = path.stat().st_ino, path.parent.stat().st_ino
    for file in (path, *path.rglob("*")):
        seen = [
            number
            for inode, size, number in events
            if (inode, size) == (file.stat().st_ino, 9 if file.is_file() else None)
        ]
        assert seen, file
        assert target not in seen
    assert events[-1] == (folder, None, target)


@pytest.mark.parametrize("suffix", ["", ".png", "." + "s" * 100])
@pytest.mark.parametrize("letter", ["a", "\U0001f600"])
def test_names_may_be_as_long_as_the_file_system_takes_them(tmp_path, letter, suffix):
    name = letter * ((255 - len(suffix)) // len(letter.encode())) + suffix
    with written_whole(tmp_path / name) as aside:
        aside.write_text("new")
    with folder_written_whole(tmp_path / "in" / name):
        pass
    with pytest.raises(OSError, match="too long"), written_whole(tmp_path / (name + "aaaa")):
        raise AssertionError("not reached")
    assert sorted(names(tmp_path)) == sorted(["in", name])


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_an_output_that_may_not_be_written_is_named(home):
    home.chmod(0o500)
    with pytest.raises(PermissionError, match="no permission to write into"):
        require_writable("x/y.csv")
    for writing in (written_whole, folder_written_whole):
        with pytest.raises(PermissionError) as caught, writing("name.png"):
            pass
        assert caught.value.filename == "name.png"


def test_errors_name_the_target_and_no_temporary_file(home):
    for writing in (written_whole, folder_written_whole):
        for make in (
            lambda aside: FileNotFoundError(2, "No such file", str(aside)),
            lambda aside: ValueError(f"cannot write {aside}"),
            lambda aside: OSError(28, "No space left"),
        ):
            with pytest.raises((OSError, ValueError)) as caught, writing("name.png") as aside:
                raise make(aside)
            assert "name.png" in str(caught.value)
            assert ".part" not in str(caught.value)
            assert "None" not in str(caught.value)
