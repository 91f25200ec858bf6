"""What a GPU shows: one JSON file and one page, to be attached to a report.

    make gpu-report                                      on the first GPU, into gpu-report/
    make gpu-report ARGS=--dry-run                       the same plan on the CPU, with tiny sizes
    make gpu-report ARGS="--parts losses resume"         some parts only

Each part is a process of its own with a limit of time, and writes its rows as they come: one that crashes, hangs or is
ended leaves its rows, and the other parts go on. A row says what was expected and whether it holds;
docs/project/gpu.md lists the parts. Two GPUs are tested by the part `processes`, which is skipped where there is one.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import axial_transformers as axial
from axial_transformers.data import Examples
from axial_transformers.decoding import gumbel
from axial_transformers.layers.initialisation import randomise
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.axial_attention import axial_attention
from axial_transformers.ops.cuda_arithmetic import arithmetic
from axial_transformers.planning.step_memory import memory
from axial_transformers.recipes import NAMED
from axial_transformers.training import TrainConfig, train
from axial_transformers.training.metrics import forget_peak_memory, peak_memory
from axial_transformers.training.processes import Processes
from axial_transformers.training.step import STEPS_BETWEEN_WAITS, Learner, prepared, step
from command_line import run_command
from timing import interleaved, now

ROOT = Path(__file__).parents[1]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options:
    dry_run: bool = False
    """Run the whole plan on the CPU with tiny sizes."""
    out: Path = Path("gpu-report")
    """Folder of report.json and report.md."""
    parts: tuple[str, ...] = ()
    """Parts to run; none: all."""
    only: str | None = None
    """Run this part here and print its rows as JSON; the report starts itself so."""

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.dry_run else "cuda")

    @property
    def model(self) -> AxialTransformerConfig:
        """That of the digits; tiny in a dry run."""
        return self.sized(NAMED["digits"]().model)

    def sized(self, config: AxialTransformerConfig) -> AxialTransformerConfig:
        """The model, without dropout; tiny in a dry run."""
        shape = tuple(min(3, length) for length in config.shape)
        axes = len(config.bijection.shape)
        tiny: dict[str, Any] = {
            "shape": shape, "dim": 8, "heads": 2, "inner_layers": 1,
            "encoder_layers": axes if config.encoder_layers else 0,
            "outer_layers": tuple(axes - level for level in range(axes - 1)),
        }  # fmt: skip
        return replace(config, dropout=0.0, **tiny if self.dry_run else {})

    @property
    def rounds(self) -> int:
        return 1 if self.dry_run else 10


def main(options: Options) -> None:
    if options.only:
        with without_code_for_devices() if options.dry_run else nullcontext():
            for row in PARTS[options.only][1](options):
                print(json.dumps(row), flush=True)
        return
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("no CUDA device is here: --dry-run runs the plan on the CPU")
    sys.exit(report(options))


@contextmanager
def without_code_for_devices() -> Iterator[None]:
    """A context in which compiling traces, and generates no code: a dry run shows that the plan runs, not its speed."""
    compile = torch.compile
    torch.compile = lambda *given, **how: compile(*given, **how, backend="eager")
    yield
    torch.compile = compile


def report(options: Options) -> int:
    """Run the parts, write both files after each, and return the number of parts of which something does not hold."""
    found: dict[str, Any] = {"machine": machine(options), "parts": {}}
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        seconds, _ = PARTS[name]
        words = [sys.executable, __file__, "--only", name, *["--dry-run"] * options.dry_run]
        if options.dry_run:
            os.environ["OMP_NUM_THREADS"] = "1"
        part = found["parts"][name] = rows_of(words, seconds, options.out / f"{name}.rows")
        failed = [row["name"] for row in part["rows"] if not row.get("holds", True)]
        print(
            f"{name}: {part['ended']}, {len(part['rows'])} rows", *failed and ["NOT AS EXPECTED:", *failed], flush=True
        )
        (options.out / "report.json").write_text(json.dumps(found, indent=2) + "\n")
        (options.out / "report.md").write_text(page(found))
    print(f"{options.out}/report.json, {options.out}/report.md")
    return sum(not as_expected(part) for part in found["parts"].values())


def as_expected(part: Row) -> bool:
    return part["ended"] == "finished" and all(row.get("holds", True) for row in part["rows"])


def rows_of(words: list[str], seconds: float, log: Path) -> Row:
    """The rows that a command has printed, one JSON object a line, when it ends or its time is up."""
    began, env = time.monotonic(), os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONUNBUFFERED": "1"}
    errors = log.with_suffix(".errors")
    with log.open("w") as out, errors.open("w") as err:
        started = subprocess.Popen(words, stdout=out, stderr=err, env=env, cwd=ROOT, start_new_session=True)
        try:
            status = started.wait(seconds)
            ended = "finished" if status == 0 else f"exit status {status}: {errors.read_text()[-1500:]}"
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, 9)
            started.wait()
            ended = f"ended after {seconds:g} s, its limit"
    rows = []
    for line in log.read_text().splitlines():
        with suppress(ValueError):  # what is no row: a word of a test, half a line
            rows.append(json.loads(line))
    log.unlink()
    errors.unlink()
    return {"ended": ended, "seconds": round(time.monotonic() - began, 1), "rows": rows}


def machine(options: Options) -> Row:
    found: Row = {"python": platform.python_version(), "torch": torch.__version__, "dry_run": options.dry_run}
    found["axial_transformers"] = axial.__version__
    if options.device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {"gpu": properties.name, "gpus": torch.cuda.device_count(), "cuda": torch.version.cuda}
        found["memory_bytes"] = properties.total_memory
    return found


def page(found: Row) -> str:
    """The report as Markdown: a table for each part."""
    lines = ["# GPU report", "", *(f"- {name}: {value}" for name, value in found["machine"].items())]
    for name, part in found["parts"].items():
        lines += ["", f"## {name}", "", f"{part['ended']}, {part['seconds']} s. {PARTS[name][1].__doc__}", ""]
        lines += ["| | expected | holds | found |", "|---|---|---|---|"]
        for row in part["rows"]:
            values = {key: value for key, value in row.items() if key not in ("name", "expected", "holds")}
            holds = {True: "yes", False: "**no**", None: ""}[row.get("holds")]
            lines.append(
                f"| {row.get('name', '')} | {row.get('expected', '')} | {holds} | {json.dumps(values)[1:-1]} |"
            )
    return "\n".join(lines) + "\n"


def row(name: str, expected: str, holds: bool, **found: Any) -> Row:
    return {"name": name, "expected": expected, "holds": bool(holds), **found}


def tests(options: Options) -> Iterator[Row]:
    """The tests under the mark `gpu`; in a dry run they are only found."""
    words = ["-m", "pytest", "-m", "gpu", "tests/gpu/test_gpu.py", "--tb=short", *["--collect-only"] * options.dry_run]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT, check=False)
    yield row("make test-gpu", "no failure", ended.returncode == 0, said=ended.stdout[-3000:])


def limits(options: Options) -> Iterator[Row]:
    """Attention beyond 65,535 lines, and beyond 2^31 numbers, beside that of the last line in float64."""
    for shape in [(70_000, 3, 1, 8), (140_000, 128, 2, 64)] if not options.dry_run else [(7, 3, 1, 8)]:
        forget_peak_memory(options.device)
        wave = torch.sin(torch.arange(shape[1] * shape[2] * shape[3], device=options.device)).view(1, *shape[1:])
        x = wave.expand(shape).to(torch.bfloat16).contiguous().requires_grad_()
        out = axial_attention(x, x, x, 1)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        line = x.detach()[-1].double().transpose(0, 1)
        expected = (torch.softmax(line @ line.mT / shape[3] ** 0.5, dim=-1) @ line).transpose(0, 1)
        error, finite = float((out[-1] - expected).abs().max()), bool(gradient.isfinite().all())
        peak = peak_memory(options.device)
        told = {"largest_error": error, "finite_gradients": finite, "peak_memory_bytes": peak}
        yield row("x".join(map(str, shape)), "error below 0.03, finite gradients", error < 0.03 and finite, **told)


def losses(options: Options) -> Iterator[Row]:
    """Loss and gradients on the device beside those on the CPU: the largest difference, as a share of the largest."""
    bounds = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 2e-2}
    for name, bound in bounds.items():
        sides = []
        for device, half in ((torch.device("cpu"), False), (options.device, name == "bfloat16")):
            model = random_model(options.model, device)
            x, label, channel = (part.to(device) for part in batch(options.model, 4))
            with arithmetic(device, tf32=name == "tf32"):
                with torch.autocast(device.type, torch.bfloat16, enabled=half):
                    loss = random_slice_loss(model, x, label, channel=channel)
                gradients = torch.autograd.grad(loss, tuple(model.parameters()))
            sides.append([part.detach().double().cpu() for part in (loss, *gradients)])
        apart, *others = (float((one - other).abs().max() / one.abs().max()) for one, other in zip(*sides, strict=True))
        yield row(name, f"loss within {bound:g}", apart < bound, loss=apart, gradients=max(others))


def compiling(options: Options) -> Iterator[Row]:
    """Blocks of each shipped recipe, compiled: no graph is cut, and no step after the second one compiles again."""
    compile = torch.compile
    for name, recompute in product(NAMED, (False, True)):
        recipe = NAMED[name]()
        config = replace(options.sized(recipe.model), shape=tuple(min(8, each) for each in recipe.model.shape))
        config = options.sized(replace(config, dim=64, heads=4))
        training = step_config(options, batch_size=4, checkpoint_blocks=recompute, compile=True)
        torch.compile = lambda *given, **how: compile(*given, **how, fullgraph=True)
        began, expected = time.monotonic(), "whole graphs, none compiled after the second step"
        try:
            with started(config, training, options) as run:
                step(run)
                step(run)
                with torch.compiler.set_stance("fail_on_recompile"):
                    step(run)
                run.meter.read()
            said = "compiled"
        except Exception as error:  # whatever the compiler says is what this row is for
            said = f"{type(error).__name__}: {error}"[:500]
        torch.compile = compile
        title = f"{name}, checkpointed" if recompute else name
        yield row(title, expected, said == "compiled", said=said, seconds=round(time.monotonic() - began, 1))


def checkpointing(options: Options) -> Iterator[Row]:
    """Steps of one recipe with compiled blocks, checkpointed or not: the same losses, less memory."""
    recipe = NAMED["digits"]() if options.dry_run else NAMED["fashion_mnist_gpu"]()
    found = {}
    for recompute in (False, True):
        training = step_config(
            options, batch_size=recipe.training.batch_size, checkpoint_blocks=recompute, compile=True
        )
        with started(options.sized(recipe.model), training, options) as run:
            seconds = [seconds_of_step(run, options.device) for _ in range(3 + options.rounds)][3:]
            found[recompute] = {"seconds": min(seconds), **metrics(run)}
    one, other = found[False], found[True]
    close = abs(one["bits_per_dim"] - other["bits_per_dim"]) < 0.02 * one["bits_per_dim"]
    less = options.dry_run or other["peak_memory_bytes"] < one["peak_memory_bytes"]
    yield row("as it is", "", True, **one)
    yield row("checkpointed", "losses within 2 %, less memory", close and less, **other)


def waiting(options: Options) -> Iterator[Row]:
    """Steps between two reads of the loss, where whatever waits for the device is an error."""
    augmented = {"distribution_augmentation": 0.5, "shift_augmentation": 0.5}
    runs: dict[str, dict[str, Any]] = {"adam": {}, "muon": {"optimizer": "muon"}, "augmented": augmented}
    for name, changes in runs.items():
        training = step_config(options, batch_size=8, compile=False, **changes)
        with started(options.model, training, options) as run:
            for _ in range(2 * STEPS_BETWEEN_WAITS):
                step(run)
            run.meter.read()
            said = "no wait"
            try:
                with nullcontext() if options.dry_run else waits_are_errors():
                    for _ in range(STEPS_BETWEEN_WAITS - 1):
                        step(run)
            except RuntimeError as error:
                said = str(error)[:500]
        yield row(name, "nothing waits for the device", said == "no wait", said=said)


@contextmanager
def waits_are_errors() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def layers(options: Options) -> Iterator[Row]:
    """Attention with a mask of keys, or a bias, of 128 keys and of 127: memory and seconds beside those without."""
    batch, heads, width = (2, 2, 8) if options.dry_run else (32, 8, 64)
    for length in (128, 127):
        x = torch.randn(batch, length, length, heads, width, device=options.device, dtype=torch.bfloat16)
        keep = torch.ones(batch, length, length, dtype=torch.bool, device=options.device)
        bias = torch.randn(batch, heads, length, length, device=options.device, dtype=torch.bfloat16)
        usual, peaks = {}, {}
        calls: dict[str, dict[str, Any]] = {"plain": {}, "key_mask": {"key_mask": keep}, "bias": {"attn_bias": bias}}
        for name, given in calls.items():
            y = x.clone().requires_grad_()
            forget_peak_memory(options.device)
            axial_attention(y, y, y, 2, **given).sum().backward()
            peaks[name], seconds = peak_memory(options.device), []
            for _ in range(options.rounds):
                began = now(options.device)
                axial_attention(y, y, y, 2, **given).sum().backward()
                seconds.append(now(options.device) - began)
            usual[name] = min(seconds)
            told = {"peak_memory_bytes": peaks[name], "seconds": usual[name]}
            # All scores of a mask or bias that is expanded would take more than twice the memory of q, k and v.
            small = options.dry_run or peaks[name] < 2 * peaks["plain"]
            yield row(f"{name}, {length} keys", "less than twice the memory of plain attention", small, **told)


def scoring(options: Options) -> Iterator[Row]:
    """Exact bits/dim in float32 and in bfloat16: how far apart, and seconds."""
    recipe = NAMED["digits"]() if options.dry_run else NAMED["imagenet32"]()
    config = options.sized(recipe.model)
    model, x = random_model(config, options.device).eval(), torch.from_numpy(examples(config).values[:16])
    found, seconds = {}, {}
    for name in ("float32", "bfloat16"):
        for _ in range(2):
            began = now(options.device)
            with torch.autocast(options.device.type, torch.bfloat16, enabled=name == "bfloat16"):
                found[name] = float(axial.bits_per_dim(model, x).mean())
            seconds[name] = now(options.device) - began
    apart = abs(found["float32"] - found["bfloat16"]) / found["float32"]
    faster = options.dry_run or seconds["bfloat16"] < seconds["float32"] / 2
    yield row("32x32", "within 1 %, at least twice as fast", apart < 0.01 and faster, bits=found, seconds=seconds)


def resume(options: Options) -> Iterator[Row]:
    """Weights of a run that was ended and resumed beside those of one that was not: the largest difference."""
    steps = 2 if options.dry_run else 40
    for deterministic in (True, False):
        config = TrainConfig(
            steps=steps, batch_size=4, warmup_steps=1, deterministic=deterministic, device=options.device.type,
            save_every=steps // 2, precision="float32" if options.dry_run else "bfloat16", compile=False,
        )  # fmt: skip
        sides = []
        for ends in ((steps,), (steps // 2, steps)):
            with tempfile.TemporaryDirectory() as folder:
                for end in ends:
                    model = random_model(options.model, torch.device("cpu"))
                    train(model, examples(options.model), replace(config, steps=end), folder, resume=end != ends[0])
                sides.append(load_file(Path(folder) / "checkpoints" / f"step-{steps:08d}" / "model.safetensors"))
        apart = max(float((sides[0][name] - sides[1][name]).abs().max()) for name in sides[0])
        name = "deterministic" if deterministic else "as it is"
        yield row(name, "no difference" if deterministic else "", not deterministic or apart == 0, difference=apart)


def decoding(options: Options) -> Iterator[Row]:
    """Samples of equal noise, eager and by CUDA graphs: how many differ, and seconds; and the time of noise."""
    model, count = random_model(options.model, options.device).eval(), 2 if options.dry_run else 64
    recorded = options.device.type == "cuda"

    def sampled(compile: bool) -> torch.Tensor:
        return axial.sample(model, count, seed=0, compile=compile)

    for name in ("float32", "bfloat16"):
        with torch.autocast(options.device.type, torch.bfloat16, enabled=name == "bfloat16"):
            differ = int((sampled(False) != sampled(recorded)).flatten(1).any(1).sum())
            runs = {"eager": lambda: sampled(False), "graphs": lambda: sampled(recorded)}
            seconds = interleaved(runs, 1 if options.dry_run else 5, 0 if options.dry_run else 1, options.device)
        title = f"{count} samples, {name}"
        yield row(title, "at most one in 16 differs", differ <= count // 16, differ=differ, seconds=seconds)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)
    differ = int((sampled(False) != sampled(recorded)).flatten(1).any(1).sum())
    yield row("after the weights have changed in place", "the same", differ <= count // 16, differ=differ)
    shape = (2, 3, 4) if options.dry_run else (64, 64 * 64 * 3, 256)
    began = now(options.device)
    finite = bool(gumbel(shape, device=options.device).isfinite().all())
    yield row(f"noise of {shape[0]} samples", "finite", finite, seconds=now(options.device) - began)


def memory_of_a_step(options: Options) -> Iterator[Row]:
    """The peak of a recipe's steps beside its estimate, blocks not compiled."""
    recipe = NAMED["digits"]() if options.dry_run else NAMED["fashion_mnist_gpu"]()
    model = options.sized(recipe.model)
    config = replace(recipe.training, compile=False, device=options.device.type, label_dropout=0.0).resolve_auto()
    forget_peak_memory(options.device)
    with started(model, config, options) as run:
        for _ in range(3):
            step(run)
        found = {**metrics(run), "estimate": memory(model, config, 1).total}
    near = options.dry_run or 0.8 < found["peak_memory_bytes"] / found["estimate"] < 1.25
    yield row(recipe.training.optimizer, "the peak within 25 % of the estimate", near, **found)


def training(options: Options) -> Iterator[Row]:
    """benchmarks/train.py: steps of the paper's recipes beside straightforward ones, one side at a time."""
    words = ["--device", "cuda", "--recipes", "imagenet32", "imagenet64", "--precisions", "bfloat16", "--seconds", "15"]
    if options.dry_run:
        words = ["--recipes", "digits", "--precisions", "float32", "--compiled", "False", "--batch", "2"]
        words += ["--seconds", "0", "--threads", "1"]
    started = subprocess.Popen(
        [sys.executable, "benchmarks/train.py", *words], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert started.stdout is not None
    for line in started.stdout:
        with suppress(ValueError):
            found = json.loads(line)
            name = f"{found['recipe']}, compiled {found['compiled']}" if "recipe" in found else "summary"
            yield row(name, "faster than straightforward", found.get("speedup", 1) >= 1 or options.dry_run, **found)
    yield row("train.py", "exit status 0", started.wait() == 0)


def processes(options: Options) -> Iterator[Row]:
    """Two processes, each with a GPU: they train, resume, and one of them fails (benchmarks/gpu_processes.py)."""
    if not options.dry_run and torch.cuda.device_count() < 2:
        return
    words = [sys.executable, "benchmarks/gpu_processes.py", *["--device", "cpu"] * options.dry_run]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert started.stdout is not None
    for line in started.stdout:
        with suppress(ValueError):
            yield json.loads(line)
    yield row("gpu_processes.py", "exit status 0", started.wait() == 0)


PARTS: dict[str, tuple[float, Callable[[Options], Iterator[Row]]]] = {
    "tests": (300, tests),
    "limits": (120, limits),
    "losses": (80, losses),
    "waiting": (80, waiting),
    "compiling": (900, compiling),
    "checkpointing": (240, checkpointing),
    "layers": (120, layers),
    "scoring": (240, scoring),
    "resume": (120, resume),
    "decoding": (120, decoding),
    "memory": (120, memory_of_a_step),
    "training": (600, training),
    "processes": (300, processes),
}
"""The seconds that each part may take, and its rows: an hour in all."""


def random_model(config: AxialTransformerConfig, device: torch.device) -> AxialTransformer:
    """A model of random weights of scale 1, the same on every device."""
    model = AxialTransformer(config)
    randomise(model, torch.Generator().manual_seed(0))
    return model.to(device)


def step_config(options: Options, **changes: Any) -> TrainConfig:
    half = "float32" if options.dry_run else "bfloat16"
    return TrainConfig(**{"device": options.device.type, "precision": half, "warmup_steps": 1, **changes})


@contextmanager
def started(config: AxialTransformerConfig, training: TrainConfig, options: Options) -> Iterator[Learner]:
    """A run of random weights, built on the device, and random examples."""
    with Processes(options.device) as alone:
        torch.manual_seed(0)
        with options.device:
            model = AxialTransformer(config)
        run = prepared(model, examples(config), training.resolve_auto(), alone)
        yield run
        run.close()


def seconds_of_step(run: Learner, device: torch.device) -> float:
    """The seconds of a step."""
    began = now(device)
    step(run)
    return now(device) - began


def metrics(run: Learner) -> dict[str, float]:
    names = ("bits_per_dim", "peak_memory_bytes", "data_wait_share", "examples_per_second", "model_flop_utilisation")
    found = run.line()
    return {name: found[name] for name in names if name in found}


def examples(config: AxialTransformerConfig) -> Examples:
    rng, count = np.random.default_rng(0), 128
    values = rng.integers(0, config.num_values, (count, *config.shape, config.channels), dtype=np.uint8)
    labels = rng.integers(0, config.num_classes, count) if config.num_classes else None
    return Examples(values=values, names=[str(i) for i in range(count)], labels=labels, num_values=config.num_values)


def batch(config: AxialTransformerConfig, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    some = examples(config)
    assert some.labels is not None
    return torch.from_numpy(some.values[:count]), torch.from_numpy(some.labels[:count]), torch.zeros(count).long()


if __name__ == "__main__":
    main(run_command(Options, description=__doc__))
