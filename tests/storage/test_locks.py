"""A folder is held by one process at a time, which others name; what a dead process held is free."""

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from axial_transformers.storage import locks
from axial_transformers.storage.locks import HOLDER, LOCK, FolderInUse, folder_held

HOLD = """
import sys, time
from pathlib import Path
from axial_transformers.storage.locks import folder_held
with folder_held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folder, until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def holder_of(folder: Path) -> int:
    return int((folder / HOLDER).read_text().split()[1])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_holder_is_named_with_its_host_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "GRACE", 0.1)
    with another_process(tmp_path) as holder:
        with pytest.raises(FolderInUse) as caught, folder_held(tmp_path):
            raise AssertionError
        assert names(tmp_path) == {LOCK, HOLDER}
    who = f"process {holder.pid} on {re.escape(socket.gethostname())} since [0-9-]{{10}} [0-9:]{{8}}"
    assert re.fullmatch(
        f"{re.escape(str(tmp_path))} is in use by {who}: wait until it ends, or end it", str(caught.value)
    )


def test_what_a_killed_process_held_is_taken_over_at_once(tmp_path):
    with another_process(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert names(tmp_path) == {LOCK, HOLDER}
        begun = time.monotonic()
        with folder_held(tmp_path):
            assert holder_of(tmp_path) == os.getpid()
        assert time.monotonic() - begun < locks.GRACE / 2
    assert names(tmp_path) == {LOCK}


def test_one_process_holds_a_folder_once_and_again_after_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "GRACE", 0.1)
    with pytest.raises(FolderInUse, match=f"process {os.getpid()} "), folder_held(tmp_path), folder_held(tmp_path):
        raise AssertionError
    with folder_held(tmp_path):
        pass


def test_child_processes_do_not_keep_what_their_parent_held(tmp_path):
    """Workers of a process that was killed live on for some seconds."""
    with folder_held(tmp_path):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
    try:
        with folder_held(tmp_path):
            pass
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("content", [b"", b"process 1\nError: all is lost", b"\xff\xfe" * 200, b"hello"])
def test_a_damaged_record_of_the_holder_neither_opens_the_lock_nor_is_believed(tmp_path, monkeypatch, content):
    monkeypatch.setattr(locks, "GRACE", 0.1)
    with folder_held(tmp_path):
        (tmp_path / HOLDER).write_bytes(content)
        with pytest.raises(FolderInUse, match=r"in use by another process: wait"), folder_held(tmp_path):
            raise AssertionError
    (tmp_path / HOLDER).write_bytes(content)
    with folder_held(tmp_path):
        pass
