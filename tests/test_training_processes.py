"""One process or two, whole models or shares of them: the same training."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from axial_transformers.models import AxialTransformer

RUN = """
import sys, json, dataclasses
from pathlib import Path
import numpy as np
import torch
from axial_transformers.data.examples import Examples
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.likelihood import bits_per_dim, random_slice_loss
from axial_transformers.training import TrainConfig, train
import os

folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
torch.manual_seed(int(os.environ.get("RANK", 0)))  # weights that differ until the first process gives its own
model = AxialTransformer(AxialTransformerConfig(
    shape=(3, 2), channels=2, num_values=4, dim=8, heads=2, encoder_layers=2, outer_layers=2, inner_layers=1))
values = np.random.default_rng(1).integers(0, 4, (40, 3, 2, 2), dtype=np.uint8)
seen = []

def loss(model, x, label=None, channel=None):
    seen.append([x.flatten(1).tolist(), channel.tolist()])
    return random_slice_loss(model, x, label=label, channel=channel)

def score(model, step):
    return {"bits_per_dim": float(bits_per_dim(model, torch.from_numpy(values)).mean())}

usual = dict(steps=100, batch_size=8, learning_rate=1e-3, warmup_steps=20, ema_decay=0.9, device="cpu", log_every=1,
             save_every=30, evaluate_every=50)
config = TrainConfig(**{**usual, **options})
result = train(model, Examples(values, [str(i) for i in range(40)], num_values=4), config, folder, loss=loss,
               evaluate=score, resume=True)
(folder / f"seen-{os.environ.get('RANK', 0)}.json").write_text(json.dumps(seen))
"""


def run(folder: Path, processes: int, **options) -> Path:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [sys.executable, "-c", RUN, str(folder), json.dumps(options)]
    workers = []
    for rank in range(processes):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
        env = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        env |= {key: str(value) for key, value in place.items()} if processes > 1 else {}
        workers.append(subprocess.Popen(start, env=env, stderr=subprocess.PIPE, text=True))
    for worker in workers:
        _, errors = worker.communicate(timeout=240)
        assert worker.returncode == 0, errors
    return folder


def losses(folder: Path) -> torch.Tensor:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return torch.tensor([line["nats_per_dim"] for line in lines if "nats_per_dim" in line], dtype=torch.float64)


def examples_seen(folder: Path, processes: int) -> list[list]:
    """Per step: the examples of all processes joined, and their channels."""
    each = [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(processes)]
    return [[[one for share in part for one in share] for part in zip(*step)] for step in zip(*each)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    return run(tmp_path_factory.mktemp("alone") / "run", 1)


SLOW = pytest.mark.slow
ACCUMULATED = pytest.param({"accumulate": 2}, marks=SLOW)


@pytest.mark.parametrize("options", [{}, {"shard": True}, ACCUMULATED], ids=["ddp", "fsdp2", "accumulated"])
def test_two_processes_train_as_one_does(alone, tmp_path, options):
    together = run(tmp_path / "run", 2, **options)
    one, two = losses(alone), losses(together)
    assert len(one) == len(two) == 100
    assert ((one - two).abs() / one).max() < 1e-5
    if "accumulate" not in options:
        assert examples_seen(together, 2) == examples_seen(alone, 1)
    x = torch.randint(0, 4, (3, 3, 2, 2))
    a, b = (AxialTransformer.from_pretrained(folder)(x) for folder in (alone, together))
    assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize(
    ("first", "then", "options"),
    [(2, 1, {"shard": True}), pytest.param(1, 2, {"shard": True}, marks=SLOW), pytest.param(2, 1, {}, marks=SLOW)],
)
def test_a_run_goes_on_with_another_number_of_processes(alone, tmp_path, first, then, options):
    folder = run(tmp_path / "run", first, **options, steps=60)
    before = examples_seen(folder, first)
    run(folder, then, **options)
    assert ((losses(alone) - losses(folder)).abs() / losses(alone)).max() < 1e-5
    assert before + examples_seen(folder, then) == examples_seen(alone, 1)
    checkpoint = load_file(folder / "checkpoints" / "step-00000100" / "model.safetensors")
    expected = load_file(alone / "checkpoints" / "step-00000100" / "model.safetensors")
    assert checkpoint.keys() == expected.keys()
    assert all(torch.allclose(checkpoint[name], expected[name], atol=1e-4) for name in expected)


@pytest.mark.slow
def test_computing_blocks_again_changes_nothing(alone, tmp_path):
    assert torch.equal(losses(run(tmp_path / "run", 1, checkpoint_blocks=True)), losses(alone))


@pytest.mark.slow
def test_a_batch_that_does_not_divide_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="does not divide"):
        run(tmp_path / "run", 2, batch_size=9)
