"""The report that whoever has a GPU runs, run without one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu_report

ROOT = gpu_report.ROOT


def test_parts_of_the_report_run_on_a_cpu_and_a_failure_ends_no_other(tmp_path):
    """Those that train or start processes of their own are in `make test-slow`."""
    parts = ("losses", "decoding")
    options = gpu_report.Options(dry_run=True, out=tmp_path / "report", parts=(*parts, "broken"))

    def here(name, options):
        return {"ok": True, **gpu_report.PARTS[name](options)} if name in parts else {"ok": False, "error": "it broke"}

    assert gpu_report.report(options, here) == 1
    found = json.loads((tmp_path / "report" / "report.json").read_text())["parts"]
    assert [part["ok"] for part in found.values()] == [True, True, False]
    assert found["losses"]["float32"] == {"loss": 0, "gradients": 0}
    assert 0 < found["losses"]["bfloat16"]["loss"] < 0.02
    assert found["decoding"]["differ"] == 0
    page = (tmp_path / "report" / "report.md").read_text()
    assert "## losses: ok" in page
    assert "## broken: FAILED" in page


@pytest.mark.slow
def test_the_whole_plan_runs_on_a_cpu(tmp_path):
    words = [sys.executable, ROOT / "benchmarks" / "gpu_report.py", "--dry-run", "--out", tmp_path / "report"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "report" / "report.json").read_text())["parts"]
    assert {name for name, part in found.items() if part["ok"]} == {*gpu_report.PARTS}
