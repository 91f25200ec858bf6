"""Measurements that a command does not repeat: each is a line of OUT/rows.jsonl, made by a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read(out: Path) -> list[Row]:
    """Return what was found so far."""
    path = out / "rows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_missing(
    script: str, command: str, data: Path, out: Path, wanted: Iterable[Row], options: Sequence[object] = ()
) -> None:
    """Measure what has no row yet, and write each row as soon as it is there.

    Args:
        command: takes `data`, then the values of what is wanted; its last line is the row.
        wanted: the first items of each row.
        options: words of the command that are no items of a row.
    """
    out.mkdir(parents=True, exist_ok=True)
    for each in wanted:
        if any(each.items() <= row.items() for row in read(out)):
            continue
        row = json.dumps(in_its_own_process([script, command, data, *options], each))
        with (out / "rows.jsonl").open("a") as file:
            file.write(row + "\n")
        print(row, file=sys.stderr, flush=True)


def in_its_own_process(command: list[Any], wanted: Row) -> Row:
    words = [str(word) for word in (sys.executable, *command, *wanted.values())]
    ran = subprocess.run(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if ran.returncode:
        raise SystemExit(f"{wanted} failed")
    return json.loads(ran.stdout.splitlines()[-1])
