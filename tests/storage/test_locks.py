"""A folder is held by one process at a time; what a dead process held is free."""

import re
import subprocess
import sys

import pytest

from axial_transformers.storage.locks import LOCK, FolderInUse, folder_held

HOLD = """
import sys, time
from pathlib import Path
from axial_transformers.storage.locks import folder_held
with folder_held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_folder_is_held_once_until_its_process_is_killed_or_the_block_ends(tmp_path):
    said = re.escape(f"{tmp_path} is in use by another process: wait until it ends, or end it")
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse, match=f"^{said}$"), folder_held(tmp_path):
            raise AssertionError("not reached")
        holder.kill()
        holder.wait()
        with folder_held(tmp_path), pytest.raises(FolderInUse), folder_held(tmp_path):
            raise AssertionError("not reached")
        with folder_held(tmp_path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
