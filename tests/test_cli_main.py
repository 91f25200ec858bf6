"""The command itself: help, errors, interrupts."""

import logging
import os
import subprocess
import sys

import pytest

from axial_transformers import cli
from axial_transformers.cli import sample
from conftest import Axial


def test_help_shows_every_verb_with_an_example(axial: Axial):
    status, out, _ = axial("--help")
    assert status == 0
    for verb, (summary, example) in cli.COMMANDS.items():
        assert f"  {verb} " in out
        assert summary in out
        assert example in out
        assert example.split()[1] == verb
    assert axial().out == out


def test_every_verb_is_in_one_group_of_the_help(axial: Axial):
    assert sorted(verb for group in cli.GROUPS.values() for verb in group) == sorted(cli.COMMANDS)
    titles = [line for line in axial().out.splitlines()[3:-1] if line and not line.startswith(" ")]
    assert titles == [*cli.GROUPS]


def test_help_waits_for_no_library():
    script = (
        "import sys; from axial_transformers.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "numba", "cyclopts", "rich"} & set(run.stderr.split())


@pytest.mark.parametrize("verb", cli.COMMANDS)
def test_every_verb_teaches_itself(axial: Axial, verb):
    status, out, _ = axial(verb, "--help")
    assert status == 0
    assert "Usage: axial" in out or "usage: axial" in out
    assert f"\n  axial {verb}" in out  # an example, on a line of its own


def test_an_unknown_verb_is_one_line_with_the_nearest_one(axial: Axial):
    status, out, err = axial("evalute", "runs/digits")
    assert (status, out) == (2, "")
    assert err.startswith("axial: no command 'evalute': perhaps you meant evaluate (there are: demo, ")
    assert err.count("\n") == 1


def test_an_unknown_option_names_the_nearest_one(axial: Axial):
    status, _, err = axial("train", "digits", "--model.dimm", "3")
    assert status == 2
    assert err == "axial train: Unknown option: --model.dimm. Did you mean --model.dim?\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\n  lines"), "axial sample: two lines\n"),
        (
            FileNotFoundError(2, "No such file or directory", "x.npz"),
            "axial sample: x.npz: No such file or directory\n",
        ),
        (FileExistsError("x exists already"), "axial sample: x exists already\n"),
        (ValueError("\x1b[31m"), "axial sample: \\x1b[31m\n"),
        (FileNotFoundError(2, "No such file", "a\nb"), "axial sample: a\\nb: No such file\n"),
        (OSError(28, "No space left on device", 3), "axial sample: No space left on device\n"),
        (BrokenPipeError(32, "Broken pipe"), "axial sample: Broken pipe\n"),  # of another pipe than stdout
        (MemoryError(), "axial sample: not enough memory: lower --count or --scale\n"),
        (
            RuntimeError("[x] DefaultCPUAllocator: can't allocate memory:\n 8 bytes"),
            "axial sample: not enough memory: lower --count or --scale ([x] DefaultCPUAllocator: can't allocate "
            "memory: 8 bytes)\n",
        ),
    ],
)
def test_what_a_user_got_wrong_is_one_line(axial: Axial, monkeypatch, error, line):
    def fail(argv):
        raise error

    monkeypatch.setattr(sample, "main", fail)
    assert axial("sample") == (2, "", line)
    monkeypatch.setenv("AXIAL_TRACEBACK", "1")
    with pytest.raises(type(error)):
        axial("sample")


def test_a_mistake_of_ours_keeps_its_traceback(axial: Axial, monkeypatch):
    def fail(argv):
        raise RuntimeError("a bug")

    monkeypatch.setattr(sample, "main", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        axial("sample")


def test_each_record_of_the_packages_log_is_one_line_on_stderr(axial: Axial, monkeypatch):
    log = logging.getLogger("axial_transformers.kernels.some_module")

    def work(argv):
        log.info("reading [8, 8] %s", "and a long path /" * 20)
        log.warning("compiling")

    monkeypatch.setattr(sample, "main", work)
    for _ in range(2):
        _, out, err = axial("sample")
        assert (out, err) == ("", f"reading [8, 8] {'and a long path /' * 20}\ncompiling\n")
    monkeypatch.setenv("RANK", "1")  # of the processes that torchrun started, the first one speaks
    assert axial("sample").err == ""
    assert not logging.getLogger("axial_transformers").handlers


def test_an_interrupt_is_status_130(axial: Axial, monkeypatch):
    def interrupt(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr(sample, "main", interrupt)
    assert axial("sample").status == 130


def test_a_reader_that_stops_early_is_no_error():
    script = "import sys; from axial_transformers.cli import main; sys.exit(main(['--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, b"")
