"""The report that whoever has a GPU runs, run without one."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import CodeType

import pytest

from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_parts  # isort: skip
import gpu_report  # isort: skip
from pretended_gpu import PretendedGPU  # isort: skip

TINY = gpu_parts.Options(dry_run=True)


@pytest.mark.parametrize("name", ["parity", "decoding", "attention", "limits", "masks"])
def test_a_part_finds_without_a_gpu_what_it_expects(name):
    """The other parts compile, train or start processes: they are in `make test-slow`."""
    part = gpu_parts.PARTS[name]
    with PretendedGPU() if part.sizes else nullcontext():
        rows = [*part.rows(TINY)]
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


TRACER = """
import atexit, os, sys, threading
seen = set()

def line(frame, event, argument):
    seen.add((frame.f_code.co_filename, frame.f_lineno))
    return line

def call(frame, event, argument):
    if os.path.basename(frame.f_code.co_filename) in ("gpu_parts.py", "gpu_report.py"):
        return line(frame, event, argument)

def write():
    with open(os.path.join(os.environ["LINES"], str(os.getpid())), "w") as file:
        file.writelines(f"{os.path.basename(path)} {number}\\n" for path, number in seen)

threading.settrace(call)
sys.settrace(call)
atexit.register(write)
"""
"""A module `sitecustomize`, which each process imports."""

NOT_IN_A_DRY_RUN = {
    "sys.exit(f\"no part is called {unknown}: there are {', '.join(PARTS)}\")",
    'sys.exit("no CUDA device is here: --dry-run runs the plan without one")',
    # of what fails, or has no end: tested above
    "except subprocess.TimeoutExpired:",
    "os.killpg(started.pid, 9)",
    "started.wait()",
    'ended = f"ended after {seconds:g} s, its limit"',
    'ended = subprocess.CompletedProcess(command, 1, "", "no end after 120 s")',
    "except Exception as error:  # whatever torch or a compiler says is what a row is for",
    'return f"{type(error).__name__}: {error}"[:500]',
    # of the machine, the data and a second GPU
    'properties, rates = torch.cuda.get_device_properties(0), {"bfloat16": torch.bfloat16, "tf32": torch.float32}',
    'found |= {"gpu": properties.name, "gpus": torch.cuda.device_count(), "cuda": torch.version.cuda}',
    'found["memory_bytes"] = properties.total_memory',
    'found |= {f"tflops_{name}": matmul_rate(options.device, each) / 1e12 for name, each in rates.items()}',
    'found["cudnn"] = torch.backends.cudnn.version()',
    'found["compiles"] = why_not_compiled(options.device) or "yes"',
    'yield row("data", f"the file {data}: python experiments/public_datasets.py fashion_mnist makes it", False)',
    'yield {"name": "not run: there is one GPU"}',
    "return",
}


def lines_of(code: CodeType) -> set[int]:
    """The lines of functions, of which a compiled module is made."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    own = {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
    return set().union(own if code.co_name != "<module>" else (), *map(lines_of, inner))


@pytest.mark.slow
def test_a_dry_run_covers_every_line_that_a_gpu_would_run(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(TRACER)
    (tmp_path / "lines").mkdir()
    words = [sys.executable, ROOT / "benchmarks" / "gpu_report.py", "--dry-run", "--out", tmp_path / "report"]
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = os.environ | {"PYTHONPATH": paths, "LINES": str(tmp_path / "lines")}
    ended = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "report" / "report.json").read_text())["parts"]
    assert {name for name, part in found.items() if gpu_report.as_expected(part) and part["rows"]} == {*gpu_parts.PARTS}
    seen = {line for file in (tmp_path / "lines").iterdir() for line in file.read_text().splitlines()}
    missing = set()
    for module in (gpu_parts, gpu_report):
        path = Path(module.__file__)
        text = path.read_text(encoding="utf-8")
        here = lines_of(compile(text, str(path), "exec"))
        missing |= {text.splitlines()[line - 1].strip() for line in here if f"{path.name} {line}" not in seen}
    assert missing - NOT_IN_A_DRY_RUN == set()
