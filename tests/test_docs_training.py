"""The table of sizes in docs/training.md agrees with axial inspect."""

import re
from pathlib import Path

import pytest

from axial_transformers import recipes
from axial_transformers.planning.machine import Machine
from axial_transformers.planning.plan import plan

TEXT = (Path(__file__).parents[1] / "docs" / "training.md").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "imagenet32",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("imagenet64", "imagenet64_released", "bair")),
    ],
)
def test_the_table_of_sizes_is_what_inspect_says(name):
    (row,) = re.findall(rf"^\| {name} \|(.*)\|$", TEXT, flags=re.MULTILINE)
    recipe = recipes.NAMED[name]()
    found = plan(recipe.model, recipe.training, None, Machine(devices=8)).to_json()
    kept, again = found["memory_bytes"].values()
    expected = [
        (kept["weights"] + kept["gradients"]) / 1e9,
        (kept["adam"] + kept["average"]) / 1e9,
        kept["activations"] / 1e9,
        kept["total"] / 1e9,
        again["total"] / 1e9,
        found["operations_per_step"] / 1e15,
        found["seconds_of_all_steps"] / 3600,
    ]
    assert [float(cell) for cell in row.split("|")] == pytest.approx(expected, rel=0.005)
