"""Outputs appear whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from axial_transformers.storage.files import folder_written_whole, require_writable, written_whole

BOTH = pytest.mark.parametrize("writing", [written_whole, folder_written_whole])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(path: Path) -> dict[str, str]:
    files = [path, *path.rglob("*")]
    return {str(file.relative_to(path)): file.read_text() for file in files if file.is_file()}


def write(path: Path, text: str, writing=written_whole, fails: bool = False, **replace: bool) -> None:
    """Write a file, or two in a folder."""
    with writing(path, **replace) as aside:
        assert aside.name.endswith(path.suffix) or len(path.name) > 50
        if aside.is_dir():
            (aside / "inside").mkdir()
        for file in (aside / "file", aside / "inside" / "file") if aside.is_dir() else (aside,):
            file.write_text(text)
        if fails:
            raise OSError("disk full")


@BOTH
def test_an_output_appears_when_the_block_ends_and_an_error_leaves_what_was_there(tmp_path, writing):
    path = tmp_path / "new" / "output.nii.gz"
    with pytest.raises(OSError, match="disk full"):
        write(path, "half", writing, fails=True)
    assert names(path.parent) == []
    write(path, "old", writing)
    old = content(path)
    assert set(old.values()) == {"old"}
    with pytest.raises(OSError, match="disk full"):
        write(path, "half", writing, fails=True, replace=True)
    assert content(path) == old
    write(path, "new", writing, replace=True)
    assert content(path) == dict.fromkeys(old, "new")
    assert names(path.parent) == [path.name]


@BOTH
def test_what_exists_when_the_block_begins_or_ends_is_not_replaced_unless_asked(tmp_path, writing):
    path = tmp_path / "output"
    with pytest.raises(FileExistsError, match="output"), writing(path, replace=False):
        write(path, "first", writing, replace=False)
    with pytest.raises(FileExistsError, match="output"):
        write(path, "later", writing, replace=False)
    assert set(content(path).values()) == {"first"}
    assert names(tmp_path) == ["output"]


def test_devices_folders_pipes_and_links_are_not_replaced_by_what_they_are_not(tmp_path):
    pipe, folder, link, file = (tmp_path / name for name in ("pipe", "folder", "link", "file"))
    os.mkfifo(pipe)
    folder.mkdir()
    link.symlink_to(folder)
    file.write_text("kept")
    for path in (pipe, folder, Path("/dev/null")):
        with pytest.raises(FileExistsError, match="regular"):
            write(path, "new")
        with pytest.raises(FileExistsError, match="regular"):
            require_writable(path)
    for path in (link, file, pipe):
        with pytest.raises(FileExistsError, match="exists already"):
            write(path, "new", folder_written_whole, replace=True)
        with pytest.raises(FileExistsError, match="exists already"):
            require_writable(path, folder=True)
    write(folder, "new", folder_written_whole)  # which is empty
    link.unlink()
    link.symlink_to(file)
    write(link, "new")
    assert (file.read_text(), link.read_text()) == ("kept", "new")


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


@pytest.mark.skipif(os.name != "posix", reason="folders that POSIX synchronises")
@BOTH
def test_content_is_on_disk_before_it_has_its_name_and_the_name_at_the_end(tmp_path, monkeypatch, writing):
    path, events = tmp_path / "new" / "target", []

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        events.append((status.st_ino, size, path.stat().st_ino if path.exists() else None))

    monkeypatch.setattr(os, "fsync", fsync)
    for text in ("old", "a new one"):
        events.clear()
        write(path, text, writing, replace=True)
        target, folder = path.stat().st_ino, path.parent.stat().st_ino
        for file in (path, *path.rglob("*")):
            known = (file.stat().st_ino, len(text) if file.is_file() else None)
            named = [at for inode, size, at in events if (inode, size) == known]
            assert named, file
            assert target not in named
        assert events[-1] == (folder, None, target)


@pytest.mark.parametrize("letter", ["a", "\U0001f600"])
def test_names_may_be_as_long_as_the_file_system_takes_them(tmp_path, letter):
    for suffix in ("", ".png", "." + "s" * 100):
        name = letter * ((255 - len(suffix)) // len(letter.encode())) + suffix
        write(tmp_path / name, "new")
        write(tmp_path / "in" / name, "new", folder_written_whole)
        with pytest.raises(OSError, match="too long"):
            write(tmp_path / (name + "aaaa"), "new")
        assert name in names(tmp_path)
    assert len(names(tmp_path)) == 4


@BOTH
def test_errors_name_the_target_and_no_temporary_file(home, writing):
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
    (home / "file").touch()
    for path in ("file/x.png", "file/new/x.png"):
        with pytest.raises(NotADirectoryError, match=r"x\.png"):
            require_writable(path, writing is folder_written_whole)
    if os.getuid():  # root may write anywhere
        home.chmod(0o500)
        with pytest.raises(PermissionError, match="permission"):
            require_writable("x/y.csv")
        with pytest.raises(PermissionError) as caught, writing("name.png"):
            pass
        assert caught.value.filename == "name.png"
