"""The commands on a GPU that computes nothing: they take its branches, with no tensor of a CPU among its own."""

import json
import logging
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from axial_transformers import machine
from tests.conftest import TINY
from tests.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from pretended_gpu import CUDA, PretendedGPU  # isort: skip


@pytest.fixture
def gpu():
    with PretendedGPU() as gpu:
        yield gpu


def test_a_run_trains_evaluates_samples_saves_and_resumes_on_a_gpu(axial, gpu, tmp_path, caplog):
    run, every_two = tmp_path / "run", ["--training.save-every", 2, "--training.evaluate-every", 2]
    small = [*TINY, *every_two, "--training.batch-size", 8, "--validate-on", 4, "--samples", 4]
    on_gpu = ["--training.device", "cuda", "--training.precision", "bfloat16"]
    caplog.set_level(logging.DEBUG, "axial_transformers.decoding.backend_choice")
    assert axial("train", "digits", "--out", run, *small, *on_gpu, "--training.steps", 4).status == 0
    assert axial("train", run, "--training.steps", 6).status == 0
    assert [path.name for path in sorted((run / "checkpoints").iterdir())][-1] == "step-00000006"
    assert json.loads((run / "train.json").read_text())["facts"]["machine"]["cuda:0"] == "no GPU"
    for words in (
        ["evaluate", run, "--json"],
        ["score", run, "--output", tmp_path / "scores.csv", "--precision", "bfloat16"],
        ["sample", run, "--count", 2, "--output", tmp_path / "samples.png", "--precision", "bfloat16"],
        ["complete", run, "--rows", 3, "--output", tmp_path / "completed.png"],
    ):
        assert axial(*words, "--device", "cuda").status == 0, words
    assert [record.message for record in caplog.records] == [], "graphs, not eager"


def test_a_run_begun_on_a_cpu_keeps_its_arithmetic_on_a_gpu_unless_told_otherwise(axial, tmp_path):
    run = tmp_path / "run"
    small = [*TINY, "--training.batch-size", 8, "--validate-on", 4, "--samples", 4, "--training.device", "cpu"]
    assert axial("train", "digits", "--out", run, *small, "--training.steps", 2).status == 0
    faster = ["--training.precision", "bfloat16", "--training.compile"]
    with PretendedGPU():
        for steps, words, expected in ((3, [], ("float32", False)), (4, faster, ("bfloat16", True))):
            options = ["--training.device", "cuda", "--training.steps", steps]
            assert axial("train", run, *options, *words).status == 0
            settings = json.loads((run / "train.json").read_text())["run"]["training"]
            assert (settings["precision"], settings["compile"]) == expected


def test_a_pretended_gpu_refuses_what_a_gpu_refuses():
    with PretendedGPU(memory=1e6) as gpu:
        x = torch.ones(3, 4, device="cuda", requires_grad=True)
        assert (x.device, x.is_cuda, torch.ones(2).device.type) == (CUDA, True, "cpu")
        with pytest.raises(RuntimeError, match="device"):
            torch.matmul(x, torch.ones(4, 2))
        with pytest.raises(ValueError, match="specified index"):
            torch.cuda.set_device(torch.device("cuda"))
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 20, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.ones(1000, device="cuda").sum()
        assert torch.cuda.max_memory_allocated() - before == 4004
        torch.cuda.set_sync_debug_mode("error")
        for wait in (lambda: x.sum().item(), lambda: x.cpu(), lambda: x.tolist(), lambda: torch.ones(2).to(CUDA)):
            with pytest.raises(RuntimeError, match="synchronizing"):
                wait()
        torch.ones(2).pin_memory().to(CUDA, non_blocking=True)
        assert gpu.waits_raise
        torch.cuda.set_sync_debug_mode("default")
        assert float(x.sum()) == 1
        checkpoint(lambda x: torch.nn.functional.linear(x, x), x, use_reentrant=False).sum().backward()
        assert x.grad.device == CUDA
    assert not torch.cuda.is_available()


def test_a_pretended_gpu_without_headers_compiles_nothing():
    for compiles in (True, False):
        with PretendedGPU(compiles=compiles):
            assert (machine.why_not_compiled.__wrapped__(CUDA) is None) is compiles
