"""The cache and its lock."""

import subprocess
import sys
import threading
from pathlib import Path

from axial_transformers.storage.files import cache_folder
from axial_transformers.storage.locks import only_one_process

WITHOUT_FCNTL = """
import sys
sys.modules["fcntl"] = None
import axial_transformers.data
from axial_transformers.storage.locks import only_one_process
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


WITHOUT_EXTRAS = """
import sys
for package in ("av", "huggingface_hub", "httpx2"):
    sys.modules[package] = None
import axial_transformers as axial
from axial_transformers import compression, data, pictures
from axial_transformers.pictures import save_movie
open("a.mp4", "w").close()
for action in (
    lambda: data.load("a.mp4", data.DataConfig(frames=2)),
    lambda: save_movie("b.mp4", data.load("digits").values[..., 0]),
    lambda: data.load("hf://datasets/a/b"),
    lambda: data.load("https://host/a.tar"),
    lambda: axial.AxialTransformer.from_pretrained("a/b"),
):
    try:
        action()
    except ValueError as error:
        print(error)
"""


def test_without_an_extra_one_line_names_it(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_EXTRAS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    of_video, of_hub = (f"pip install 'axial-transformers[{name}]'" for name in ("video", "hub"))
    assert [line.partition(": ")[2] for line in done.stdout.splitlines()] == [of_video] * 2 + [of_hub] * 3, done.stderr
