"""The ablation compares like with like."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import ablation

ROWS = [(group, row) for group, plan in ablation.GROUPS.items() for row in plan.rows]


@pytest.mark.parametrize(("group", "row"), ROWS)
def test_the_rows_of_a_group_have_equal_data_and_parameters(group, row):
    plan = ablation.GROUPS[group]
    first, config = plan.config(next(iter(plan.rows))), plan.config(row)
    assert (config.shape, config.channels, config.dim, config.heads) == (
        first.shape,
        first.channels,
        first.dim,
        first.heads,
    )
    assert ablation.size(config) == pytest.approx(ablation.size(first), rel=0.05)


def test_rows_that_are_there_are_not_run_again(tmp_path, monkeypatch):
    plan = ablation.GROUPS["fashion"]
    line = {"group": "fashion", "seed": 0, "steps": plan.steps, "batch": plan.batch, "bits_per_dim": 3.0}
    line |= {"step_seconds": 1.0, "step_megabytes": 1.0, "sample_seconds": 1.0, "parameters": 1}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({**line, "row": row}) + "\n" for row in plan.rows))
    monkeypatch.setattr(ablation.subprocess, "run", lambda *arguments, **options: pytest.fail("ran a row"))
    found = ablation.run(tmp_path, tmp_path, groups=("fashion",))
    assert [each["row"] for each in found["rows"]] == list(plan.rows)


def test_the_table_shows_the_spread_of_seeds(tmp_path, capsys):
    line = {"group": "fashion", "row": "axial, LSTM", "steps": 1, "batch": 1, "parameters": 1}
    line |= {"step_seconds": 1.0, "step_megabytes": 1.0, "sample_seconds": 1.0}
    runs = [{**line, "seed": seed, "bits_per_dim": 3.0 + seed} for seed in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in runs))
    (row,) = ablation.table(tmp_path)["rows"]
    assert (row["bits_per_dim"], row["spread"], row["seeds"]) == (4.0, 1.0, 3)
    assert "4.000 ± 1.000" in capsys.readouterr().out
