"""The report that whoever has a GPU runs, run without one."""

import json
import subprocess
import sys

import pytest

from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_parts  # isort: skip
import gpu_report  # isort: skip


@pytest.mark.parametrize("name", ["parity", "decoding"])
def test_a_part_finds_without_a_gpu_what_it_expects(name):
    """The other parts compile, train or start processes: they are in `make test-slow`."""
    rows = [*gpu_parts.PARTS[name].rows(gpu_parts.Options(dry_run=True))]
    assert len(rows) > 0
    assert all(row["expected"] and row["holds"] for row in rows), rows


def test_the_report_takes_an_hour():
    assert sum(part.seconds for part in gpu_parts.PARTS.values()) <= 3600
    assert [*gpu_parts.PARTS][:7] == ["parity", "tests", "imagenet32", "imagenet64", "sampling", "memory", "curve"]


def test_a_part_that_there_is_not_is_named_before_any_runs(tmp_path):
    with pytest.raises(SystemExit, match=r"^no part is called losses: there are parity, tests, "):
        gpu_report.main(gpu_parts.Options(dry_run=True, parts=("parity", "losses"), out=tmp_path / "report"))
    assert not (tmp_path / "report").exists()


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


def test_the_page_counts_what_holds_and_has_a_table_for_each_part():
    rows = [
        gpu_parts.row("float32", "small", False, error=0.5),
        gpu_parts.row("bfloat16", "small", True),
        {"name": "told", "seconds": 2},
    ]
    part = {"ended": "ended after 3 s, its limit", "seconds": 3.0, "rows": rows}
    page = gpu_report.page({"machine": {"gpu": "none"}, "parts": {"parity": part}})
    assert page.startswith("# GPU report\n\n**1 of 2 expectations hold.** Ended early: parity.\n\n- gpu: none\n")
    assert '| float32 | small | **no** | "error": 0.5 |' in page
    assert "| bfloat16 | small | yes |  |" in page
    assert '| told |  |  | "seconds": 2 |' in page
    assert not gpu_report.as_expected(part)


@pytest.mark.slow
def test_a_dry_run_compares_values_on_the_cpu(tmp_path):
    words = [sys.executable, ROOT / "benchmarks" / "gpu_report.py", "--dry-run", "--out", tmp_path / "report"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "report" / "report.json").read_text())["parts"]
    assert {*found} == {name for name, part in gpu_parts.PARTS.items() if not part.measures}
    assert all(gpu_report.as_expected(part) and part["rows"] for part in found.values())
