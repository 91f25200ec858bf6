"""The command itself: help, errors, interrupts."""

import logging
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import axial_transformers
from axial_transformers import cli, recipes
from axial_transformers.cli import sample
from axial_transformers.cli.parsing import COMMON_OPTIONS
from axial_transformers.storage import hub
from axial_transformers.training import Facts, RunRecord, TrainConfig
from tests.conftest import Axial
from tests.small_models import small_model

pytestmark = pytest.mark.usefixtures("home")


def test_help_shows_every_command_with_an_example(axial: Axial):
    status, out, _ = axial("--help")
    assert status == 0
    for command, (summary, example) in cli.COMMANDS.items():
        assert f"  {command} " in out
        assert summary in out
        assert example in out
        assert example.split()[1] == command
    assert axial().out == out


def test_every_command_is_in_one_group_of_the_help(axial: Axial):
    assert sorted(command for group in cli.GROUPS.values() for command in group) == sorted(cli.COMMANDS)
    titles = [line for line in axial().out.splitlines()[3:-1] if line and not line.startswith(" ")]
    assert titles == [*cli.GROUPS]


def test_options_are_read_and_refused_without_torch_and_data(tmp_path):
    """In one process, so that the test is cheap: after each command, it prints what was imported for the first time."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_text("no image, which would be said if it were read")
    words = [f"{verb} {option}" for verb in cli.COMMANDS for option in ("--help", "--halp")]
    record = RunRecord(run=recipes.NAMED["digits"](), facts=Facts(fingerprint="", train=1, parameters=1))
    (tmp_path / "run").mkdir()
    record.write(tmp_path / "run")
    settings = ["--help", "--model.dimm 3", "--training.stepz 3"]
    words += [
        f"{verb} {name} {each}"
        for verb in ("train", "inspect")
        for name in ("digits", "photos", "run")
        for each in settings
    ]
    script = (
        "import sys; from axial_transformers.cli import main\n"
        "before = set()\n"
        "for line in sys.stdin.read().splitlines():\n"
        "    try:\n"
        "        status = main(line.split())\n"
        "    except SystemExit as end:\n"
        "        status = end.code\n"
        "    slow = {'torch', 'scipy', 'gradio', 'numpy'} & {*sys.modules} - before\n"
        "    before |= slow\n"
        "    print('\\nended:', line, status, *slow, file=sys.stderr)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], input="\n".join(words), capture_output=True, text=True, check=True, cwd=tmp_path
    )
    ends = [line.removeprefix("ended: ") for line in run.stderr.splitlines() if line.startswith("ended: ")]
    assert ends == [f"{line} {0 if '--help' in line else 2}" for line in words]


def test_help_waits_for_no_library():
    script = (
        "import sys; from axial_transformers.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "cyclopts", "rich"} & set(run.stderr.split())


@pytest.mark.parametrize("verb", cli.COMMANDS)
def test_every_command_teaches_itself(axial: Axial, verb):
    status, out, _ = axial(verb, "--help")
    assert status == 0
    assert "Usage: axial" in out or "usage: axial" in out
    assert f"\n  axial {verb}" in out  # an example, on a line of its own


def test_an_unknown_verb_is_one_line_with_the_nearest_one(axial: Axial):
    status, out, err = axial("evalute", "runs/digits")
    assert (status, out) == (2, "")
    assert err.startswith("axial: no command 'evalute': perhaps you meant evaluate (there are: demo, ")
    assert err.count("\n") == 1


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
        (
            SystemError("error return without exception set"),
            "axial sample: not enough memory: lower --count or --scale (error return without exception set)\n",
        ),
    ],
)
def test_what_a_user_got_wrong_is_one_line(axial: Axial, monkeypatch, error, line):
    def fail(options):
        raise error

    monkeypatch.setattr(sample, "main", fail)
    assert axial("sample", "model") == (2, "", line)
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


def test_each_record_of_the_packages_log_is_one_line_on_stderr(axial: Axial, monkeypatch):
    log = logging.getLogger("axial_transformers.engine.some_module")

    def work(options):
        log.info("reading [8, 8] %s", "and a long path /" * 20)
        log.warning("compiling")

    monkeypatch.setattr(sample, "main", work)
    for _ in range(2):
        _, out, err = axial("sample", "model")
        assert (out, err) == ("", f"reading [8, 8] {'and a long path /' * 20}\ncompiling\n")
    monkeypatch.setenv("RANK", "1")  # of the processes that torchrun started, the first one speaks
    assert axial("sample", "model").err == ""
    assert len(logging.getLogger("axial_transformers").handlers) == 1


def test_an_interrupt_is_status_130(axial: Axial, monkeypatch):
    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sample, "main", interrupt)
    assert axial("sample", "model").status == 130


def test_a_reader_that_stops_early_is_no_error():
    script = "import sys; from axial_transformers.cli import main; sys.exit(main(['--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, b"")


def test_of_several_processes_on_a_machine_the_first_one_speaks(axial: Axial, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert axial("train", "nothing-here") == (2, "", "")
    monkeypatch.setenv("LOCAL_RANK", "0")
    status, _, err = axial("train", "nothing-here")
    assert (status, err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("train digits --training.stpes 5", "Unknown option: --training.stpes. Did you mean --training.steps?"),
        ("train digits --steps 5", "Unknown option: --steps. Did you mean --training.steps?"),
        ("train digits --model.dim x", 'Invalid value for --model.dim: unable to convert "x" into int.'),
        ("train digits --model.dim", "Parameter --model.dim requires an argument."),
        (
            "train digits --data.fit z",
            'Invalid value "z" for --data.fit. Choose from: "exact", "crop", "stretch", "tiles".',
        ),
        ("train digits --model.heads 7", "--model.dim 64 must be a multiple of --model.heads 7"),
        ("train digits --data.fit crop", "--data.fit crop needs a size, for example --data.size 32"),
        ("train digits --data.stride 0", "--data.stride must be at least 1, not 0"),
        (
            f"train digits --training.steps {'9' * 400}",
            f"--training.steps must be at most 1,000,000,000, not {'9' * 18}...{'9' * 19}",
        ),
        ("train digits --training.minutes 1e300", "--training.minutes must be at most 1,000,000,000, not 1e+300"),
        ("train digits --samples 1000000000", "--samples must be at most 10,000, not 1,000,000,000"),
        ("train digits --samples -1", "--samples must be at least 0, not -1"),
        ("evaluate", "missing: MODEL (usage: axial evaluate MODEL [SOURCE] [OPTIONS])"),
        ("evaluate a b c", "unexpected word 'c': quote what holds blanks, and begin options with --"),
        ("sample --cuont 5", "Unknown option: --cuont. Did you mean --count?"),
        ("sample m --class 3", "Unknown option: --class. Did you mean --label?"),
        ("sample m --examples 3", "Unknown option: --examples, an option of axial complete. Did you mean --count?"),
        ("complete m --n 3", "Unknown option: --n. Did you mean --examples or --count?"),
        ("sample m --batch-size 3", "Unknown option: --batch-size, an option of axial evaluate, score."),
        ("train digits --lr 0.1", "Unknown option: --lr. Did you mean --training.learning-rate?"),
        ("import-official x", "Parameter --output requires an argument."),
    ],
)
def test_a_mistake_in_the_options_is_one_line(axial: Axial, argv, says):
    words = argv.split()
    assert axial(*words) == (2, "", f"axial {words[0]}: {says}\n")


@pytest.mark.parametrize("verb", cli.COMMANDS)
def test_an_option_that_a_verb_lacks_is_one_line(refused, verb):
    recipe = ["digits"] * (verb in ("train", "inspect"))
    assert refused(verb, *recipe, "--qwertz") == f"axial {verb}: Unknown option: --qwertz.\n"


@pytest.mark.parametrize("name", ["taken", "file/below.csv"])
def test_an_output_is_checked_before_the_work(axial: Axial, home, name):
    Path("file").write_text("")
    Path("taken/x").mkdir(parents=True)
    before = sorted(home.rglob("*"))
    heat_maps = ["score", "nowhere", "--heat-maps", "taken"]
    for argv in (["import-official", "nowhere", "--output", name], ["decompress", "m", "nowhere", name], heat_maps):
        status, _, err = axial(*argv)
        assert status == 2
        assert "taken exists already" in err or "Not a directory" in err
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize("verb", ["sample", "complete"])
def test_data_that_another_process_has_written_meanwhile_is_not_replaced(axial: Axial, gray, monkeypatch, verb):
    np.save("data.npy", np.zeros((2, 4, 4), np.uint8))

    def meanwhile(*_: object):
        Path("drawn.npz").write_text("another's")
        return iter

    monkeypatch.setattr(f"axial_transformers.cli.{verb}.bar", meanwhile)
    words = {"sample": [], "complete": ["data.npy", "--rows", 2]}[verb]
    done = axial(verb, gray, *words, "--count", 1, "--output", "drawn.npz")
    assert done == (2, "", f"axial {verb}: drawn.npz exists already: give another path, or remove it first\n")
    assert Path("drawn.npz").read_text() == "another's"


def test_the_command_and_the_package_are_found(axial: Axial):
    version = axial_transformers.__version__
    assert axial("--version").out == f"{version}\n"
    module = subprocess.run([sys.executable, "-m", "axial_transformers", "--help"], capture_output=True, text=True)
    assert module.stdout == axial("--help").out


def test_help_of_a_recipe_shows_the_most_used_options_first_in_80_columns(axial: Axial, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = axial("train", "digits", "--help")
    titles = re.findall(r"^╭─ ([\w ]+) ─", out, re.MULTILINE)
    assert titles == ["Most used", "Run", "Data", "Model", "Training"]
    assert max(map(len, out.splitlines())) <= 80
    options = re.findall(r"^│ (--[\w.-]+)", out, re.MULTILINE)
    assert options[: len(COMMON_OPTIONS)] == [*COMMON_OPTIONS]
    assert [options.count(name) for name in COMMON_OPTIONS] == [1] * len(COMMON_OPTIONS)
    monkeypatch.setenv("COLUMNS", "200")
    options = re.findall(r"^│ (--[\w.-]+)", axial("train", "digits", "--help").out, re.MULTILINE)
    assert {f"--training.{field.name.replace('_', '-')}" for field in fields(TrainConfig)} <= {*options}


def test_recipes_are_listed_with_what_they_reach_in_80_columns(axial: Axial):
    _, out, _ = axial("recipes")
    assert max(map(len, out.splitlines())) <= 80
    assert {f"  {name}" for name in recipes.NAMED} <= {*out.splitlines()}
    words = " ".join(out.split())
    assert all(recipe.reaches in words for recipe in recipes.NAMED.values())


def test_a_run_that_is_not_there_is_said_at_once_with_those_that_are(axial: Axial, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "download", lambda *_: pytest.fail("the hub was asked"))
    status, _, said = axial("sample", "runs/none")
    assert (status, said) == (
        2,
        "axial sample: runs/none: no such run, and no other yet: axial train digits makes one\n",
    )
    for name in ("digits", "photos"):
        small_model((2, 3)).save_pretrained(tmp_path / "runs" / name)
    assert axial("sample", "runs/none")[2] == "axial sample: runs/none: no such run; runs has digits, photos\n"
