"""The parts of the report on a GPU: each yields rows, of what was expected and whether it holds."""

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise, product
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.machine import arithmetic, why_not_compiled
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops import cuda_graphs
from axial_transformers.ops.axial_attention import axial_attention
from axial_transformers.recipes import NAMED
from axial_transformers.storage.model_folders import shipped_names
from axial_transformers.training import TrainConfig, train
from axial_transformers.training.config import find_device
from axial_transformers.training.costs import step_costs, training_flops
from axial_transformers.training.metrics import forget_peak_memory, peak_memory, read_curves
from axial_transformers.training.step import STEPS_BETWEEN_WAITS, Learner, step
from gpu_sides import profile
from speed import random_examples, seconds_of_steps, started
from timing import now

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "experiments" / "measured" / "fashion_mnist_curve.json"
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12}
"""FLOP/s of dense products in bfloat16, as NVIDIA states them."""
ROUNDS = 10
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options:
    dry_run: bool = False
    """Run the parts that compare values, on the CPU and small."""
    out: Path = Path("gpu-report")
    """Folder of report.json and report.md."""
    parts: tuple[str, ...] = ()
    """Parts to run; none: all."""
    data: Path = Path("fashion_mnist_train.npz")
    """Training images of Fashion-MNIST, for the learning curve: `experiments/public_datasets.py` makes the file."""
    only: str | None = None
    """Run this part here and print its rows as JSON; the report starts itself so."""
    before: Path | None = None
    """Tree of an earlier commit, which the parts small, masked, large and sampled measure beside this one."""
    folder: Path | None = None
    """Where the part `one_process` trains."""

    @property
    def device(self) -> torch.device:
        return find_device("auto")


def row(name: str, expected: str, holds: bool, **found: Any) -> Row:
    return {"name": name, "expected": expected, "holds": bool(holds), **found}


BOUNDS = {"float32": (1e-4, 1e-4, 1e-3), "tf32": (1e-2, 1e-2, 3e-2), "bfloat16": (5e-2, 2e-2, 2e-1)}
"""Largest differences from a CPU in float32: shares of the largest output, bits/dim, shares of the gradients' norm."""


def parity(options: Options) -> Iterator[Row]:
    """Shipped models beside a CPU in float32, on samples of their own: outputs, bits/dim and gradients."""
    for name in ["digits"] if options.dry_run else shipped_names():
        model = AxialTransformer.from_pretrained(name)
        nothing = torch.full((4, *model.config.shape, model.config.channels), model.config.lowest)
        x = axial.sample(model, seed=0, known=nothing)
        outputs, bits, gradients = side(model, x, torch.device("cpu"), "float32")
        for precision, bounds in BOUNDS.items():
            found = side(model, x, options.device, precision)
            apart = (
                float((found[0] - outputs).abs().max() / outputs.abs().max()),
                float((found[1] - bits).abs().max()),
                float((found[2] - gradients).norm() / gradients.norm()),
            )
            holds = all(one < bound for one, bound in zip(apart, bounds, strict=True))
            told = dict(zip(("outputs", "bits_per_dim", "gradients"), apart, strict=True))
            yield row(f"{name}, {precision}", f"within {', '.join(map(str, bounds))}", holds, **told)


def side(model: AxialTransformer, x: Tensor, device: torch.device, precision: str) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, bits/dim and gradients, on the CPU in float64."""
    model, x = copy.deepcopy(model).to(device), x.to(device)
    half = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
    with arithmetic(device, tf32=precision == "tf32"), half:
        with torch.no_grad():
            found = [model.outputs(x), axial.bits_per_dim(model, x)]
        loss = random_slice_loss(model, x, channel=torch.full((len(x),), model.slices[-1]))
    found.append(torch.cat([part.flatten() for part in torch.autograd.grad(loss, tuple(model.parameters()))]))
    outputs, bits, gradients = (part.detach().cpu().double() for part in found)
    return outputs, bits, gradients


def tests(options: Options) -> Iterator[Row]:
    """The tests under the mark `gpu`; in a dry run they are only found."""
    words = ["-m", "pytest", "-m", "gpu", "tests/gpu/test_gpu.py", "--tb=short", *["--collect-only"] * options.dry_run]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT, check=False)
    yield row("make test-gpu", "no failure", ended.returncode == 0, said=ended.stdout[-3000:])


def imagenet32(options: Options) -> Iterator[Row]:
    """Steps of the paper's model on 32 images, eager and compiled; where time goes."""
    for compiled in (False, True):
        yield speed_of_steps("imagenet32", 32, compiled, options)
    yield where_time_goes("imagenet32", 32, options)


def imagenet64(options: Options) -> Iterator[Row]:
    """Compiled steps on 8 images; where time goes."""
    yield speed_of_steps("imagenet64", 8, True, options)
    yield where_time_goes("imagenet64", 8, options)


@cache
@torch.no_grad()
def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return the FLOP/s of products of large matrices (TF32 for float32): the largest of several rates."""
    n, products = 8192, 10  # between readings of the clock, so that the device never waits for the host
    # not zeros, with which a GPU takes less power and runs faster
    a, seconds = torch.linspace(-1, 1, n * n, device=device).view(n, n).to(dtype), []
    with arithmetic(device, tf32=True):
        for _ in range(ROUNDS):
            began = now(device)
            for _ in range(products):
                torch.matmul(a, a)
            seconds.append(now(device) - began)
    return products * 2 * n**3 / min(seconds)


def speed_of_steps(name: str, batch: int, compiled: bool, options: Options) -> Row:
    """Seconds of a step, and its FLOP/s beside those of one matrix product and those that NVIDIA states."""
    model = NAMED[name]().model
    with started(model, step_config(options, batch_size=batch, compile=compiled), options.device) as run:
        seconds = median([seconds_of_steps(run, 1, options.device) for _ in range(3 + ROUNDS)][3:])
        peak_memory_bytes = peak_memory(options.device)
    flops, gpu = training_flops(model) * batch / seconds, torch.cuda.get_device_name(options.device)
    peak = next((most for part, most in PEAKS.items() if part in gpu), None)
    share, least = flops / matmul_rate(options.device, torch.bfloat16), 0.4 if compiled else 0.2
    told = {"seconds": seconds, "tflops": flops / 1e12, "share_of_peak": peak and flops / peak}
    told |= {"share_of_matmul_rate": share, "peak_memory_bytes": peak_memory_bytes}
    return row("compiled" if compiled else "eager", f"{least:.0%} of the matmul rate", share >= least, **told)


def where_time_goes(name: str, batch: int, options: Options) -> Row:
    """The shares of a step's time in which the device computes each kind of kernel, and in which it is idle."""
    config = step_config(options, batch_size=batch, compile=True)
    with started(NAMED[name]().model, config, options.device) as run:
        for _ in range(STEPS_BETWEEN_WAITS + 1):  # the first ten read their losses
            step(run)
        run.meter.read()
        found = profile(partial(seconds_of_steps, run, 3, options.device), options.device)
    return row("profile", "the device is idle below 10 %", found["idle"] < 0.1, **found)


def memory_of_a_step(options: Options) -> Iterator[Row]:
    """The peak of steps of imagenet32 on 32 images, compiled, beside the estimate; and with checkpointed blocks."""
    model, found = NAMED["imagenet32"]().model, {}
    for recompute in (False, True):
        config = step_config(options, batch_size=32, checkpoint_blocks=recompute, compile=True)
        with started(model, config, options.device) as run:
            seconds = [seconds_of_steps(run, 1, options.device) for _ in range(3 + ROUNDS)][3:]
            found[recompute] = {**metrics(run), "seconds": min(seconds), "estimate": step_costs(model, config).memory}
        del run  # and its memory, before the other begins
    one, other = found[False], found[True]
    near = 0.6 < one["peak_memory_bytes"] / one["estimate"] < 1.05
    yield row("as it is", "0.6 to 1.05 times the estimate, which is of blocks that are not compiled", near, **one)
    close = abs(one["bits_per_dim"] - other["bits_per_dim"]) < 0.02 * one["bits_per_dim"]
    less = other["peak_memory_bytes"] < one["peak_memory_bytes"]
    yield row("checkpointed", "losses within 2 %, less memory", close and less, **other)


def sampling(options: Options) -> Iterator[Row]:
    """Samples of imagenet32 in bfloat16, eager and by CUDA graphs; the least time in which all weights can be read."""
    model, x = (
        random_model(NAMED["imagenet32"]().model, options.device).eval(),
        torch.empty(1 << 28, device=options.device),
    )
    x.clone()
    began = now(options.device)
    for _ in range(ROUNDS):
        x.clone()
    bandwidth = ROUNDS * 2 * x.nbytes / (now(options.device) - began)
    del x
    bound = traffic(model) / bandwidth
    for count in (1, 16, 64, 256):
        seconds = {}
        for name, compile in (("eager", False), ("graphs", True)):
            with torch.autocast(options.device.type, torch.bfloat16):
                axial.sample(model, 1 if name == "eager" else count, seed=0, compile=compile)  # graphs are recorded
                began = now(options.device)
                axial.sample(model, count, seed=0, compile=compile)
                seconds[name] = now(options.device) - began
        fast = seconds["graphs"] < (seconds["eager"] / 2 if count == 1 else seconds["eager"])
        near = count > 1 or seconds["graphs"] < 6 * bound
        expected = "half of eager, and 6 times the bound" if count == 1 else "less than eager"
        told = {"images_per_second": count / seconds["graphs"], "bound": bound, "bandwidth": bandwidth}
        yield row(f"{count} images", expected, fast and near, seconds=seconds, **told)


def traffic(model: AxialTransformer) -> int:
    """Bytes of weights that one batch reads: bfloat16, the head in float32; inner ones for each position, and so on."""

    def size(part: torch.nn.Module | None) -> int:
        return sum(2 * parameter.numel() for parameter in part.parameters()) if part else 0

    shape, positions = model.layout.shape, len(model.order)
    outer = sum(size(each) * positions // prod(shape[i + 1 :]) for i, each in enumerate(model.outer_decoders))
    inner = (size(model.inner_decoder) + 2 * size(model.head)) * positions
    return inner + outer + size(model.encoder) * len(model.slices)


def curve(options: Options) -> Iterator[Row]:
    """`axial train fashion_mnist` in its own settings: validation beside that of a CPU, at the same steps."""
    with tempfile.TemporaryDirectory() as folder:
        data, words, recorded = options.data, ["--validate-on", "500"], json.loads(RECORDED.read_text())["curve"]
        every = 2_500
        if options.dry_run:
            data, every = Path(folder) / "data.npz", 1
            np.savez(data, train=random_examples(NAMED["fashion_mnist"]().model).values)
            words = ["--validate-on", "2", "--training.steps", "2", "--training.batch-size", "2"]
            words += ["--training.no-compile", "--training.precision", "float32"]
        if not data.exists():
            yield row("data", f"the file {data}: python experiments/public_datasets.py fashion_mnist makes it", False)
            return
        words += ["--training.evaluate-every", str(every), "--out", f"{folder}/run", "--samples", "1"]
        began, command = time.monotonic(), [sys.executable, "-m", "axial_transformers", "train", "fashion_mnist"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([*command, str(data), *words], timeout=600, check=False, stdout=sys.stderr)
        seconds, found = time.monotonic() - began, dict(read_curves(Path(folder) / "run")["validation_bits_per_dim"])
    expected = {step: recorded.get(str(int(step)), bits) for step, bits in found.items()}
    apart = max(abs(bits - expected[step]) for step, bits in found.items())
    reached = f"{len(found)} evaluations, each within 0.03 bits/dim of the recorded one"
    whole = options.dry_run or 8000.0 in found or seconds >= 600  # else it has failed
    yield row("fashion_mnist", reached, whole and apart < 0.03, apart=apart, seconds=seconds, curve=found)


KERNELS = {
    "flash": [SDPBackend.FLASH_ATTENTION],
    "cudnn": [SDPBackend.CUDNN_ATTENTION],
    "efficient": [SDPBackend.EFFICIENT_ATTENTION],
    "default": [*SDPBackend.__members__.values()],
}


def attention(options: Options) -> Iterator[Row]:
    """Kernels of attention on the paper's shapes, q, k and v as layers have them: seconds with the backward pass."""
    for lines, length, axis, causal in product((256, 1024), (32, 64), (1, 2), (False, True)):
        dim = 5 - axis  # rows: a third of a projection each; columns: a third of each head
        shape = [lines // length, length, length, 16, 128]
        packed = torch.randn(*shape[:dim], 3, *shape[dim:], device=options.device, dtype=torch.bfloat16)
        q, k, v = (part.requires_grad_() for part in packed.unbind(dim))
        call, seconds = partial(there_and_back, q, k, v, axis, causal), {}
        for name, kernels in KERNELS.items():
            with sdpa_kernel(kernels), suppress(RuntimeError):  # a kernel that does not take the call
                seconds[name] = seconds_on_device(call, options)
        fast = seconds["default"] < 1.1 * min(seconds.values())
        title = f"{lines} {'masked ' * causal}{'rows' if axis == 2 else 'columns'} of {length}"
        yield row(title, "the default within 10 % of the fastest", fast, seconds=seconds)


def there_and_back(q: Tensor, k: Tensor, v: Tensor, axis: int, causal: bool) -> None:
    out = axial_attention(q, k, v, axis, causal)
    torch.autograd.grad(out, (q, k, v), out.detach())


def seconds_on_device(work: Callable[[], object], options: Options) -> float:
    """Seconds of the device for one call. It has other work first, so that launching takes none."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before = torch.ones(8192, 8192, device=options.device, dtype=torch.bfloat16)
    work()
    for _ in range(3):
        torch.matmul(before, before)
    begin.record()
    for _ in range(ROUNDS):
        work()
    end.record()
    now(options.device)
    return begin.elapsed_time(end) / 1e3 / ROUNDS


def masks(options: Options) -> Iterator[Row]:
    """Attention with a mask of keys, or a bias, of 128 keys and of 127: memory and seconds beside those without."""
    batch, heads, width = 32, 8, 64
    for length in (128, 127):
        x = torch.randn(batch, length, length, heads, width, device=options.device, dtype=torch.bfloat16)
        keep = torch.ones(batch, length, length, dtype=torch.bool, device=options.device)
        bias = torch.randn(batch, heads, length, length, device=options.device, dtype=torch.bfloat16)
        calls: dict[str, dict[str, Any]] = {"plain": {}, "key_mask": {"key_mask": keep}, "bias": {"attn_bias": bias}}
        peaks = {}
        for name, given in calls.items():
            y, seconds = x.clone().requires_grad_(), []
            forget_peak_memory(options.device)
            for _ in range(1 + ROUNDS):
                began = now(options.device)
                axial_attention(y, y, y, 2, **given).sum().backward()
                seconds.append(now(options.device) - began)
            peaks[name] = peak_memory(options.device)
            told = {"peak_memory_bytes": peaks[name], "seconds": min(seconds[1:])}
            # All scores of a mask or bias that is expanded would take more than twice the memory of q, k and v.
            small = peaks[name] < 2 * peaks["plain"]
            expected = "the measure" if name == "plain" else "less than twice the memory of plain attention"
            yield row(f"{name}, {length} keys", expected, small, **told)


def waiting(options: Options) -> Iterator[Row]:
    """Steps between two reads of the loss, where whatever waits for the device is an error."""
    other = {"optimizer": "muon", "distribution_augmentation": 0.5, "shift_augmentation": 0.5}
    runs: dict[str, dict[str, Any]] = {"adam": {}, "muon, augmented": other}
    for name, changes in runs.items():
        training = step_config(options, batch_size=8, compile=False, **changes)
        with started(NAMED["digits"]().model, training, options.device) as run:
            for _ in range(2 * STEPS_BETWEEN_WAITS):  # each of the first ten is timed, the last one reads
                step(run)
            torch.cuda.set_sync_debug_mode("error")
            said = said_by(step, run, STEPS_BETWEEN_WAITS - 1)
            torch.cuda.set_sync_debug_mode("default")
        yield row(name, "nothing waits for the device", said == "nothing", said=said)


def said_by(work: Callable[[Learner], object], run: Learner, times: int = 1) -> str:
    """What an error of `work` says, which is done some times, and the innermost lines that it comes from."""
    try:
        for _ in range(times):
            work(run)
    except Exception as error:  # whatever torch or a compiler says is what a row is for
        lines = traceback.extract_tb(error.__traceback__)[-4:]
        where = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in reversed(lines))
        return f"{type(error).__name__}: {error}"[:500] + f" ({where})"
    return "nothing"


def compiling(options: Options) -> Iterator[Row]:
    """Blocks of several recipes, compiled: no graph is cut, and no step after the second one compiles again."""
    yield row("one addition", "torch.compile works", why_not_compiled(options.device) is None)
    compile = torch.compile
    recipes = ("fashion_mnist", "photos32", "imagenet32", "bair")
    for name, recompute in product(recipes[: 1 if options.dry_run else None], (False, True)):
        recipe = NAMED[name]()
        shape = tuple(min(8, length) for length in recipe.model.shape)
        config = replace(recipe.model, shape=shape, dim=64, heads=4, dropout=0.0)
        training = step_config(options, batch_size=4, checkpoint_blocks=recompute, compile=True)
        began, expected = time.monotonic(), "whole graphs, none compiled after the second step"
        whole = patch.object(torch, "compile", lambda *given, **how: compile(*given, **how, fullgraph=True))
        with whole, started(config, training, options.device) as run:
            said = said_by(_three_steps, run)
        title = f"{name}, checkpointed" if recompute else name
        yield row(title, expected, said == "nothing", said=said, seconds=round(time.monotonic() - began, 1))


def _three_steps(run: Learner) -> None:
    step(run)
    step(run)
    with torch.compiler.set_stance("fail_on_recompile"):
        step(run)
    run.meter.read()


def resume(options: Options) -> Iterator[Row]:
    """Weights of a run that was ended and resumed beside those of one that was not: the largest difference."""
    steps, digits = 2 if options.dry_run else 40, replace(NAMED["digits"]().model, dropout=0.0)
    for deterministic in (True, False):
        config = step_config(options, batch_size=4, deterministic=deterministic, save_every=steps // 2, compile=False)
        sides = []
        for ends in ((steps,), (steps // 2, steps)):
            with tempfile.TemporaryDirectory() as folder:
                for end in ends:
                    model = random_model(digits, torch.device("cpu"))
                    train(model, random_examples(digits), replace(config, steps=end), folder, resume=end != ends[0])
                sides.append(weights_of(Path(folder), steps))
        apart = largest_difference(*sides)
        name = "deterministic" if deterministic else "as it is"
        yield row(name, "no difference" if deterministic else "", not deterministic or apart == 0, difference=apart)


def weights_of(run: Path, steps: int) -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / f"step-{steps:08d}" / "model.safetensors")


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


RUNS: dict[str, dict[str, Any]] = {
    "copies": {},
    "shards": {"shard": True},
    "muon": {"optimizer": "muon"},
    "compiled copies": {"precision": "bfloat16", "compile": True, "checkpoint_blocks": True},
    "compiled shards": {"precision": "bfloat16", "compile": True, "checkpoint_blocks": True, "shard": True},
}
STEPS = 12


def processes(options: Options) -> Iterator[Row]:
    """Two processes, each with a GPU: they train as one does, resume, have equal weights; one that fails ends both."""
    if not options.dry_run and torch.cuda.device_count() < 2:
        yield {"name": "not run: there is one GPU"}
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for count in (1, 2):
            ended, seconds = launched(options, count, Path(folder) / str(count))
            said = ended.stdout[-1000:] + ended.stderr[-1000:]
            yield row(f"{count} processes", "exit status 0", ended.returncode == 0, said=said, seconds=seconds)
            found[count] = ended.stdout.splitlines()
            yield from (json.loads(line) for line in found[count] if line.startswith("{"))
        for name in (*RUNS, "resumed"):
            one, two = (lines(Path(folder) / str(count) / name) for count in (1, 2))
            apart = max((abs(a["nats_per_dim"] / b["nats_per_dim"] - 1) for a, b in zip(one, two)), default=1.0)
            times = [min(b["seconds"] - a["seconds"] for a, b in pairwise(each)) for each in (one, two)]
            holds = len(one) == len(two) == STEPS and apart < 0.01
            yield row(name, "losses of one process, within 1 %", holds, difference=apart, seconds_of_a_step=times)
        for kind in ("", "compiled "):
            weights = (weights_of(Path(folder) / "2" / f"{kind}{each}", STEPS) for each in ("copies", "shards"))
            apart = largest_difference(*weights)
            yield row(f"{kind}shards", "weights of the copies, within 0.005", apart < 5e-3, difference=apart)
        ended, seconds = launched(options, 2, Path(folder) / "failing")
        told = "the disk is full" in ended.stderr and ended.returncode != 0
        yield row("one fails", "its message, and an end of both", told, said=ended.stderr[-1000:], seconds=seconds)


def launched(options: Options, count: int, folder: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """Processes of torchrun that have ended, and their seconds."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    words = [str(ROOT / "benchmarks" / "gpu_report.py"), "--only", "one_process", "--folder", str(folder)]
    command, began = [*start, *words, *["--dry-run"] * options.dry_run], time.monotonic()
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        ended = subprocess.CompletedProcess(command, 1, "", "no end after 120 s")
    return ended, round(time.monotonic() - began, 1)


def lines(folder: Path) -> list[Row]:
    path = folder / "metrics.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in found if "nats_per_dim" in line]


def one_process(options: Options) -> Iterator[Row]:
    """Train each of RUNS, and one that is resumed at half of its steps; in `failing`, the second process raises."""
    folder, first = options.folder or Path(), os.environ["RANK"] == "0"
    dist.init_process_group("nccl" if options.device.type == "cuda" else "gloo")
    if folder.name == "failing":
        with nullcontext() if first else patch("torch.optim.Adam.step", side_effect=OSError("the disk is full")):
            training_run(folder, options)
    for name, changes in RUNS.items():
        model = training_run(folder / name, options, **changes)
        if "shard" not in changes:
            weights = torch.cat([each.detach().cpu().flatten() for each in model.parameters()])
            every: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(every, weights)
            equal = all(torch.equal(each, weights) for each in every)
            if first:
                yield row(f"{name}, {len(every)} processes", "equal weights, to the last bit", equal)
    training_run(folder / "resumed", options, steps=STEPS // 2)
    training_run(folder / "resumed", options, resume=True)
    dist.destroy_process_group()


def training_run(folder: Path, options: Options, resume: bool = False, **changes: Any) -> AxialTransformer:
    """A short run of a small model, which it returns."""
    config = replace(NAMED["digits"]().model, dropout=0.0, dim=32, heads=2)
    usual = {"steps": STEPS, "batch_size": 8, "log_every": 1, "save_every": STEPS // 2, "precision": "float32"}
    torch.manual_seed(0)
    model = AxialTransformer(config)
    folder.parent.mkdir(parents=True, exist_ok=True)
    training = step_config(options, **{"compile": False, **usual, **changes})
    train(model, random_examples(config), training, folder, resume=resume)
    return model


def measured(options: Options, tree: Path, name: str, **changes: Any) -> Row:
    """What `gpu_sides` finds in a process with the package of a tree, or why it finds nothing."""
    given = json.dumps({"dry_run": options.dry_run, **changes})
    command = [sys.executable, "-P", "-c", "import gpu_sides; gpu_sides.main()", name, given]
    paths = tree / "src", tree / "benchmarks", ROOT / "benchmarks", *os.environ.get("PYTHONPATH", "").split(os.pathsep)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "AXIAL_TRITON": "1"}
    if options.dry_run:
        env["TRITON_INTERPRET"] = "1"
    ended = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if ended.returncode:
        return {"failed": ended.stderr[-1500:]}
    return json.loads(ended.stdout.splitlines()[-1])


def beside(options: Options, name: str) -> tuple[Row, Row | None]:
    """What this tree and the earlier one take."""
    before = measured(options, options.before.absolute(), name) if options.before else None
    return measured(options, ROOT, name), before


def small(options: Options) -> Iterator[Row]:
    """Whole steps of fashion_mnist a second, as a graph and as usual; whether a graph computes the same."""
    yield from same_by_graph(options)
    usual, before = beside(options, "steps")
    yield row("usual", "the measure", "failed" not in usual, **usual, before=before)
    if options.dry_run:
        return
    graph = measured(options, ROOT, "steps", cuda_graph=True)
    rate = graph.get("steps_per_second", 0.0)
    slow = (before or usual).get("steps_per_second", 0.0)
    yield row("graph", "120 steps a second, four times those of before", rate > max(120, 4 * slow), **graph)


def same_by_graph(options: Options) -> Iterator[Row]:
    """Twenty steps of digits, with dropout: captured, done again by the same function, and as usual."""
    digits = NAMED["digits"]().model
    if options.dry_run:
        digits = replace(digits, shape=(4, 4), dim=16, heads=2, outer_layers=2, inner_layers=1)
    count = 2 if options.dry_run else 20
    weights, norms = {}, {}
    for name in ("captured", "done again", "usual"):
        precise = {"precision": "float32", "compile": False, "deterministic": True, "batch_size": 16}
        training = step_config(options, **precise)
        training = replace(training, cuda_graph=name != "usual")
        again = name == "done again" or options.dry_run
        redone = patch.object(cuda_graphs, "record", done_again) if again else nullcontext()
        resolved = patch.object(TrainConfig, "resolve_auto", lambda config: config)  # a graph is refused on a CPU
        with redone, resolved, started(digits, training, options.device) as run:
            seconds_of_steps(run, count, options.device)
            run.meter.read()
            weights[name] = {key: x.detach().cpu() for key, x in run.weights.model.state_dict().items()}
            norms[name] = run.state.norms
    equal = largest_difference(weights["captured"], weights["done again"]) == 0
    yield row("captured", "the weights of the same work done again, to the last bit", equal)
    apart = max(abs(a / b - 1) for a, b in zip(norms["captured"][:5], norms["usual"][:5], strict=True))
    yield row("usual step", "norms of the first gradients within 1e-5", apart < 1e-5, apart=apart)


def done_again(work: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Callable[[], object]]:
    """Stand in for `cuda_graphs.record`, without a graph."""
    output = work()
    return output, lambda: output.copy_(work())


def masked(options: Options) -> Iterator[Row]:
    """Attention of 128 keys with a mask or a bias beside plain attention, by kernels of Triton and as before."""
    found, before = beside(options, "attention")
    if "failed" in found:
        yield row("attention", "to run", False, **found)
        return
    for name, case in found.items():
        times = case["seconds"] / found["plain"]["seconds"]
        near = case["error"] < (1e-5 if options.dry_run else 2e-2)
        fast = options.dry_run or times <= 1.4
        old = before and before.get(name, before)
        expected = "near float64, at most 1.4 times the seconds of plain attention"
        yield row(name, expected, near and fast, **case, times_of_plain=times, before=old)


def large(options: Options) -> Iterator[Row]:
    """Compiled steps of imagenet32: the share of the peak, and of kinds of kernels."""
    found, before = beside(options, "large")
    if options.dry_run or "failed" in found:
        yield row("profile", "to run", "failed" not in found, **found, before=before)
        return
    flops = training_flops(NAMED["imagenet32"]().model) * 32 / found["seconds"]
    peak = next((most for part, most in PEAKS.items() if part in torch.cuda.get_device_name()), None)
    share = flops / peak if peak else 0.0
    expected = "50 % of the peak, element-wise at most 15 % of the time"
    yield row("profile", expected, share >= 0.5 and found["element-wise"] <= 0.15, share_of_peak=share, **found)
    if before:
        yield row("before", "", True, **before)


def sampled(options: Options) -> Iterator[Row]:
    """Profiles of 64 and of 256 samples of imagenet32: what four times as many images cost."""
    found, before = beside(options, "sampled")
    if "failed" in found:
        yield row("samples", "to run", False, **found)
        return
    few, many = found.values()
    times = many["seconds"] / few["seconds"]
    expected = "four times as many in less than three times the seconds"
    yield row("samples", expected, options.dry_run or times < 3, times=times, profiles=found, before=before)


class Part(NamedTuple):
    seconds: float
    """What it may take."""
    rows: Callable[[Options], Iterator[Row]]
    measures: bool = False
    """It measures time or memory at real sizes, which a dry run leaves out."""


PARTS = {
    "parity": Part(300, parity),
    "tests": Part(260, tests),
    "imagenet32": Part(720, imagenet32, measures=True),
    "imagenet64": Part(300, imagenet64, measures=True),
    "sampling": Part(480, sampling, measures=True),
    "memory": Part(180, memory_of_a_step, measures=True),
    "curve": Part(800, curve),
    "attention": Part(40, attention, measures=True),
    "masks": Part(30, masks, measures=True),
    "waiting": Part(30, waiting, measures=True),
    "compiling": Part(120, compiling),
    "resume": Part(40, resume),
    "processes": Part(210, processes),
    "small": Part(180, small),
    "masked": Part(120, masked),
    "large": Part(170, large),
    "sampled": Part(130, sampled),
}
"""Limits of an hour in all, without the last four; an H100 took 20 minutes.

Small and masked are a call of five minutes, and so are large and sampled.
"""


def random_model(config: AxialTransformerConfig, device: torch.device) -> AxialTransformer:
    """A model of random weights of scale 1, made on the device."""
    torch.manual_seed(0)
    with device:
        model = AxialTransformer(replace(config, dropout=0.0))
        randomise(model)
    return model


def step_config(options: Options, **changes: Any) -> TrainConfig:
    half = "float32" if options.device.type == "cpu" else "bfloat16"
    usual = {"device": options.device.type, "precision": half, "warmup_steps": 1}
    return TrainConfig(**{**usual, **changes}).resolve_auto()


def metrics(run: Learner) -> dict[str, float]:
    names = ("bits_per_dim", "peak_memory_bytes", "examples_per_second")
    found = run.line()
    return {name: found[name] for name in names if name in found}


@contextmanager
def without_code_for_devices() -> Iterator[None]:
    """A context in which compiling traces, and generates no code: a dry run shows that the plan runs, not its speed."""
    compile = torch.compile
    with patch.object(torch, "compile", lambda *given, **how: compile(*given, **{**how, "backend": "eager"})):
        yield
