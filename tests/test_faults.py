"""Commands that are disturbed leave whole outputs or none, and work again. benchmarks/faults.py disturbs them more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks/faults.py"
UNPRIVILEGED = ["kill-9", "sigterm", "file-size", "clock", "locks"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_outputs_are_whole_or_missing_after_a_fault_and_the_next_command_makes_them():
    # training is killed in test_training_loop.py, the disk is full in test_cli_full_disk.py
    count, among = 5, ["score-shards", "import-official"]
    command = [sys.executable, BENCHMARK, str(count), "--only", *UNPRIVILEGED, "--among", *among]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == sum(found["by_kind"].values()) == count
    assert set(found["by_kind"]) == set(UNPRIVILEGED)
