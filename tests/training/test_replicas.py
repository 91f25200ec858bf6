"""Processes that train one model have equal weights, to the last bit, at weights of scale 1."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.progress import rank
from axial_transformers.training import TrainConfig, checkpoints, step, train
from tests.launching import fork
from tests.small_models import CENTRED, random_model, small_config

STEPS = 4
MODEL = small_config((3, 2), 2, dim=8, heads=2, inner="lstm", mlp_ratio=2.0)
"""Attention in encoder and outer decoder, tall and wide matrices, an LSTM."""
PIXELS = small_config((3, 2), 2, "pixels", dim=8, heads=2, gated_convolutions=2, activity=True, **CENTRED)
"""Every other kind of parameter: gated convolutions, features of values, chained heads."""
VALUES = np.random.default_rng(1).integers(0, 5, (24, 3, 2, 2), dtype=np.uint8)
USUAL = TrainConfig(
    steps=STEPS, batch_size=12, warmup_steps=0, learning_rate=1e-2, device="cpu", precision="float32",
    evaluate_every=10**6, sample_every=10**6, save_every=10**6, log_every=1,
)  # fmt: skip

PAIRS = [
    {"optimizer": "muon"},
    {"optimizer": "muon", "accumulate": 2, "checkpoint_blocks": True, "precision": "bfloat16"},
    {"shard": True, "checkpoint_blocks": True},
    {"shard": True, "accumulate": 2, "precision": "bfloat16"},
    {"accumulate": 2, "checkpoint_blocks": True},
    {"precision": "bfloat16"},
]
"""Each pair of values of two settings, but muon in shards."""


def whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def trained(
    folder: Path, processes: int, config: AxialTransformerConfig = MODEL, **options: Any
) -> list[dict[str, Tensor]]:
    """What each process had: its weights before the last step, and the gradients of the first."""
    folder.mkdir()

    def one() -> int:
        number, steps, seen = rank(), 0, {}

        def record(model: nn.Module, config: TrainConfig, limit: float, then=step.clip_gradients) -> Tensor:
            nonlocal steps
            steps += 1
            if steps == 1:
                seen.update({f"gradient {name}": whole(each.grad) for name, each in model.named_parameters()})
            if steps == STEPS:
                seen.update({name: whole(each) for name, each in model.named_parameters()})
            return then(model, config, limit)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step, "clip_gradients", record)
            examples = Examples(VALUES, [str(i) for i in range(len(VALUES))], range=ValueRange(0, 4))
            model = random_model(config, torch.float32, seed=number)  # the first process's weights are everyone's
            train(model, examples, replace(USUAL, **options), folder / "run", resume=True)
        save_file(seen, folder / f"{number}.safetensors")
        return 0

    if processes == 1:
        assert one() == 0
    else:
        ended = fork(processes, one, folder)
        assert [status for status, _, _ in ended] == [0] * processes, ended
    return [load_file(folder / f"{rank}.safetensors") for rank in range(processes)]


def assert_equal_in_all(ranks: list[dict[str, Tensor]]) -> None:
    first, *others = ranks
    for other in others:
        assert first.keys() == other.keys()
        differ = [name for name in first if not torch.equal(first[name], other[name])]
        assert not differ, differ


@pytest.mark.parametrize(
    ("config", "options"),
    [
        *((MODEL, options) for options in PAIRS[:4]),
        (PIXELS, PAIRS[3]),
        *(pytest.param(MODEL, options, marks=pytest.mark.slow) for options in PAIRS[4:]),
        pytest.param(PIXELS, PAIRS[2], marks=pytest.mark.slow),
    ],
    ids=lambda value: value.layout if isinstance(value, AxialTransformerConfig) else "-".join(value),
)
def test_all_processes_have_the_same_weights(tmp_path, config, options):
    ranks = trained(tmp_path / "run", 3 if len(options) == 1 else 2, config, **options)
    assert_equal_in_all(ranks)
    before = dict(random_model(config, torch.float32).named_parameters())
    assert all((ranks[0][name] - each).abs().max() > 1e-3 for name, each in before.items() if name in ranks[0])


@pytest.mark.parametrize("changed", ["head.1.bias", "outer_decoders.0.blocks.0.feedforward.expand.weight"])
def test_a_run_whose_replicas_differ_stops_with_one_line_and_keeps_its_last_checkpoint(tmp_path, changed):
    """The fault is made in the second process, in one number, after the first checkpoint."""

    def one() -> int:
        def save(self, weights, state, then=checkpoints.Checkpoints.save):
            if state.step == STEPS and self.processes.rank == 1:
                dict(weights.model.named_parameters())[changed].detach().view(-1)[-1] *= 1 + 1e-6
            then(self, weights, state)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoints.Checkpoints, "save", save)
            examples = Examples(VALUES, [str(i) for i in range(len(VALUES))], range=ValueRange(0, 4))
            model = random_model(MODEL, torch.float32)
            train(model, examples, replace(USUAL, save_every=2), tmp_path / "run", resume=True)
        return 0

    for status, _, err in fork(2, one, tmp_path):
        assert status == 1
        assert err.startswith("the weights of the 2 processes differ after step 4")
        assert err.count("\n") == 1
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000002"]
