"""Training as it is on several GPUs, tested without one: who holds, compiles and waits for what."""

import gc
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from axial_transformers import machine
from axial_transformers.data.examples import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.training import TrainConfig, parallelism
from axial_transformers.training.config import find_device
from axial_transformers.training.processes import Processes
from axial_transformers.training.step import prepare_learner, step
from tests.launching import fork
from tests.small_models import random_model, random_values, small_config

CPU = torch.device("cpu")
CONFIG = small_config((4, 6), dim=32, inner_layers=4, mlp_ratio=4.0)
IN_SHARDS = TrainConfig(batch_size=4, shard=True, precision="bfloat16", device="cpu", compile=False)


def bytes_held() -> int:
    """Of all tensors of this process that Python can see: shards count, what stands for all of them does not."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), Tensor) and not isinstance(each, DTensor)]
    storages = [each.untyped_storage() for each in tensors if each.device.type == "cpu"]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def in_shards() -> int:
    """Assert what each of two processes holds and computes."""
    gc.collect()
    gc.freeze()  # what was there before does not count, nor is it looked through
    before = bytes_held()
    model = random_model(CONFIG, torch.float32, seed=int(os.environ["RANK"]))
    full = bytes_held() - before
    x = random_values(model, 8)
    examples = Examples(x.numpy().astype("uint8"), [*map(str, range(8))], range=ValueRange(0, 4))
    before, slack, held, shard = bytes_held() - full, full // 20, [], parallelism.fully_shard

    def watched(*args, **kwargs):
        held.append(bytes_held() - before)
        return shard(*args, **kwargs)

    parallelism.fully_shard = watched
    with Processes(CPU) as processes:
        run = prepare_learner(model, examples, IN_SHARDS, processes)
        assert max(held) <= full + slack
        assert held[-1] < 0.7 * full, "what is not in shards yet"
        at_rest = bytes_held() - before
        assert abs(at_rest - full) <= slack, "half of the weights, and half of their average"
        average = run.average(keep=processes.rank_zero)
        assert abs(bytes_held() - before - at_rest - full * processes.rank_zero) <= slack, "one process gathers"
        average = run.average(keep=True)
        first = random_model(CONFIG, torch.float32, seed=0)
        assert all(map(torch.equal, average.parameters(), first.parameters())), "the weights of the first process"
        seen = set()
        block = next(part for part in run.weights.model.modules() if isinstance(part, TransformerBlock))
        for part in (block.feedforward.expand, block.feedforward.norm):
            part.register_forward_pre_hook(lambda part, _: seen.add((type(part).__name__, part.weight.dtype)))
        channel = torch.zeros(8, dtype=torch.int64)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(run.objective(x, None, channel), random_slice_loss(average, x, channel=channel))
        assert seen == {("Dense", torch.bfloat16), ("LayerNorm", torch.float32)}, "blocks are gathered in bfloat16"
        run.close()
    return 0


def test_processes_that_share_a_model_hold_shards_of_it_and_compute_the_same(tmp_path):
    assert [(status, err) for status, _, err in fork(2, in_shards, tmp_path)] == [(0, "")] * 2


@pytest.mark.parametrize(
    "shard", [pytest.param(False, marks=pytest.mark.slow, id="copies"), pytest.param(True, id="shards")]
)
def test_each_kind_of_block_is_one_graph_after_the_first_step(tmp_path, shard):
    """No bucket of DDP cuts a block, nor does a hook of FSDP. Rows are masked or not, columns masked: three kinds."""
    training = replace(IN_SHARDS, accumulate=2, compile=True, shard=shard, checkpoint_blocks=True)
    model = random_model(small_config((3, 4), inner_layers=2, encoder_layers=0), torch.float32)
    values = np.random.default_rng(0).integers(0, 5, (8, 3, 4, 1), dtype=np.uint8)
    examples, compile = Examples(values, [*map(str, range(8))], range=ValueRange(0, 4)), torch.compile

    def steps() -> int:
        graphs = []
        backend = lambda graph, inputs: graphs.append(graph) or graph.forward  # noqa: E731
        torch.compile = lambda function, **how: compile(function, **how, backend=backend, fullgraph=True)
        with Processes(CPU) as processes:
            run = prepare_learner(model, examples, training, processes)
            for _ in range(3):
                step(run)
                assert len(graphs) == 3
            run.close()
        return 0

    assert [(status, err) for status, _, err in fork(2, steps, tmp_path)] == [(0, "")] * 2


def test_what_is_auto_follows_the_device_and_is_decided_once(monkeypatch):
    on_cpu = TrainConfig(precision="auto", device="cpu").resolve_auto()
    assert (on_cpu.precision, on_cpu.compile) == ("float32", False)
    monkeypatch.setattr(TrainConfig, "torch_device", lambda self: torch.device("cuda:0"))
    monkeypatch.setattr(machine, "multiplies_bfloat16", lambda device: True)
    monkeypatch.setattr(machine, "why_not_compiled", lambda device: None)
    on_gpu = TrainConfig().resolve_auto()
    assert (on_gpu.precision, on_gpu.compile) == ("bfloat16", True)
    assert TrainConfig().resolve_auto(on_cpu) == replace(on_gpu, precision="float32", compile=False)


def test_each_process_takes_the_gpu_of_its_local_rank(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda size, device: SimpleNamespace(device=torch.device(device)))
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert find_device("cuda") == torch.device("cuda:3")
