"""The notebooks run from top to bottom, and were run before they were committed."""

import json
from pathlib import Path

import pytest

from tests.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TINY = {"STEPS": 2, "BATCH": 4, "DIM": 8, "IMAGES": 60, "WIDTH": 8}
"""In place of the settings in the first cell."""


def code_cells(notebook: Path) -> list[dict]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    first, *others = ["".join(cell["source"]) for cell in code_cells(notebook)]
    exec(compile(first, notebook.name, "exec"), names)
    names |= {name: value for name, value in TINY.items() if name in names}
    for source in others:
        exec(compile(source, notebook.name, "exec"), names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_the_outputs_of_one_run(notebook):
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])
    assert notebook.stat().st_size < 300_000
