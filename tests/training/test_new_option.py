"""A new training option is its field with a docstring, and the line that uses it: nothing else names it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import axial_transformers
from tests.conftest import TINY

FIELD = """
    label_dropout: Annotated[float, SHARE] = 0.0
"""
NEW = '''
    weight_noise: Annotated[float, SHARE] = 0.0
    """Standard deviation of the noise on the weights after each step."""
'''
LINE = "    step_all(weights.optimizers, learner.config, rate)\n"
USE = "    print('noise of', learner.config.weight_noise)\n"
COMMANDS = """
import sys
from axial_transformers.cli import main
small = sys.argv[1:]
try:
    main(["train", "digits", "--help"])
except SystemExit:
    pass
assert main(["train", "digits", "--out", "run", *small, "--training.weight-noise", "0.25"]) == 0
assert main(["train", "digits", "--out", "other", *small, "--training.weight-noise", "2"]) == 2
"""


@pytest.mark.slow
def test_an_option_added_in_two_files_is_in_help_record_page_and_errors(tmp_path):
    package = tmp_path / "src" / "axial_transformers"
    shutil.copytree(Path(axial_transformers.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in (("config.py", FIELD, NEW + FIELD), ("step.py", LINE, LINE + USE)):
        path = package / "training" / file
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
    small = [*TINY, "--training.steps", "2", "--samples", "0", "--validate-on", "1", "--training.batch-size", "2"]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *small],
        env=os.environ | {"PYTHONPATH": str(package.parent), "COLUMNS": "200"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--training.weight-noise" in done.stdout
    assert "Standard deviation of the noise on the weights after each step. [default: 0.0]" in done.stdout
    assert done.stdout.count("noise of 0.25") == 2
    assert json.loads((tmp_path / "run/train.json").read_text())["run"]["training"]["weight_noise"] == 0.25
    assert "training.weight_noise" in (tmp_path / "run/index.html").read_text()
    assert done.stderr.splitlines()[-1] == (
        "axial train: --training.weight-noise must be at least 0 and below 1, not 2.0"
    )
