"""The cache and its lock; the key of the user."""

import stat
import subprocess
import sys
import threading
from pathlib import Path

from axial_transformers.storage.caches import cache_folder, only_one_process
from axial_transformers.storage.user_key import is_signed, key_file, sign

WITHOUT_FCNTL = """
import sys
sys.modules["fcntl"] = None
import axial_transformers.data
from axial_transformers.storage.caches import only_one_process
with only_one_process(__import__("pathlib").Path(sys.argv[1])):
    print("alone")
"""


def test_data_is_imported_and_the_lock_taken_where_there_is_no_fcntl(tmp_path):
    """As on Windows."""
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_FCNTL, tmp_path / "new" / "cache"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("alone\n", 0), done.stderr


def test_the_cache_is_where_xdg_says_or_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "axial-transformers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "axial-transformers"


def test_one_at_a_time_holds_the_lock(tmp_path):
    entered = threading.Event()

    def enter() -> None:
        with only_one_process(tmp_path / "cache"):
            entered.set()

    waiting = threading.Thread(target=enter)
    with only_one_process(tmp_path / "cache"):
        waiting.start()
        assert not entered.wait(0.3)
    waiting.join(5)
    assert entered.is_set()


def test_who_enters_removes_what_killed_processes_left(tmp_path):
    folder = tmp_path / "cache"
    (folder / ".a.xyz.part" / "a").mkdir(parents=True)
    (folder / ".b.123.part.tar").touch()
    (folder / "whole").touch()
    with only_one_process(folder):
        assert [path.name for path in folder.iterdir()] == ["whole"]


def test_a_signature_is_of_a_text_and_a_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    signature = sign("text")
    assert is_signed("text", signature)
    assert key_file().is_relative_to(tmp_path)
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert not any(is_signed("text", other) for other in (None, "", "ü", sign("another text")))
    key_file().write_bytes(b"short")
    assert not is_signed("text", signature)  # the key was made anew
    assert is_signed("text", sign("text"))


def test_without_a_place_for_the_key_nothing_is_signed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert sign("text") is None
    assert not is_signed("text", "00" * 32)
