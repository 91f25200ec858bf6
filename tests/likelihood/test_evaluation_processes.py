"""One process or several: the same bits/dim, scores and samples, in training and from the command line."""

import json
import os
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

from axial_transformers import cli
from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.likelihood.evaluation import Fill, evaluate
from axial_transformers.models import AxialTransformer
from axial_transformers.training import TrainConfig, train
from tests.launching import fork
from tests.small_models import random_model, random_values, small_config, small_model

LOST = "has lost another, which says why if it could"


@pytest.fixture(autouse=True)
def _no_line_of_progress_however_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch):
    for name in ("SECONDS_TO_FIRST_LINE", "SECONDS_BETWEEN_LINES"):
        monkeypatch.setattr(f"axial_transformers.progress.{name}", float("inf"))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the digits with random weights of scale 1."""
    folder = tmp_path_factory.mktemp("models") / "digits"
    random_model(small_config((8, 8), num_values=17, num_classes=10), torch.float32).save_pretrained(folder)
    return folder


def commands(model: Path, outputs: Path) -> list[list[str]]:
    """Uneven batches, fewer batches or samples than processes, labels, heat maps, another source."""
    limits = [["--limit", "23", "--batch-size", "4"], ["--limit", "5", "--batch-size", "3"]]
    return [
        ["evaluate", str(model), "digits", *limits[0], "--labels", "--json"],
        ["evaluate", str(model), "digits", *limits[1], "--json"],
        ["score", str(model), "digits", *limits[0], "--out", str(outputs / "scores.csv"), "--against", "digits"],
        ["score", str(model), "digits", *limits[1], "--heat-maps", str(outputs / "maps"), "--top", "2"],
        ["sample", str(model), "--count", "5", "--seed", "5", "--label", "3", "--out", str(outputs / "five.npz")],
        ["sample", str(model), "--count", "2", "--out", str(outputs / "two.png")],
    ]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def alone(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, bytes]]:
    """What one process prints and writes."""
    outputs = tmp_path_factory.mktemp("one")
    with redirect_stdout(StringIO(newline="")) as printed:
        assert max(cli.main(argv) for argv in commands(digits, outputs)) == 0
    return printed.getvalue().replace(str(outputs), ""), files(outputs)


@pytest.mark.parametrize("processes", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (2, 4))])
def test_several_processes_evaluate_score_and_sample_as_one_does(alone, digits, tmp_path, processes):
    outputs, (expected, written) = tmp_path / "outputs", alone
    outputs.mkdir()
    argvs = commands(digits, outputs)
    (first, out, err), *others = fork(processes, lambda: max(cli.main(argv) for argv in argvs), tmp_path)
    assert first == 0
    assert [line.split(":")[0] for line in err.splitlines()] == ["ranked by bits"] * 2
    assert others == [(0, "", "")] * (processes - 1)
    assert out.replace(str(outputs), "") == expected
    assert '"bits_per_dim"' in expected
    assert "AUROC" in expected
    assert files(outputs) == written
    assert len(written) == 6


def small_run(folder: Path, each: Callable[[int], None]) -> Callable[[], int]:
    """A run that evaluates 23 examples in batches of 3 together, calling `each` with the start of every batch."""

    def call() -> int:
        torch.manual_seed(0)
        model = small_model((2, 3)).float()
        x = random_values(model, 23).to(torch.uint8)
        examples = Examples(x.numpy(), [str(i) for i in range(23)], range=ValueRange(0, 4))

        class Seen:
            def __len__(self) -> int:
                return len(x)

            def __getitem__(self, batch: slice) -> torch.Tensor:
                each(batch.start)
                return x[batch]

        def evaluated(model: AxialTransformer, step: int, fill: Fill) -> dict[str, float]:
            return {"bits_per_dim": evaluate(model, Seen(), batch_size=3, fill=fill).bits_per_dim}

        usual = TrainConfig(steps=2, batch_size=4, evaluate_every=1, device="cpu", shard=True)
        result = train(model, examples, usual, folder, evaluate=evaluated, resume=True)
        print(json.dumps([result.ending, result.best_step, result.best_bits_per_dim]))
        return 0

    return call


def test_a_run_shares_its_evaluations_out(tmp_path):
    """Its weights are in shards; evaluations with a copy in every process are those of the test above."""

    def noted(start: int) -> None:
        with (tmp_path / f"seen-{os.environ['RANK']}").open("a") as file:
            file.write(f"{start} ")

    outcomes = fork(2, small_run(tmp_path / "run", noted), tmp_path)
    assert [status for status, _, _ in outcomes] == [0, 0], outcomes
    (ending, best_step, best), other = (json.loads(out) for _, out, _ in outcomes)
    assert [ending, best_step, best] == other
    assert ending == "finished"
    seen = [[int(start) for start in (tmp_path / f"seen-{rank}").read_text().split()] for rank in range(2)]
    assert seen == [2 * [0, 6, 12, 18], 2 * [3, 9, 15, 21]]
    model = AxialTransformer.from_pretrained(tmp_path / "run")
    expected = bits_per_dim(model, random_values(model, 23)).mean().item()
    assert best == pytest.approx(expected, abs=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = {line["step"]: line["validation_bits_per_dim"] for line in lines if "validation_bits_per_dim" in line}
    assert logged.keys() == {1, 2}
    assert logged[best_step] == best == min(logged.values())


def test_a_mistake_in_one_process_ends_the_others_with_one_line(digits, tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> torch.Tensor:
        if os.environ["RANK"] == "1":
            raise ValueError("this record is damaged")
        return torch.zeros(3)

    monkeypatch.setattr("axial_transformers.likelihood.evaluation.bits_per_dim", broken)
    argv = ["evaluate", str(digits), "digits", "--limit", "9", "--batch-size", "3"]
    first, second, third = fork(3, lambda: cli.main(argv), tmp_path)
    assert second == (2, "", "axial evaluate: this record is damaged\n")
    for rank, (status, out, err) in ((0, first), (2, third)):
        assert (status, out) == (2, "")
        assert err == f"axial evaluate: process {rank} of 3 {LOST}: start all of them again\n"
