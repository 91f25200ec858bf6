"""The command itself: help, errors, interrupts, streams."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import axial_transformers
from axial_transformers import cli, recipes
from axial_transformers.cli import COMMANDS, sample
from axial_transformers.storage.files import written_whole
from axial_transformers.training import Facts, RunRecord, TrainConfig
from tests.conftest import Axial

pytestmark = pytest.mark.usefixtures("home")


def test_help_shows_every_command(axial: Axial):
    status, out, _ = axial("--help")
    assert status == 0
    assert [re.search(rf"^│ {command} ", out, re.MULTILINE) for command in COMMANDS].count(None) == 0
    assert axial().out == out


def test_options_are_read_and_refused_without_torch_and_data(tmp_path):
    """In one process, so that the test is cheap: after each command, it prints what was imported for the first time."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_text("no image, which would be said if it were read")
    words = ["--help", *(f"{command} --help" for command in COMMANDS)]
    words += [f"{command} --halp" for command in COMMANDS if command != "inspect"]
    record = RunRecord(run=recipes.NAMED["digits"](), facts=Facts(fingerprint="", train=1, parameters=1))
    (tmp_path / "run").mkdir()
    record.write(tmp_path / "run")
    settings = ["--help", "--model.dimm 3", "--training.stepz 3"]
    words += [f"train {name} {each}" for name in ("digits", "photos", "run") for each in settings]
    script = (
        "import sys, time; from axial_transformers.cli import main\n"
        "print('\\ncpu:', time.process_time(), file=sys.stderr)\n"
        "for line in sys.stdin.read().splitlines():\n"
        "    try:\n"
        "        status = main(line.split())\n"
        "    except SystemExit as end:\n"
        "        status = end.code\n"
        "    slow = {'torch', 'scipy', 'gradio', 'numpy'} & {*sys.modules}\n"
        "    print('\\nended:', line, status, *slow, file=sys.stderr)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], input="\n".join(words), capture_output=True, text=True, check=True, cwd=tmp_path
    )
    ends = [line.removeprefix("ended: ") for line in run.stderr.splitlines() if line.startswith("ended: ")]
    assert ends == [f"{line} {0 if '--help' in line else 2}" for line in words]
    assert float(re.search(r"^cpu: (.*)", run.stderr, re.MULTILINE)[1]) < 0.7


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_itself(axial: Axial, command):
    status, out, _ = axial(command, "--help")
    assert status == 0
    assert f"Usage: axial {command} " in f"{out.splitlines()[0]} "
    assert re.search(rf"^ +axial {command}", out, re.MULTILINE)  # an example, on a line of its own
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("command", ["compress", "decompress"])
def test_a_model_that_may_be_left_out_is_not_called_required(axial: Axial, refused, command):
    _, out, _ = axial(command, "--help")
    assert "MODEL --model" in out
    assert "[required]" not in out
    words = {"compress": ["--source", "x", "--archive", "x.axl"], "decompress": ["--archive", "x", "--out", "y"]}
    assert f"axial {command}: x: no such file" in refused(command, *words[command]).lower()
    assert "are both needed" in refused(command, *words[command][:2])


def test_help_of_a_recipe_shows_every_setting_with_its_default(axial: Axial, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = axial("train", "digits", "--help")
    assert re.findall(r"^╭─ ([\w ]+) ─", out, re.MULTILINE) == ["Parameters", "Data", "Model", "Training"]
    options = {f"--training.{field.name.replace('_', '-')}" for field in fields(TrainConfig)}
    assert options <= {*re.findall(r"^│ (--[\w.-]+)", out, re.MULTILINE)}
    assert re.search(r"--model.dim .*default: 64", out)
    Path("data").mkdir()
    assert re.search(r"--model.dim .*default: as suits the data", axial("train", "data", "--help").out)


def test_recipes_are_listed_with_what_they_reach_in_80_columns(axial: Axial):
    _, out, _ = axial("recipes")
    assert max(map(len, out.splitlines())) <= 80
    assert {f"  {name}" for name in recipes.NAMED} <= {*out.splitlines()}
    words = " ".join(out.split())
    assert all(recipe.reaches in words for recipe in recipes.NAMED.values())


def test_the_command_and_the_package_are_found(axial: Axial):
    assert axial("--version").out == f"{axial_transformers.__version__}\n"
    module = subprocess.run([sys.executable, "-m", "axial_transformers", "--version"], capture_output=True, text=True)
    assert module.stdout == axial("--version").out


def test_completion_is_installed_for_a_shell(axial: Axial, home, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/bash")
    status, _, err = axial("--install-completion")
    assert status == 0, err
    scripts = [path.read_text() for path in home.rglob("axial*") if path.is_file()]
    assert any("--heat-maps" in script and "--training.steps" in script for script in scripts)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\n  lines"), "two lines"),
        (FileNotFoundError(2, "No such file or directory", "x.npz"), "x.npz: No such file or directory"),
        (FileExistsError("x exists already"), "x exists already"),
        (ValueError("\x1b[31m"), "\\x1b[31m"),
        (FileNotFoundError(2, "No such file", "a\nb"), "a\\nb: No such file"),
        (OSError(28, "No space left on device", 3), "No space left on device"),
        (MemoryError(), "not enough memory: take smaller batches or fewer examples at a time"),
        (
            RuntimeError("[x] DefaultCPUAllocator: can't allocate memory:\n 8 bytes"),
            "not enough memory: take smaller batches or fewer examples at a time ([x] DefaultCPUAllocator: can't "
            "allocate memory: 8 bytes)",
        ),
    ],
)
def test_what_a_user_got_wrong_is_one_line(axial: Axial, monkeypatch, error, line):
    def fail(options):
        raise error

    monkeypatch.setattr(sample, "main", fail)
    assert axial("sample", "model") == (2, "", f"axial sample: {line}\n")
    monkeypatch.setenv("AXIAL_TRACEBACK", "1")
    with pytest.raises(type(error)):
        axial("sample", "model")


@pytest.mark.parametrize("kind", [RuntimeError, SystemError])
def test_a_mistake_of_ours_keeps_its_traceback(axial: Axial, monkeypatch, kind):
    def fail(options):
        raise kind("a bug")

    monkeypatch.setattr(sample, "main", fail)
    with pytest.raises(kind, match="a bug"):
        axial("sample", "model")


def test_each_record_of_the_log_and_each_warning_is_one_line_on_stderr(axial: Axial, monkeypatch):
    log = logging.getLogger("axial_transformers.engine.some_module")

    def work(options):
        log.info("reading [8, 8] %s", "and a long path /" * 20)
        for _ in range(2):
            warnings.warn("slow", stacklevel=1)

    monkeypatch.setattr(sample, "main", work)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for _ in range(2):
            _, out, err = axial("sample", "model")
            assert (out, err) == ("", f"reading [8, 8] {'and a long path /' * 20}\nwarning: slow\n")
        monkeypatch.setenv("RANK", "1")  # of the processes that torchrun started, the first one speaks
        assert axial("sample", "model").err == ""
    assert len(logging.getLogger("axial_transformers").handlers) == 1


def test_an_interrupt_is_status_130(axial: Axial, monkeypatch):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sample, "main", interrupt)
    assert axial("sample", "model").status == 130


def test_a_terminated_command_removes_what_it_has_begun(axial: Axial, monkeypatch, tmp_path):
    def work(options):
        with written_whole(tmp_path / "x.npz"):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(sample, "main", work)
    assert axial("sample", "model").status == 143
    assert [*tmp_path.glob("*x*")] == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("words", ["--help", "recipes"])
def test_a_closed_pipe_is_no_error(words):
    shell = ["bash", "-c", f"set -o pipefail; {sys.executable} -m axial_transformers {words} | true"]
    ran = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "")


@pytest.mark.parametrize("command", [*COMMANDS, "--help", "--version"])
def test_a_command_whose_output_is_closed_is_refused_before_its_work(capsys, monkeypatch, command):
    monkeypatch.setattr(sys, "stdout", None)  # as Python sets it
    assert cli.main([command]) == 2
    line = f"axial {command}: standard output is closed: send it to a file, or to /dev/null\n"
    assert capsys.readouterr().err == line


def test_messages_are_not_mixed_with_the_output_where_stderr_is_closed(axial: Axial, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert axial("nonsense") == (2, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("recipes >&-", 1), ("recipes >/dev/full", 1), ("nonsense 2>/dev/full", 0), ("recipes >&- 2>&-", 0),
    ],
)  # fmt: skip
def test_a_stream_that_is_closed_or_full_is_an_error_without_a_traceback(words, lines):
    shell = ["bash", "-c", f"{sys.executable} -m axial_transformers {words}"]
    ran = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", lines)


@pytest.mark.parametrize("command", ["sample", "complete"])
def test_data_that_another_process_has_written_meanwhile_is_not_replaced(axial: Axial, gray, monkeypatch, command):
    np.save("data.npy", np.zeros((2, 4, 4), np.uint8))

    def meanwhile(*_: object):
        Path("drawn.npz").write_text("another's")
        return iter

    monkeypatch.setattr(f"axial_transformers.cli.{command}.bar", meanwhile)
    words = {"sample": [], "complete": ["data.npy", "--rows", 2]}[command]
    status, out, err = axial(command, gray, *words, "--count", 1, "--out", "drawn.npz")
    assert (status, out, "drawn.npz exists already" in err) == (2, "", True)
    assert Path("drawn.npz").read_text() == "another's"


def test_names_and_signs_reach_any_terminal(tmp_path, trained):
    """Brackets are no markup, control characters are escaped, and what cannot be encoded is, too."""
    name = "[red]\x1b\udcff.json"
    np.save(tmp_path / "images.npy", np.zeros((2, 8, 8), np.uint8))
    small = ["--top", "1", "--out", name]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "axial_transformers", "score", str(trained), "images.npy", *small]
    ran = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path, check=True)
    assert ran.stdout.startswith(b"[red]")
    assert json.loads((tmp_path / name).read_text())["scores"]
