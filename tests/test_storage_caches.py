"""The cache and its lock."""

import subprocess
import sys
import threading
from pathlib import Path

from axial_transformers.storage.caches import cache_folder, only_one_process

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
