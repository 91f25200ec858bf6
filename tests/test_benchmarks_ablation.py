"""The ablation compares like with like."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import ablation
import timing
from ablation_groups import GROUPS, size

LSTM = "axial, LSTM, all else fixed"
ROWS = [(group, row) for group, plan in GROUPS.items() for row in plan.rows if row not in plan.as_given]


@pytest.mark.parametrize(("group", "row"), ROWS)
def test_the_rows_of_a_group_have_equal_data_and_parameters(group, row):
    plan = GROUPS[group]
    first, config = plan.config(next(iter(plan.rows))), plan.config(row)
    assert (config.shape, config.channels, config.dim, config.heads) == (
        first.shape,
        first.channels,
        first.dim,
        first.heads,
    )
    assert size(config) == pytest.approx(size(first), rel=0.05)


def test_the_lstm_with_all_else_fixed_differs_in_the_inner_decoder_only():
    attention, lstm = (GROUPS["fashion"].model(row, 0, torch.device("meta")) for row in ("axial, attention", LSTM))
    assert lstm.config == replace(attention.config, inner="lstm", inner_layers=1)
    shapes, others = ({name: p.shape for name, p in model.named_parameters()} for model in (attention, lstm))
    assert {name.split(".")[0] for name in dict(shapes.items() ^ others.items())} == {"inner_decoder"}


def test_rows_that_are_there_are_not_run_again(tmp_path, monkeypatch):
    plan = GROUPS["fashion"]
    line = {"group": "fashion", "seed": 0, "steps": plan.steps, "batch": plan.batch, "bits_per_dim": 3.0}
    line |= {"step_seconds": 1.0, "step_megabytes": 1.0, "sample_seconds": 1.0, "parameters": 1}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({**line, "row": row}) + "\n" for row in plan.rows))
    monkeypatch.setattr(ablation.subprocess, "run", lambda *arguments, **options: pytest.fail("ran a row"))
    found = ablation.run(tmp_path, tmp_path, groups=("fashion",))
    assert [each["row"] for each in found["rows"]] == list(plan.rows)


def lines(**fields):
    line = {"group": "fashion", "row": "axial, LSTM", "steps": 1, "batch": 1, "parameters": 1, "seed": 0}
    return json.dumps({**line, "step_seconds": 1.0, "step_megabytes": 1.0, "sample_seconds": 1.0, **fields}) + "\n"


def test_the_table_shows_mean_and_standard_error_over_seeds(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text("".join(lines(seed=seed, bits_per_dim=3.0 + seed) for seed in range(4)))
    (row,) = ablation.table(tmp_path)["rows"]
    assert (row["bits_per_dim"], row["seeds"]) == (4.5, 4)
    assert row["seeds_standard_error"] == pytest.approx((5 / 3) ** 0.5 / 2)
    assert "4.500 ± 0.645" in capsys.readouterr().out


def test_the_table_keeps_steps_and_devices_apart(tmp_path):
    runs = [{}, {"steps": 2}, {"device": "cuda"}, {"device": "cpu", "seed": 1}]
    (tmp_path / "rows.jsonl").write_text("".join(lines(bits_per_dim=3.0, **fields) for fields in runs))
    assert [row["seeds"] for row in ablation.table(tmp_path)["rows"]] == [2, 1, 1]


def test_a_row_goes_to_the_device_and_the_threads_that_are_named(tmp_path, monkeypatch):
    def no_row(command, **options):
        assert command[command.index("--device") :] == ["--device", "cuda:1", "--threads", "3"]
        raise SystemExit

    monkeypatch.setattr(ablation.subprocess, "run", no_row)
    with pytest.raises(SystemExit):
        ablation.run(tmp_path, tmp_path, machine=ablation.Machine(device="cuda:1", threads=3))


def test_an_lstm_step_has_two_matrix_products_and_four_attention_layers_have_sixteen():
    found = ablation.products(n=8, dim=16)
    assert found["lstm"] == {"weights": 2, "cache": 0, "multiply_adds": 8}
    assert found["attention"] == {"weights": 16, "cache": 8, "multiply_adds": 4 * (4 + 8 + 2 * 8 / 16)}


def test_seconds_on_a_device_with_a_queue_are_read_after_it_has_finished(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    cuda = torch.device("cuda:1")
    assert timing.interleaved({"": lambda: waited.append("ran")}, rounds=1, warm_up=0, device=cuda)[""] >= 0
    assert waited == [cuda, "ran", cuda]
