"""Standard output and error that are closed, broken, full or ASCII, and names that hold markup or control characters.

The verbs run within this process, on streams that stand for the process's own.
"""

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers import cli
from tests.conftest import TINY
from tests.paths import DATA

OFFICIAL = DATA / "official_c"
AWKWARD = "[/x] [old]\x1b[31m\nö"


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A folder with an awkward name, and in it a run, some pictures, and nothing else."""
    folder = tmp_path / AWKWARD
    shutil.copytree(trained, folder / "run")
    (folder / "pictures").mkdir()
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 17, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"[red]{i}.png")
    return folder


def commands(folder: Path) -> list[tuple[list[object], Path | None]]:
    """A command of every verb that ends well, and the file that it leaves. In this order, on a fresh `folder`."""
    run, pictures = folder / "run", folder / "pictures"
    picture = ["--data.fit", "crop", "--data.size", "8"]
    small = [*TINY, "--training.steps", 1, "--training.batch-size", 2, "--samples", 1, "--validate-on", 1]
    return [
        (["--help"], None),
        (["train", "digits", *small, "--out", folder / "new"], folder / "new" / "model.safetensors"),
        (["demo", "--help"], None),
        (["evaluate", run, "--split", "validation", "--batch-size", 10**9], None),
        (["evaluate", run, pictures], None),
        (["sample", run, "--count", 1, "--output", folder / "s.png"], folder / "s.png"),
        (["complete", run, "--rows", 4, "--examples", 1, "--count", 1, "--output", folder / "c.png"], folder / "c.png"),
        (["score", run, pictures, "--top", 2, "--against", pictures], None),
        (["compress", run, pictures, folder / "a.axl", "--force"], folder / "a.axl"),
        (["decompress", run, folder / "a.axl", folder / "again"], folder / "again" / "[red]0.png"),
        (["import-official", OFFICIAL, "-o", folder / "o", "--heads", 2, "--raw"], folder / "o" / "model.safetensors"),
        (["inspect", run], None),
        (["inspect", pictures, *picture], None),
    ]


Stream = Callable[[], io.TextIOWrapper | None]


def closed() -> None:
    return None


def broken() -> io.TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return io.TextIOWrapper(os.fdopen(writer, "wb"), encoding="utf-8")


def ascii_only() -> io.TextIOWrapper:
    descriptor = os.memfd_create("stream")
    return io.TextIOWrapper(os.fdopen(descriptor, "wb"), encoding="ascii")


def use(monkeypatch: pytest.MonkeyPatch, stream: io.TextIOWrapper | None, *names: str) -> None:
    for name in names:
        monkeypatch.setattr(sys, name, stream)
        monkeypatch.setattr(sys, f"__{name}__", stream)


def status_of(argv: list[object]) -> int:
    try:
        return cli.main([str(word) for word in argv])
    except SystemExit as left:
        return int(left.code or 0)


@pytest.mark.parametrize("stream", [closed, broken, ascii_only], ids=lambda stream: stream.__name__)
def test_every_verb_does_its_work_whatever_takes_its_words(monkeypatch, folder, stream: Stream):
    for argv, left in commands(folder):
        use(monkeypatch, stream(), "stdout")
        use(monkeypatch, stream(), "stderr")
        assert status_of(argv) == 0, argv
        sys.stdout.flush()  # as the interpreter does at exit
        assert left is None or left.is_file(), argv


def test_results_reach_an_ascii_terminal(monkeypatch, folder):
    stream = ascii_only()
    use(monkeypatch, stream, "stdout")
    assert status_of(["evaluate", folder / "run", folder / "pictures"]) == 0
    text = os.pread(stream.fileno(), 10_000, 0).decode("ascii")
    assert r" \xb1 " in text
    assert r"[/x][old]\x1b[31m\n\xf6/pictures,all" in "".join(text.split())  # it is longer than a line


def test_an_error_is_one_line_without_control_characters(capsys, folder):
    nowhere = folder / "nowhere"
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{")
    (folder / "text.axl").write_text("no archive")
    for argv in [
        [AWKWARD],
        ["train", nowhere],
        ["evaluate", nowhere],
        ["evaluate", folder / "broken"],
        ["evaluate", folder / "run", nowhere],
        ["sample", nowhere],
        ["sample", folder / "run", "--output", folder / "x.[y]"],
        ["complete", folder / "run", "--mask", nowhere],
        ["score", folder / "run", "--output", nowhere],
        ["compress", folder / "run", nowhere, folder / "b.axl"],
        ["decompress", folder / "run", folder / "text.axl", folder / "again"],
        ["import-official", nowhere, "-o", folder / "o"],
        ["inspect", nowhere],
    ]:
        capsys.readouterr()
        assert status_of(argv) == 2, argv
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("axial"), argv
        assert err.endswith("\n")
        assert err[:-1].isprintable(), err


def test_a_word_in_brackets_is_no_markup(capsys, folder):
    """Of options that are refused by their parser."""
    for argv in (["evaluate", folder / "run", "[/x]", "[/y]"], ["sample", "--count", "[/x]"], ["train", "x", "--[/x]"]):
        assert status_of(argv) == 2
        capsys.readouterr()


COMMAND = f"{sys.executable} -m axial_transformers"


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        (f"{COMMAND} --help >&-", 0, ""),
        (f"{COMMAND} --help <&- >&- 2>&-", 0, ""),
        (f"{COMMAND} nonsense 2>&-", 2, ""),
        (f"{COMMAND} nonsense 2>/dev/full", 2, ""),
        (f"{COMMAND} --help >/dev/full", 2, "axial --help: standard output: No space left on device\n"),
    ],
)
def test_the_exit_status_is_that_of_the_work(line, status, says):
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "", says)
