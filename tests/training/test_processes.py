"""One process or two, whole models or shares of them: the same training."""

import gc
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from axial_transformers import data
from axial_transformers.data.value_range import ValueRange
from axial_transformers.likelihood.bits import bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.elementwise import dropout
from axial_transformers.training import TrainConfig, checkpoints, step as step_module, train
from tests.launching import fork
from tests.shard_writer import array, write

VALUES = np.random.default_rng(1).integers(0, 4, (40, 6, 2), dtype=np.uint8)
CONFIG = AxialTransformerConfig(
    shape=(6,), channels=2, num_values=4, dim=8, heads=2, encoder_layers=1, inner_layers=1, rotary=10.0,
)  # fmt: skip
USUAL = TrainConfig(
    steps=12, batch_size=8, learning_rate=1e-3, warmup_steps=4, ema_decay=0.9, device="cpu", log_every=1,
    save_every=100, evaluate_every=6, precision="float32",
)  # fmt: skip


def trained(folder: Path, source: str | None, options: dict[str, Any]) -> int:
    """A run of this process, which writes what it has seen of the data, and its dropout masks."""
    rank = os.environ.get("RANK", "0")
    torch.manual_seed(int(rank))  # weights that differ until the first process gives its own
    model, seen, masks, shards = AxialTransformer(CONFIG), [], [], []

    def loss(model, x, label=None, channel=None):
        seen.append([x.flatten(1).tolist(), channel.tolist()])
        masks.append(dropout(torch.ones(64), 0.5).tolist())
        shards.append(any(isinstance(p, DTensor) for p in model.parameters()))
        return random_slice_loss(model, x, label=label, channel=channel)

    def score(model, step, fill):
        return {"bits_per_dim": float(bits_per_dim(model, torch.from_numpy(VALUES)).mean())}

    def destroy(then=dist.destroy_process_group):  # from DDP's part in C++ this may wait for ever
        assert not [each for each in gc.get_objects() if type(each) is DistributedDataParallel], "outlives the group"
        then()

    examples = data.Examples(VALUES, [str(i) for i in range(40)], range=ValueRange(0, 3))
    if source:
        examples = data.load(source, data.DataConfig(num_values=4, axes="NLC"), "all")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "destroy_process_group", destroy)
        if rank != "0":
            patch.setattr(checkpoints, "read_tensors", lambda *_: pytest.fail("the first process reads for all"))
        train(model, examples, replace(USUAL, **options), folder, loss=loss, evaluate=score, resume=True)
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen))
    (folder / f"masks-{rank}.json").write_text(json.dumps(masks))
    (folder / f"shards-{rank}.json").write_text(json.dumps(all(shards)))
    return 0


def run(folder: Path, processes: int, source: str | None = None, **options: Any) -> Path:
    if processes == 1:
        trained(folder, source, options)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    ended = fork(processes, lambda: trained(folder, source, options), folder.parent)
    assert [status for status, _, _ in ended] == [0] * processes, ended
    return folder


def losses(folder: Path, metric: str = "nats_per_dim") -> torch.Tensor:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return torch.tensor([line[metric] for line in lines if metric in line], dtype=torch.float64)


def examples_seen(folder: Path, processes: int, parts: int = 1) -> list[list]:
    """Per step: the examples of all processes joined, each one's part by part, and their channels."""
    each = [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(processes)]
    steps = [[seen[i : i + parts] for seen in each] for i in range(0, len(each[0]), parts)]
    return [[[one for rank in step for part in rank for one in part[kind]] for kind in (0, 1)] for step in steps]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    return run(tmp_path_factory.mktemp("alone") / "run", 1)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(("optimizer", "parts"), [("adam", 2), pytest.param("muon", 1, marks=SLOW)])
def test_two_processes_train_as_one_does(tmp_path, optimizer, parts):
    alone = run(tmp_path / "alone", 1, optimizer=optimizer)
    together = run(tmp_path / "run", 2, optimizer=optimizer, accumulate=parts)
    one, two = losses(alone), losses(together)
    assert len(one) == len(two) == USUAL.steps
    assert ((one - two).abs() / one).max() < {"adam": 1e-5, "muon": 1e-4}[optimizer]
    assert examples_seen(together, 2, parts) == examples_seen(alone, 1)
    x = torch.randint(0, 4, (3, 6, 2))
    a, b = (AxialTransformer.from_pretrained(folder)(x) for folder in (alone, together))
    assert torch.allclose(a, b, atol=1e-4)
    masks = [tuple(mask) for rank in range(2) for mask in json.loads((together / f"masks-{rank}.json").read_text())]
    assert len({*masks}) == len(masks) == 2 * parts * USUAL.steps  # each process, step and part has its own


@pytest.mark.parametrize(
    ("first", "then", "options"),
    [(2, 1, {"shard": True}), (1, 2, {}), pytest.param(1, 2, {"shard": True}, marks=SLOW)],
)
def test_a_run_goes_on_with_another_number_of_processes(alone, tmp_path, first, then, options):
    """The first of them with shards of the weights or without; by itself as one process trains."""
    folder = run(tmp_path / "run", first, **options, steps=9)
    before = examples_seen(folder, first)
    assert json.loads((folder / "shards-0.json").read_text()) == (first > 1 and options.get("shard", False))
    run(folder, then, **options)
    assert ((losses(alone) - losses(folder)).abs() / losses(alone)).max() < 1e-5
    torch.testing.assert_close(losses(folder, "gradient_norm"), losses(alone, "gradient_norm"), rtol=1e-3, atol=0)
    assert before + examples_seen(folder, then) == examples_seen(alone, 1)
    checkpoint = load_file(folder / "checkpoints" / "step-00000012" / "model.safetensors")
    expected = load_file(alone / "checkpoints" / "step-00000012" / "model.safetensors")
    assert checkpoint.keys() == expected.keys()
    # A key's bias changes no output: its gradient is what rounding leaves, and Adam makes steps of that.
    tolerance = {name: 1e-2 if name.endswith("qkv.bias") else 1e-4 for name in expected}
    assert all(torch.allclose(checkpoint[name], expected[name], atol=tolerance[name]) for name in expected)


@pytest.mark.usefixtures("no_hub")
@pytest.mark.filterwarnings("ignore:.*copied once")
def test_tar_files_train_as_memory_does(alone, tmp_path, monkeypatch):
    """By two processes, each with two workers, that both come to files without a copy; then by one without any."""
    for part in range(3):
        records = [(f"{i}.npy", array(VALUES[i])) for i in range(40) if i // 15 == part]
        write(tmp_path / "tars" / f"{part}.tar", records)
    source = str(tmp_path / "tars")
    folder = run(tmp_path / "run", 2, source=source, steps=7)
    before = examples_seen(folder, 2)
    run(folder, 1, source=source, steps=12, workers=0)
    assert before + examples_seen(folder, 1) == examples_seen(alone, 1)[:12]
    assert ((losses(alone)[:12] - losses(folder)).abs() / losses(alone)[:12]).max() < 1e-5


@pytest.mark.parametrize("shard", [False, True])
def test_all_processes_end_where_the_weights_of_one_are_not_finite(tmp_path, shard):
    def step_all(optimizers, config, rate, step=step_module.step_all):
        step(optimizers, config, rate)
        if os.environ["RANK"] == "1":
            weight = optimizers[-1].param_groups[0]["params"][0]
            (weight.to_local() if isinstance(weight, DTensor) else weight).detach().fill_(torch.nan)

    def broken() -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step_module, "step_all", step_all)
            return trained(tmp_path / "run", None, {"steps": 1, "shard": shard})

    ended = fork(2, broken, tmp_path)
    assert [status for status, _, _ in ended] == [1, 1], ended
    assert all("step 1 left weights that are not finite" in said for _, _, said in ended), ended
    assert not list((tmp_path / "run").rglob("*.safetensors"))
