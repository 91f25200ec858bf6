"""The comparison with the authors' code: its protocol, its checks and its table, without TensorFlow."""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer
from tests.paths import ROOT
from tests.small_models import random_model, random_values, small_config

sys.path.insert(0, str(ROOT / "benchmarks"))

import authors
from authors import FLAGS, LIKELIHOOD, OURS, SAMPLE, AuthorsError, Worker

PYTHON = Path(sys.executable)
ECHO = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "fail":
        raise ValueError("no such thing")
    print(json.dumps(request | {"flags": os.environ["TF_XLA_FLAGS"]}), flush=True)
"""


class Fake:
    """Answers as the process does, with results of this package, moved or of another shape if asked."""

    def __init__(self, model: AxialTransformer, given: torch.Tensor, moved: float = 0.0, shorter: int = 0):
        self.model, self.given, self.moved, self.shorter, self.requests = model, given, moved, shorter, 0

    def ask(self, do: str, work: str, batch: int) -> dict[str, object]:
        assert (do, batch) == ("run", len(self.given))
        self.requests += 1
        of_ours = bits_per_dim(self.model, self.given) if work == LIKELIHOOD else sample(self.model, noise=self.given)
        result = (of_ours + self.moved)[self.shorter :]
        return {"seconds": 7.0, "result": json.loads(json.dumps(result.tolist()))}


@pytest.fixture(scope="module")
def model() -> AxialTransformer:
    return random_model(small_config((3, 4), 3), torch.float32)


@pytest.fixture(scope="module")
def inputs(model: AxialTransformer) -> dict[str, torch.Tensor]:
    x = random_values(model, 2)
    noise = torch.randn(*x.shape, model.config.num_values, generator=torch.Generator().manual_seed(0))
    return {LIKELIHOOD: x, SAMPLE: noise}


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Worker]:
    (tmp_path / "echo.py").write_text(ECHO)
    with closing(Worker(PYTHON, "--some", tmp_path / "echo.py")) as worker:
        yield worker


def test_every_request_has_its_answer_and_its_flags(echo: Worker) -> None:
    for batch in (1, 4):
        assert echo.ask(do="run", batch=batch) == {"do": "run", "batch": batch, "flags": "--some"}


def test_a_process_that_ends_says_why(echo: Worker) -> None:
    for _ in range(2):
        with pytest.raises(AuthorsError, match=r"ended at 'fail' and said: ValueError: no such thing$"):
            echo.ask(do="fail")


@pytest.mark.parametrize("work", [LIKELIHOOD, SAMPLE])
def test_rounds_count_the_seconds_that_a_process_reports(
    model: AxialTransformer, inputs: dict[str, torch.Tensor], work: str
) -> None:
    workers = {way: Fake(model, inputs[work]) for way in FLAGS}
    seconds = authors.measure(model, workers, work, inputs[work], rounds=2)  # type: ignore[arg-type]
    assert 0 < seconds.pop(OURS) < 7
    assert seconds == pytest.approx(dict.fromkeys(FLAGS, 7.0))
    assert all(worker.requests == 3 for worker in workers.values())


@pytest.mark.parametrize(
    ("change", "message"), [({"moved": 0.01}, "by 0.01 bits/dim"), ({"shorter": 1}, r"\[1\] numb")]
)
def test_results_that_differ_are_not_timed(
    model: AxialTransformer, inputs: dict[str, torch.Tensor], change: dict[str, float], message: str
) -> None:
    x = inputs[LIKELIHOOD]
    with pytest.raises(AuthorsError, match=message):
        authors.measure(model, {"plain": Fake(model, x, **change)}, LIKELIHOOD, x, rounds=1)  # type: ignore


def test_the_table_says_how_many_times_as_long_theirs_take(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {OURS: 0.5} | {way: 0.5 * (i + 2) for i, way in enumerate(FLAGS)}
    authors.show([{"work": SAMPLE, "batch": 4, "seconds": seconds}])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if SAMPLE in line)
    assert row.replace("│", "").split() == ["sample", "4", "0.500", "2.00", "3.00", "4.00"]


@pytest.mark.parametrize("command", ["time", "cases"])
@pytest.mark.parametrize("lacking", ["checkout", "python"])
def test_what_is_missing_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, lacking: str
) -> None:
    if lacking == "python":
        (tmp_path / "axial").mkdir()
        (tmp_path / "axial" / "transformers.py").touch()
    out = ["--out", str(tmp_path / "out")] if command == "cases" else []
    with pytest.raises(SystemExit) as ended:
        authors.main([command, str(tmp_path), "--tensorflow", str(tmp_path / "python"), *out])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert {"checkout": "holds no axial/transformers.py", "python": "cannot be started"}[lacking] in line


@pytest.fixture
def worker_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(compat=SimpleNamespace(v1=None)))  # type: ignore
    monkeypatch.delitem(sys.modules, "authors_worker", raising=False)
    return importlib.import_module("authors_worker")


def np_gumbel(random: np.random.RandomState, shape: tuple[int, ...], temperature: float) -> np.ndarray:
    return -np.log(-np.log(random.uniform(1e-9, 1.0, shape))) * temperature


@pytest.mark.parametrize(
    ("name", "draws"), [("official_a", (11, (3, 8, 8, 3), 256, 32)), ("official_c", (13, (3, 12, 12), 16, 16))]
)
def test_stored_cases_are_sampled_from_their_seeds(worker_module: ModuleType, name: str, draws: tuple) -> None:
    sampled = worker_module.draws(SimpleNamespace(np_gumbel=np_gumbel), *draws)
    with np.load(authors.STORED / name / "case.npz") as stored:
        for array, found in zip(("x", "noise", "cond"), sampled):
            np.testing.assert_allclose(stored[array], found[: len(stored[array])], rtol=0, atol=1e-6)


def test_a_file_that_is_written_again_says_how_far_it_is_from_the_stored_one(tmp_path: Path) -> None:
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    np.savez(one, logits=np.zeros(3), x=np.ones(3))
    assert authors.difference(one, other) == "not stored"
    np.savez(other, logits=np.zeros(3), x=np.ones(3))
    assert authors.difference(one, other) == "the stored bytes"
    np.savez(other, logits=np.full(3, 0.25), x=np.ones(3))
    assert authors.difference(one, other) == "at most 2.5e-01 from the stored arrays, in logits"
    np.savez(other, logits=np.zeros(3))
    assert authors.difference(one, other) == "other arrays: x"
