"""The report that whoever has a GPU runs, run without one."""

import json
import subprocess
import sys

import pytest

from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_report

TINY = gpu_report.Options(dry_run=True)


@pytest.mark.parametrize("name", ["losses", "decoding", "layers", "waiting"])
def test_a_part_finds_on_a_cpu_what_it_expects(name):
    """The other parts compile, train or start processes: they are in `make test-slow`."""
    rows = [*gpu_report.PARTS[name][1](TINY)]
    assert len(rows) > 0
    assert all(row["expected"] and row["holds"] for row in rows), rows


def test_a_part_that_is_killed_or_fails_keeps_its_rows(tmp_path):
    said = "import json, time; print(json.dumps({'name': 'first'}), flush=True); print('no row'); "
    hangs, fails = (
        gpu_report.rows_of([sys.executable, "-c", said + end], 3, tmp_path / "rows")
        for end in ("time.sleep(60)", "raise ValueError('it broke')")
    )
    assert hangs["rows"] == fails["rows"] == [{"name": "first"}]
    assert hangs["ended"] == "ended after 3 s, its limit"
    assert fails["ended"].startswith("exit status 1")
    assert "it broke" in fails["ended"]
    assert not gpu_report.as_expected(hangs)
    assert not gpu_report.as_expected(fails)


def test_the_page_has_a_table_for_each_part():
    rows = [gpu_report.row("float32", "small", False, error=0.5), {"name": "told", "seconds": 2}]
    part = {"ended": "finished", "seconds": 1.0, "rows": rows}
    page = gpu_report.page({"machine": {"gpu": "none"}, "parts": {"losses": part}})
    assert '| float32 | small | **no** | "error": 0.5 |' in page
    assert '| told |  |  | "seconds": 2 |' in page
    assert not gpu_report.as_expected(part)


@pytest.mark.slow
def test_the_whole_plan_runs_on_a_cpu(tmp_path):
    words = [
        sys.executable,
        ROOT / "benchmarks" / "gpu_report.py",
        "--dry-run",
        "--out",
        tmp_path / "report",
    ]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "report" / "report.json").read_text())["parts"]
    assert {name for name, part in found.items() if gpu_report.as_expected(part) and part["rows"]} == {
        *gpu_report.PARTS
    }
