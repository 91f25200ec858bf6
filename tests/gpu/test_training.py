"""Training as it is on a GPU, held without one: its arithmetic, its metrics, and the memory of devices that share."""

import dataclasses
import gc
import os
import re
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from axial_transformers import machine, recipes
from axial_transformers.cli.train import requested
from axial_transformers.data.examples import Examples
from axial_transformers.layers.blocks import TransformerBlock
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.machine import arithmetic, free_memory
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.baselines.by_name import build
from axial_transformers.training import TrainConfig, augmentation, parallelism
from axial_transformers.training.config import find_device
from axial_transformers.training.optimizer import clip_gradients
from axial_transformers.training.processes import Processes
from axial_transformers.training.step import Learner, prepared, step
from tests.launching import fork
from tests.small_models import random_model, random_values, small_config

CUDA = torch.device("cuda:0")


def test_what_is_auto_follows_the_device_and_is_decided_once(monkeypatch):
    config = TrainConfig(precision="bfloat16", device="cpu")
    on_cpu = config.resolve_auto()
    assert on_cpu.compile is False
    monkeypatch.setattr(TrainConfig, "torch_device", lambda self: CUDA)
    monkeypatch.setattr(machine, "why_not_compiled", lambda device: None)
    on_gpu = config.resolve_auto()
    assert on_gpu.compile is True
    assert on_cpu.resolve_auto() == on_cpu
    assert on_gpu.resolve_auto() == on_gpu
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with pytest.raises(ValueError, match="deterministic=True needs CUBLAS_WORKSPACE_CONFIG"):
        dataclasses.replace(config, deterministic=True).resolve_auto()


@pytest.mark.parametrize(
    ("words", "compile"),
    [
        ("", "auto"),
        ("--training.compile", True),
        ("--training.compile --training.steps 3", True),
        ("--training.compile False", False),
        ("--training.no-compile", False),
        ("--training.compile auto", "auto"),
        ("--training.compile bfloat16", "bfloat16"),
    ],
)
def test_compile_is_a_flag_that_may_have_a_value(words, compile):
    assert requested(["digits", *words.split()], "train")[0].training.compile == compile


def test_tf32_and_determinism_hold_within_their_context_only():
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn.rnn)

    def state() -> list[object]:
        return [*(each.fp32_precision for each in settings), torch.are_deterministic_algorithms_enabled()]

    before = state()
    with arithmetic(CUDA, tf32=True, deterministic=True):
        assert state() == ["tf32", "tf32", True]
        with suppress(KeyError), arithmetic(CUDA, tf32=False):
            assert state() == ["ieee", "ieee", True]
            raise KeyError
        assert state() == ["tf32", "tf32", True]
    with arithmetic(torch.device("cpu"), tf32=True, deterministic=True):
        assert state() == before
    assert state() == before


CONFIG = small_config((4, 6), dim=32, inner_layers=4, mlp_ratio=4.0)
IN_SHARDS = TrainConfig(batch_size=4, shard=True, precision="bfloat16", device="cpu", clip_norm=0.5)


def bytes_held() -> int:
    """Of all tensors of this process that Python can see: shards count, what stands for all of them does not."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), Tensor) and not isinstance(each, DTensor)]
    storages = [each.untyped_storage() for each in tensors if each.device.type == "cpu"]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def in_shards(folder: Path, at_rest_expected: int) -> int:
    """Asserts what each of two processes holds and computes, and prints the sum of its weights."""
    gc.collect()
    gc.freeze()  # what was there before does not count, nor is it looked through
    rank, before = int(os.environ["RANK"]), bytes_held()
    model = random_model(CONFIG, torch.float32, seed=rank)
    full = bytes_held() - before
    block = max(sum(each.nbytes for each in part.parameters()) for part in model.modules() if is_block(part))
    slack = full // 20
    assert full > 5 * block > 15 * slack, "the model is mostly blocks"
    examples = Examples(random_values(model, 8).numpy().astype("uint8"), [str(i) for i in range(8)], num_values=5)
    before, held, shard = before + examples.values.nbytes, [], parallelism.fully_shard

    def watched(*args, **kwargs):
        held.append(bytes_held() - before)
        return shard(*args, **kwargs)

    parallelism.fully_shard = watched
    with Processes(torch.device("cpu")) as processes:
        run = prepared(model, examples, IN_SHARDS.resolve_auto(), processes)
        assert max(held) <= full + slack
        assert held[-1] < 0.7 * full, "what is not in shards yet"
        at_rest = bytes_held() - before
        assert abs(at_rest - at_rest_expected) <= slack, "half of the weights, and half of their average"

        average = run.average(keep=processes.rank_zero)
        assert abs(bytes_held() - before - at_rest - full * processes.rank_zero) <= slack
        average = run.average(keep=True)
        print(sum(float(each.double().sum()) for each in average.parameters()))
        assert not any(isinstance(each, DTensor) or each.requires_grad for each in average.parameters())

        check_clipping(run, average)
        check_loss(run, average, examples)
        del average
        run.objective.reshard()  # as a backward pass does
        assert bytes_held() - before <= at_rest + slack, "freed after its use"
        tensors = run.weights.tensors()
        files = {
            file: parallelism.full_tensors(own, processes.rank_zero, torch.device("cpu"))
            for file, own in tensors.items()
        }
        del tensors
        assert bytes_held() - before <= at_rest + 4 * full * processes.rank_zero + slack
        assert [len(tensors) > 0 for tensors in files.values()] == [processes.rank_zero] * 3
        run.close()
    return 0


def is_block(module: torch.nn.Module) -> bool:
    return isinstance(module, TransformerBlock)


def check_loss(run: Learner, full: AxialTransformer, examples: Examples) -> None:
    """In bfloat16 it is that of full weights under autocast: shards of blocks are gathered in it, gains are not."""
    seen = set()
    block = next(part for part in run.weights.model.modules() if is_block(part))
    for name, part in (("Dense", block.feedforward.expand), ("LayerNorm", block.feedforward.norm)):
        part.register_forward_pre_hook(lambda module, args, name=name: seen.add((name, module.weight.dtype)))
    x, channel = torch.from_numpy(examples.values), torch.zeros(8, dtype=torch.int64)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, expected = run.objective(x, None, channel), random_slice_loss(full, x, channel=channel)
    assert torch.equal(found, expected), (found, expected)
    assert seen == {("Dense", torch.bfloat16), ("LayerNorm", torch.float32)}


def check_clipping(run: Learner, full: AxialTransformer) -> None:
    """By one sum over processes it is that of full gradients."""
    generator = torch.Generator().manual_seed(0)
    for mine, whole in zip(run.weights.model.parameters(), full.parameters(), strict=True):
        whole.requires_grad_().grad = torch.randn(whole.shape, generator=generator)
        mine.grad = parallelism.sharded_like(whole.grad.clone(), mine)
    sums, reduce = [], dist.all_reduce
    dist.all_reduce = lambda *args, **kwargs: sums.append(reduce(*args, **kwargs))
    norm = clip_gradients(run.weights.model, IN_SHARDS)
    dist.all_reduce = reduce
    assert len(sums) == 1
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(full.parameters(), IN_SHARDS.clip_norm))
    for mine, whole in zip(run.weights.model.parameters(), full.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), whole.grad)
        whole.requires_grad_(False).grad = mine.grad = None


def test_processes_that_share_a_model_hold_shards_of_it_and_compute_the_same(tmp_path):
    import torch._dynamo  # which sharding needs: once, not in each process

    held = 2 * 4 * sum(weight.numel() for weight in build(CONFIG).parameters()) // 2
    ends = fork(2, lambda: in_shards(tmp_path, held), tmp_path)
    assert [(status, err) for status, _, err in ends] == [(0, "")] * 2
    weights = random_model(CONFIG, torch.float32, seed=0).state_dict().values()
    expected = sum(float(each.double().sum()) for each in weights)
    assert [float(out) for _, out, _ in ends] == pytest.approx([expected] * 2)


def graphs_of_steps(config: AxialTransformerConfig, training: TrainConfig, folder: Path) -> list[int]:
    """Return the number of graphs compiled by the end of each of three steps; a block that is cut is an error."""
    graphs, compile, training = [], torch.compile, training.resolve_auto()

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    values = rng.integers(0, config.num_values, (8, *config.shape, config.channels), dtype=np.uint8)
    labels = rng.integers(0, config.num_classes, 8) if config.num_classes else None
    examples = Examples(values, [str(i) for i in range(8)], labels=labels, num_values=config.num_values)
    with pytest.MonkeyPatch.context() as patch, Processes(torch.device("cpu")) as processes:
        patch.setattr(torch, "compile", lambda f, **how: compile(f, **how, backend=backend, fullgraph=True))
        run, found = prepared(build(config), examples, training, processes), []
        for _ in range(3):
            step(run)
            found.append(len(graphs))
        run.close()
    assert not any("forward" in vars(block) for block in run.weights.model.modules()), "the model is as it came"
    return found


COMPILED = TrainConfig(batch_size=4, accumulate=2, compile=True, device="cpu")
TINY = small_config((3, 4), dim=8, outer_layers=2, inner_layers=2)
KINDS_OF_BLOCKS = 3
"""Of an image model: unmasked along rows, masked along rows, masked along columns; `encoder_layers=0`."""


@pytest.mark.parametrize("recompute", [False, True])
def test_each_kind_of_block_is_one_graph_after_the_first_step(tmp_path, recompute):
    training = dataclasses.replace(COMPILED, precision="bfloat16", checkpoint_blocks=recompute)
    config = dataclasses.replace(TINY, encoder_layers=0, channels=1)
    assert graphs_of_steps(config, training, tmp_path) == [KINDS_OF_BLOCKS] * 3


def test_many_models_and_batch_sizes_in_a_process_are_all_compiled(tmp_path):
    config = dataclasses.replace(TINY, encoder_layers=0, channels=1)
    for size in range(1, 4):
        training = dataclasses.replace(COMPILED, batch_size=2 * size)
        assert graphs_of_steps(config, training, tmp_path / f"{size}") == [KINDS_OF_BLOCKS] * 3, size


@pytest.mark.parametrize("shard", [False, True], ids=["copies", "shards"])
def test_several_processes_compile_the_graphs_of_one(tmp_path, shard):
    """No bucket of DDP cuts a block, nor does a hook of FSDP."""

    training = dataclasses.replace(COMPILED, precision="bfloat16", shard=shard, checkpoint_blocks=True)
    config = dataclasses.replace(TINY, encoder_layers=0, channels=1)
    ends = fork(2, lambda: print(graphs_of_steps(config, training, tmp_path / "run")) or 0, tmp_path)
    assert [(status, out.strip()) for status, out, _ in ends] == [(0, str([KINDS_OF_BLOCKS] * 3))] * 2, ends


@pytest.mark.slow
@pytest.mark.parametrize("name", recipes.NAMED)
@pytest.mark.parametrize("processes", [1, 2])
def test_no_recipe_is_compiled_after_its_second_step(tmp_path, name, processes):
    recipe = recipes.NAMED[name]().model
    small = {} if "block" in name else {"shape": tuple(min(4, length) for length in recipe.shape)}
    config = dataclasses.replace(recipe, dim=16, heads=2, **small)
    for shard, recompute in product((False, True) if processes > 1 else (False,), (False, True)):
        training = dataclasses.replace(COMPILED, precision="bfloat16", shard=shard, checkpoint_blocks=recompute)
        folder = tmp_path / f"{shard}-{recompute}"
        folder.mkdir()

        def once(folder=folder, training=training) -> int:
            first, second, third = graphs_of_steps(config, training, folder / "run")
            assert 0 < first <= second == third, (first, second, third)
            return 0

        ends = fork(processes, once, folder)
        assert [(status, err) for status, _, err in ends] == [(0, "")] * processes


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("\nfatal error: Python.h: No such file or directory\ncompilation terminated."),
        ImportError("cannot import triton"),
        AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_gpu_that_compiles_no_addition_trains_uncompiled_and_says_why(error, monkeypatch):
    monkeypatch.setattr(TrainConfig, "torch_device", lambda self: CUDA)
    monkeypatch.setattr(torch, "zeros", lambda size, device: torch.ones(size))
    config, tried = TrainConfig(precision="float32"), []
    why_not_compiled = machine.why_not_compiled.__wrapped__
    monkeypatch.setattr(machine, "why_not_compiled", lambda device: tried.append(device) or why_not_compiled(device))
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    assert config.resolve_auto().compile is True

    def failing(function: object, x: Tensor) -> Tensor:
        raise error

    monkeypatch.setattr(torch, "compile", lambda function, **options: partial(failing, function))
    first = str(error).strip().split("\n")[0]
    said = re.escape(f"blocks are not compiled: torch.compile fails on cuda:0 ({type(error).__name__}: {first})")
    with pytest.warns(UserWarning, match=f"^{said}$"):
        resolved = config.resolve_auto()
    assert resolved.compile is False
    assert tried == [CUDA] * 2


def test_each_process_asks_its_own_gpu_and_no_other(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: asked.append(str(device)) or (1, 1))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: asked.append(str(device)))
    monkeypatch.setattr(
        torch, "empty", lambda size, device: asked.append(device) or SimpleNamespace(device=torch.device(device))
    )
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    free_memory(find_device("auto"))
    with Processes(find_device("cuda")):
        pass
    assert asked == ["cuda:3"] * 4


def test_a_lone_process_never_waits_for_its_gpu_to_agree_with_itself(monkeypatch):
    """Reading a number of the device waits for its queue; a step asks for the clock."""
    monkeypatch.setattr(torch, "tensor", None)
    alone = Processes(CUDA)
    assert alone.broadcast(0.1) == 0.1
    assert alone.any(True) is True


def test_a_lone_process_sets_its_gpu(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    with Processes(torch.device("cuda:1")):
        assert chosen == [torch.device("cuda:1")]


def test_conditioning_is_sampled_once_and_copied_once():
    """A copy to a GPU in every step would wait for all that is queued there."""
    told = augmentation._vectors(2, 8, torch.device("cpu"))
    assert augmentation._vectors(2, 8, torch.device("cpu")) is told
    operations = torch.tensor([[True, False, True], [False, False, False]])
    found = augmentation.conditioning(operations, (2, 3), 8)
    torch.testing.assert_close(found[0], (told[0] + told[2]).expand(2, 3, 8))
    assert not found[1].any()


def failing() -> int:
    """The second process raises, the first waits for it; the clean-up waits for all processes, as that of NCCL does."""
    rank, destroy = int(os.environ["RANK"]), dist.destroy_process_group
    with pytest.MonkeyPatch.context() as patch, Processes(torch.device("cpu")) as processes:
        if rank:
            patch.setattr(dist, "get_backend", lambda: "nccl")
            patch.setattr(dist, "destroy_process_group", lambda: dist.barrier() or destroy())
            raise OSError("the disk is full")
        processes.mean(torch.zeros(1))
    return 0


def test_a_process_that_fails_with_nccl_says_so_and_does_not_wait_for_the_others(tmp_path):
    (first, _, lost), (second, _, said) = fork(2, failing, tmp_path)
    assert (second, said.strip()) == (1, "the disk is full")
    assert first == 1
    assert "has lost another" in lost
