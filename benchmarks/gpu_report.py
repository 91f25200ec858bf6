"""What a GPU shows, in less than an hour: one JSON file and one page, to be attached to a report.

    make gpu-report                                      on the first GPU, into gpu-report/
    make gpu-report ARGS="--parts parity sampling"       some parts only
    make gpu-report ARGS="--data fashion_mnist_train.npz"  with the learning curve, which needs the data
    make gpu-report ARGS="--parts small masked --before build/before"   what is to become faster, beside an earlier tree
    make gpu-report ARGS=--dry-run                       the parts that compare values, on the CPU

Each part (`gpu_parts.py`) is a process of its own with a limit of time, and writes its rows as they come: one that
crashes, hangs or is ended leaves its rows, and the other parts go on. A row says what was expected and whether it
holds. A dry run takes the CPU and small sizes, and leaves out the parts that measure.
"""

import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import torch

import axial_transformers as axial
from axial_transformers.machine import why_not_compiled
from command_line import run_command
from gpu_parts import PARTS, ROOT, Options, Row, matmul_rate, one_process, without_code_for_devices


def main(options: Options) -> None:
    if options.only:
        rows = one_process if options.only == "one_process" else PARTS[options.only].rows
        with without_code_for_devices() if options.dry_run else nullcontext():
            for row in rows(options):
                print(json.dumps(row), flush=True)
        return
    if unknown := ", ".join({*options.parts} - {*PARTS}):
        sys.exit(f"no part is called {unknown}: there are {', '.join(PARTS)}")
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("no CUDA device is here: --dry-run compares values on the CPU")
    sys.exit(report(options))


def report(options: Options) -> int:
    """Run the parts, write both files after each, and return the number of parts of which something does not hold."""
    found: Row = {"machine": machine(options), "parts": {}}
    options.out.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, __file__, "--data", str(options.data.absolute()), *["--dry-run"] * options.dry_run]
    if options.before:
        words += ["--before", str(options.before.absolute())]
    names, slower = options.parts or tuple(PARTS), 10 if options.dry_run else 1
    names = tuple(name for name in names if not (options.dry_run and PARTS[name].measures))
    with ThreadPoolExecutor(os.cpu_count() if options.dry_run else 1) as at_once:
        limits, logs = (
            [slower * PARTS[name].seconds for name in names],
            [options.out / f"{name}.rows" for name in names],
        )
        runs = at_once.map(rows_of, [[*words, "--only", name] for name in names], limits, logs)
        for name, part in zip(names, runs, strict=True):
            found["parts"][name] = part
            failed = [row["name"] for row in part["rows"] if not row.get("holds", True)]
            told = ["NOT AS EXPECTED:", *failed] if failed else []
            print(f"{name}: {part['ended']}, {len(part['rows'])} rows, {part['seconds']} s", *told, flush=True)
            (options.out / "report.json").write_text(json.dumps(found, indent=2) + "\n")
            (options.out / "report.md").write_text(page(found))
    print(f"{options.out}/report.json, {options.out}/report.md")
    return sum(not as_expected(part) for part in found["parts"].values())


def as_expected(part: Row) -> bool:
    return part["ended"] == "finished" and all(row.get("holds", True) for row in part["rows"])


def rows_of(words: list[str], seconds: float, log: Path) -> Row:
    """The rows that a command has printed, one JSON object a line, when it ends or its time is up."""
    began, env = time.monotonic(), os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONUNBUFFERED": "1"}
    if "--dry-run" in words:
        env |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    errors = log.with_suffix(".errors")
    with log.open("w") as out, errors.open("w") as err:
        started = subprocess.Popen(words, stdout=out, stderr=err, env=env, cwd=ROOT, start_new_session=True)
        try:
            status = started.wait(seconds)
            ended = "finished" if status == 0 else f"exit status {status}: {errors.read_text()[-1500:]}"
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, 9)
            started.wait()
            ended = f"ended after {seconds:g} s, its limit"
    rows = []
    for line in log.read_text().splitlines():
        with suppress(ValueError, TypeError):  # what is no row: a word of a test, half a line, a number
            rows.append(dict(json.loads(line)))
    log.unlink()
    errors.unlink()
    return {"ended": ended, "seconds": round(time.monotonic() - began, 1), "rows": rows}


def machine(options: Options) -> Row:
    found: Row = {"python": platform.python_version(), "torch": torch.__version__, "dry_run": options.dry_run}
    found["axial_transformers"] = axial.__version__
    if options.device.type == "cuda":
        properties, rates = torch.cuda.get_device_properties(0), {"bfloat16": torch.bfloat16, "tf32": torch.float32}
        found |= {"gpu": properties.name, "gpus": torch.cuda.device_count(), "cuda": torch.version.cuda}
        found["memory_bytes"] = properties.total_memory
        found |= {f"tflops_{name}": matmul_rate(options.device, each) / 1e12 for name, each in rates.items()}
        found["cudnn"] = torch.backends.cudnn.version()
        found["compiles"] = why_not_compiled(options.device) or "yes"
    return found


def page(found: Row) -> str:
    """The report as Markdown: how many expectations hold, then a table for each part."""
    parts, rows = found["parts"], [row for part in found["parts"].values() for row in part["rows"] if "holds" in row]
    ended = [name for name, part in parts.items() if part["ended"] != "finished"]
    holds = f"**{sum(row['holds'] for row in rows)} of {len(rows)} expectations hold.**"
    holds += f" Ended early: {', '.join(ended)}." if ended else ""
    lines = ["# GPU report", "", holds, "", *(f"- {name}: {value}" for name, value in found["machine"].items())]
    for name, part in parts.items():
        lines += ["", f"## {name}", "", f"{part['ended']}, {part['seconds']} s. {PARTS[name].rows.__doc__}", ""]
        lines += ["| | expected | holds | found |", "|---|---|---|---|"]
        for row in part["rows"]:
            values = {key: value for key, value in row.items() if key not in ("name", "expected", "holds")}
            holds = {True: "yes", False: "**no**", None: ""}[row.get("holds")]
            lines.append(
                f"| {row.get('name', '')} | {row.get('expected', '')} | {holds} | {json.dumps(values)[1:-1]} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(run_command(Options, description=__doc__))
