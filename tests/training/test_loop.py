"""A run survives interruption, damage and divergence, and repeats bitwise."""

import json
import shutil
import signal
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axial_transformers.data import DataConfig, Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.likelihood.bits import bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.training import NonFiniteLoss, RunConfig, TrainConfig, read_run, train
from axial_transformers.training.checkpoints import Checkpoints
from axial_transformers.training.optimizer import learning_rate

CONFIG = TrainConfig(
    steps=24, batch_size=4, accumulate=2, learning_rate=1e-2, warmup_steps=5, schedule="cosine", ema_decay=0.9,
    horizontal_flip=True, label_dropout=0.3, device="cpu", precision="float32", log_every=1, save_every=6,
    evaluate_every=10,
)  # fmt: skip


def examples(count: int = 15) -> Examples:
    values = np.random.default_rng(1).integers(0, 3, (count, 4, 2), dtype=np.uint8)
    return Examples(values, [str(i) for i in range(count)], labels=np.arange(count) % 3, range=ValueRange(0, 3))


def model() -> AxialTransformer:
    torch.manual_seed(0)
    config = AxialTransformerConfig(
        shape=(4,), channels=2, num_values=4, num_classes=3, dim=8, heads=2, encoder_layers=1, inner_layers=1,
        dropout=0.2,
    )  # fmt: skip
    return AxialTransformer(config)


def score(averaged: AxialTransformer, step: int, fill: Any) -> dict[str, float]:
    torch.rand(step % 7)  # an evaluation that samples numbers must not change what training samples
    return {"bits_per_dim": float(bits_per_dim(averaged, torch.from_numpy(examples().values)).mean())}


def run(folder: Path, config: TrainConfig | RunConfig = CONFIG, **options):
    return train(model(), examples(), config, folder, evaluate=score, **options)


def weights(folder: Path, step: int = CONFIG.steps) -> list[dict[str, torch.Tensor]]:
    return [load_file(file) for file in sorted((folder / f"checkpoints/step-{step:08d}").glob("*.safetensors"))]


def assert_same(left: list[dict[str, torch.Tensor]], right: list[dict[str, torch.Tensor]]) -> None:
    assert len(left) == len(right) == 3
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def steps_of(folder: Path, figure: str) -> list[float]:
    return [line["step"] for line in lines(folder) if figure in line]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "whole"
    result = run(folder)
    assert (result.ending, result.step) == ("finished", 24)
    return folder


def test_ctrl_c_ends_after_the_step_at_hand_and_a_second_at_once(tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def interrupting(times):
        def loss(*inputs, **more):
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            return random_slice_loss(*inputs, **more)

        return loss

    whole_batches = replace(CONFIG, accumulate=1)
    options = {"loss": interrupting(1), "evaluate": pytest.fail, "sample": pytest.fail}  # neither begins any more
    result = train(model(), examples(), replace(whole_batches, evaluate_every=1), tmp_path / "once", **options)
    assert (result.ending, result.step) == ("interrupted", 1)
    assert AxialTransformer.from_pretrained(tmp_path / "once").config == model().config
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "twice", whole_batches, loss=interrupting(2))
    assert signal.getsignal(signal.SIGINT) is before


def assert_alike(folder: Path, other: Path) -> None:
    """The same weights, averages and moments, the same export, the same evaluations."""
    assert_same(weights(folder), weights(other))
    assert (folder / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert steps_of(folder, "validation_bits_per_dim") == steps_of(other, "validation_bits_per_dim")


@pytest.mark.parametrize("when", ["during", "just after"])
def test_a_kill_around_an_evaluation_costs_no_step_and_logs_it_once(uninterrupted, tmp_path, monkeypatch, when):
    def evaluate(averaged, step, fill):
        if when == "during":
            raise KeyboardInterrupt
        return score(averaged, step, fill)

    def save(checkpoints, weights, state):
        if state.evaluated_step == 10:
            raise KeyboardInterrupt
        unkilled(checkpoints, weights, state)

    unkilled = Checkpoints.save
    monkeypatch.setattr(Checkpoints, "save", save)
    with pytest.raises(KeyboardInterrupt):
        train(model(), examples(), CONFIG, tmp_path / "run", evaluate=evaluate)
    monkeypatch.undo()
    assert steps_of(tmp_path / "run", "validation_bits_per_dim") == ([] if when == "during" else [10])
    assert max((tmp_path / "run/checkpoints").iterdir()).name == "step-00000010"
    run(tmp_path / "run", resume=True)
    assert_alike(tmp_path / "run", uninterrupted)


def test_an_evaluation_ends_after_a_signal_and_the_run_with_it(uninterrupted, tmp_path):
    def signalled(averaged, step, fill):
        signal.raise_signal(signal.SIGTERM)
        return score(averaged, step, fill)

    result = train(model(), examples(), CONFIG, tmp_path / "run", evaluate=signalled)
    assert (result.ending, result.step, result.evaluated_step) == ("interrupted", 10, 10)
    run(tmp_path / "run", resume=True)
    assert_alike(tmp_path / "run", uninterrupted)


def test_a_signal_that_was_ignored_stays_ignored(tmp_path):
    def loss(*inputs, **more):
        signal.raise_signal(signal.SIGINT)
        return random_slice_loss(*inputs, **more)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = run(tmp_path / "run", replace(CONFIG, steps=2), loss=loss)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.ending == "finished"


def test_the_best_checkpoint_is_kept_when_it_is_not_among_the_newest(tmp_path):
    def worse_and_worse(averaged: AxialTransformer, step: int, fill: Any) -> dict[str, float]:
        return {"bits_per_dim": float(step)}

    config = replace(CONFIG, evaluate_every=2, save_every=1)
    for steps in (5, 7):  # and when the run goes on
        result = train(
            model(), examples(), replace(config, steps=steps), tmp_path / "run",
            evaluate=worse_and_worse, resume=True,
        )  # fmt: skip
        assert (result.best_step, result.best_bits_per_dim) == (2, 2.0)
        found = sorted(int(each.name[-8:]) for each in (tmp_path / "run/checkpoints").iterdir())
        assert found == [2, steps - 1, steps]
        best, exported = weights(tmp_path / "run", 2)[0], load_file(tmp_path / "run/model.safetensors")
        assert all(torch.equal(best[name], exported[name]) for name in exported)


@pytest.mark.parametrize("file", ["model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named_and_without_it_the_run_goes_on(uninterrupted, tmp_path, file):
    shutil.copytree(uninterrupted, tmp_path / "run")
    path = tmp_path / "run/checkpoints/step-00000024" / file
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises((OSError, ValueError), match=str(path)):
        run(tmp_path / "run", resume=True)
    shutil.rmtree(path.parent)
    run(tmp_path / "run", resume=True)
    assert_same(weights(tmp_path / "run"), weights(uninterrupted))


def test_leftovers_of_a_kill_are_removed(uninterrupted, tmp_path):
    shutil.copytree(uninterrupted, tmp_path / "run")
    (tmp_path / "run/checkpoints/.step-00000042.abc.part").mkdir()
    (tmp_path / "run/checkpoints/.step-00000042.abc.part/.state.12.part.json").touch()
    run(tmp_path / "run", resume=True)
    assert not list((tmp_path / "run").rglob("*.part*"))


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_non_finite_step_stops_and_keeps_what_was_last_good(uninterrupted, tmp_path, where):
    calls = 0

    def loss(*inputs, **more):
        nonlocal calls
        calls += 1
        good = random_slice_loss(*inputs, **more)
        if calls != 17:  # two calls a step: the ninth
            return good
        return good * torch.nan if where == "loss" else (good - good.detach()).abs().sqrt() + good.detach()

    with pytest.raises(NonFiniteLoss, match=r"step 9 .*step-00000006$"):
        run(tmp_path / "run", loss=loss)
    run(tmp_path / "run", resume=True)
    assert_same(weights(tmp_path / "run"), weights(uninterrupted))


@pytest.mark.parametrize(("broken", "step", "kept"), [(7, 8, 6), (12, 12, 10)], ids=["seen by a loss", "by a save"])
def test_weights_that_are_not_finite_are_no_good_state(uninterrupted, tmp_path, monkeypatch, broken, step, kept):
    with monkeypatch.context() as patch:
        patch.setattr(
            "axial_transformers.training.step.learning_rate",
            lambda *given: 1e39 if given[0] == broken - 1 else learning_rate(*given),
        )
        with pytest.raises(NonFiniteLoss, match=f"step {step} .*step-{kept:08d}$"):
            run(tmp_path / "run")
    assert AxialTransformer.from_pretrained(tmp_path / "run")
    run(tmp_path / "run", resume=True)
    assert_same(weights(tmp_path / "run"), weights(uninterrupted))


def test_a_metric_that_is_not_finite_is_no_best_one_and_the_run_goes_on(tmp_path):
    def broken(averaged: AxialTransformer, step: int, fill: Any) -> dict[str, float]:
        return {"bits_per_dim": -np.inf}

    half = replace(CONFIG, steps=12)
    result = train(model(), examples(), half, tmp_path / "run", evaluate=broken)
    assert (result.ending, result.best_step, result.best_bits_per_dim) == ("finished", None, None)
    assert run(tmp_path / "run", resume=True).best_step in (20, 24)


@pytest.mark.parametrize(
    ("training", "layers", "count", "complaint"),
    [
        ({"seed": 1}, 1, 15, r"training\.seed .*0.* 1"),
        ({"batch_size": 6}, 1, 15, r"training\.batch_size .*4.* 6"),
        ({"optimizer": "muon"}, 1, 15, r"training\.optimizer .*adam.* 'muon"),
        ({}, 2, 15, r"model\.inner_layers .*1.* 2"),
        ({}, 1, 14, "data.fingerprint"),
    ],
)
def test_another_run_is_refused_on_resume(uninterrupted, training, layers, count, complaint):
    other = AxialTransformer(replace(model().config, inner_layers=layers))
    with pytest.raises(ValueError, match=complaint):
        train(other, examples(count), replace(CONFIG, **training), uninterrupted, resume=True)


@pytest.mark.parametrize("left", ["nothing", "another run"])
@pytest.mark.parametrize("when", ["a step", "an evaluation", "samples"])
def test_a_run_whose_folder_is_moved_ends_and_goes_on_at_the_new_place(uninterrupted, tmp_path, when, left):
    """Nothing is written to the old place, not even where another run has begun there."""
    old, new = tmp_path / "old", tmp_path / "new"

    def move(moment: str, step: int) -> None:
        if (moment, step) == (when, 10) and not new.exists():
            old.rename(new)
            if left == "another run":
                old.mkdir()
                shutil.copy(new / "train.json", old)

    calls = count()

    def loss(*inputs, **more):
        move("a step", next(calls))
        return random_slice_loss(*inputs, **more)

    def evaluate(averaged, step, fill):
        move("an evaluation", step)
        return score(averaged, step, fill)

    def sample(averaged, step):
        move("samples", step)

    config = replace(CONFIG, sample_every=10, log_every=100)  # a save is the first to find out
    with pytest.raises(FileNotFoundError, match="moved"):
        train(model(), examples(), config, old, loss=loss, evaluate=evaluate, sample=sample)
    assert [path.name for path in old.rglob("*")] == (["train.json"] if left == "another run" else [])
    assert run(new, resume=True).ending == "finished"
    assert_alike(new, uninterrupted)


def test_a_folder_in_use_is_not_written_over(uninterrupted, tmp_path):
    with pytest.raises(FileExistsError, match="not empty"):
        run(uninterrupted)
    model().save_pretrained(tmp_path / "model")
    (tmp_path / "model/.film.part").touch()  # of something else
    with pytest.raises(FileExistsError, match="resume"):
        run(tmp_path / "model", resume=True)
    assert (tmp_path / "model/.film.part").exists()


def test_data_that_do_not_fit_are_refused_before_anything_is_written(tmp_path):
    for change, complaint in (
        ({"values": np.zeros((15, 2, 2, 2), np.uint8)}, "data"),
        ({"range": ValueRange(0, 4)}, r"0\.\.3"),
        ({"labels": None}, "labels"),
        ({"labels": np.full(15, 3)}, r"labels 3\.\.3"),
    ):
        with pytest.raises(ValueError, match=complaint):
            train(model(), replace(examples(), **change), CONFIG, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bfloat16_and_parts_change_little(tmp_path):
    """The sum of the parts' gradients is the batch's; bfloat16 rounds."""
    torch.manual_seed(0)
    plain = AxialTransformer(replace(model().config, dropout=0.0))
    finals = []
    for i, changes in enumerate(({"accumulate": 1}, {"accumulate": 4}, {"precision": "bfloat16"})):
        config = replace(CONFIG, steps=5, **changes)
        learner = AxialTransformer(plain.config)
        learner.load_state_dict(plain.state_dict())
        train(learner, examples(), config, tmp_path / str(i))
        finals.append(lines(tmp_path / str(i))[-1]["nats_per_dim"])
    assert finals[1] == pytest.approx(finals[0], rel=1e-5)
    assert finals[2] == pytest.approx(finals[0], rel=2e-2)


def test_logged_losses_after_a_resume_are_those_of_the_uninterrupted_run(tmp_path):
    """Also where the run was interrupted between two lines."""
    config = replace(CONFIG, schedule="constant", log_every=5, save_every=100, evaluate_every=100)
    for folder, ends in (("whole", [15]), ("parts", [3, 7, 12, 15])):
        for steps in ends:
            run(tmp_path / folder, replace(config, steps=steps), resume=steps > ends[0])
    names = ("step", "nats_per_dim", "bits_per_dim", "gradient_norm")
    whole, parts = (
        [[line[name] for name in names] for line in lines(tmp_path / folder) if "nats_per_dim" in line]
        for folder in ("whole", "parts")
    )
    assert [step for step, *_ in whole] == [5, 10, 15]
    assert parts == whole


def test_training_lowers_the_loss_and_the_callbacks_see_averaged_weights(tmp_path):
    seen = []

    def sample(averaged, step):
        assert not averaged.training
        seen.append(step)

    config = replace(CONFIG, steps=40, sample_every=25, tensorboard=True)
    settings = RunConfig(source="made up", data=DataConfig(size=3), model=model().config, training=config)
    result = run(tmp_path / "run", settings, sample=sample)
    assert seen == [25, 40]
    assert result.best_bits_per_dim < score(model(), 0, None)["bits_per_dim"] - 0.1
    record = read_run(tmp_path / "run")
    assert record is not None
    assert record.run == replace(settings, training=config.resolve_auto(), out=tmp_path / "run")
    assert list((tmp_path / "run/tensorboard").iterdir())


def test_an_array_in_place_of_examples_is_refused_before_anything_is_written(tmp_path):
    model = AxialTransformer(AxialTransformerConfig(shape=(2, 3), dim=8, heads=2))
    with pytest.raises(TypeError, match="examples_from"):
        train(model, np.zeros((8, 2, 3, 1), np.uint8), TrainConfig(steps=1, device="cpu"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
