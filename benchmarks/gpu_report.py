"""What a GPU shows: one JSON file and one page, to be attached to a report, in 20 minutes at most.

    make gpu-report                                      on the first GPU, into gpu-report/
    make gpu-report ARGS=--dry-run                       the same plan on the CPU, with tiny sizes
    make gpu-report ARGS="--parts losses resume"         some parts only

Each part is a process of its own, so that one that crashes or hangs leaves the others; docs/gpu.md says what they show.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import axial_transformers as axial
from axial_transformers import recipes
from axial_transformers.data import Examples
from axial_transformers.layers.initialisation import randomise
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.ops.axial_attention import axial_attention
from axial_transformers.ops.cuda_arithmetic import arithmetic
from axial_transformers.planning.step_memory import memory
from axial_transformers.training import TrainConfig, train
from axial_transformers.training.metrics import forget_peak_memory, peak_memory
from axial_transformers.training.processes import Processes
from axial_transformers.training.run import Run
from command_line import run_command
from timing import interleaved

ROOT = Path(__file__).parents[1]
SECONDS = {"tests": 240, "limits": 120, "training": 420}
"""The longest that a part may take; together with the others, 20 minutes."""
OTHERS = 80
Found = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options:
    dry_run: bool = False
    """Run the whole plan on the CPU with tiny sizes."""
    out: Path = Path("gpu-report")
    """Folder of report.json and report.md."""
    parts: tuple[str, ...] = ()
    """Parts to run; none: all."""
    only: str | None = None
    """Run this part here and print its figures as JSON; the report starts itself so."""

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.dry_run else "cuda")

    @property
    def model(self) -> AxialTransformerConfig:
        """That of the digits; tiny in a dry run."""
        full = recipes.digits().model
        tiny = {"shape": (2, 3), "dim": 8, "heads": 2, "outer_layers": 2, "inner_layers": 1}
        return replace(full, dropout=0.0, **tiny if self.dry_run else {})


def main(options: Options) -> None:
    if options.only:
        print(json.dumps(PARTS[options.only](options)))
        return
    if not options.dry_run and not torch.cuda.is_available():
        sys.exit("no CUDA device is here: --dry-run runs the plan on the CPU")
    sys.exit(report(options, in_a_process))


def report(options: Options, start: Callable[[str, Options], Found]) -> int:
    """Runs the parts, writes both files after each, and returns the number of parts that failed."""
    found: Found = {"machine": machine(options), "parts": {}}
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        began = time.monotonic()
        part = start(name, options)
        found["parts"][name] = {**part, "seconds": round(time.monotonic() - began, 1)}
        print(f"{name}: {'ok' if part['ok'] else 'FAILED'}", flush=True)
        (options.out / "report.json").write_text(json.dumps(found, indent=2) + "\n")
        (options.out / "report.md").write_text(page(found))
    print(f"{options.out}/report.json, {options.out}/report.md")
    return sum(not part["ok"] for part in found["parts"].values())


def in_a_process(name: str, options: Options) -> Found:
    """The figures of a part that has a process of its own, or what it said before it ended."""
    words = [sys.executable, __file__, "--only", name, *["--dry-run"] * options.dry_run]
    env = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    return finished(words, SECONDS.get(name, OTHERS), env)


def finished(words: list[str], seconds: float, env: dict[str, str] | None = None) -> Found:
    """What a command printed as its last line, if that is JSON; or its end."""
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=env, cwd=ROOT, check=False)
    except subprocess.TimeoutExpired:
        return {"ok": False, "error": f"not finished after {seconds} s"}
    last = (ended.stdout.splitlines() or [""])[-1]
    if ended.returncode == 0 and last.startswith("{"):
        return {"ok": True, **json.loads(last)}
    if ended.returncode == 0:
        return {"ok": True, "said": last}
    return {"ok": False, "status": ended.returncode, "error": (ended.stdout + ended.stderr)[-2000:]}


def machine(options: Options) -> Found:
    found: Found = {"python": platform.python_version(), "torch": torch.__version__, "dry_run": options.dry_run}
    found["axial_transformers"] = axial.__version__
    if options.device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {"gpu": properties.name, "memory_bytes": properties.total_memory, "cuda": torch.version.cuda}
    return found


def page(found: Found) -> str:
    """The report as Markdown."""
    lines = ["# GPU report", "", *(f"- {name}: {value}" for name, value in found["machine"].items())]
    for name, part in found["parts"].items():
        lines += ["", f"## {name}: {'ok' if part['ok'] else 'FAILED'}, {part['seconds']} s", ""]
        figures = {key: value for key, value in part.items() if key not in ("ok", "seconds")}
        lines += ["```json", json.dumps(figures, indent=2), "```"]
    return "\n".join(lines) + "\n"


def tests(options: Options) -> Found:
    """The tests that need a GPU; in a dry run they are only found."""
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/test_gpu.py", "--tb=short"]
    return required(finished([*words, *["--collect-only"] * options.dry_run], SECONDS["tests"]))


def required(found: Found) -> Found:
    """The figures of a command without its `ok`; it ends the process where the command failed."""
    if not found.pop("ok"):
        sys.exit(json.dumps(found))
    return found


def limits(options: Options) -> Found:
    """Attention beyond 65,535 lines, and beyond 2^31 numbers, in a process each: largest error, finite gradients."""
    shapes = [(70_000, 3, 1, 8), (140_000, 128, 2, 64)] if not options.dry_run else [(7, 3, 1, 8)]
    call = "import sys; sys.path.insert(0, 'benchmarks'); import gpu_report as r; print(r.limit({!r}, {!r}))"
    return {
        "x".join(map(str, shape)): finished([sys.executable, "-c", call.format(shape, options.device.type)], 60)
        for shape in shapes
    }


def limit(shape: tuple[int, ...], device: str) -> str:
    """Of the last lines of q = k = v = a sine [lines, length, heads, width] in bfloat16, as JSON."""
    wave = torch.sin(torch.arange(shape[1] * shape[2] * shape[3], device=device)).view(1, *shape[1:])
    x = wave.expand(shape).to(torch.bfloat16).contiguous().requires_grad_()
    out = axial_attention(x, x, x, 1)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    line = x.detach()[-1].double().transpose(0, 1)
    expected = (torch.softmax(line @ line.mT / shape[3] ** 0.5, dim=-1) @ line).transpose(0, 1)
    error = float((out[-1] - expected).abs().max())
    assert error < 0.03, error
    assert bool(gradient.isfinite().all()), "a gradient is not finite"
    return json.dumps({"largest_error": error, "peak_memory_bytes": peak_memory(x.device)})


def losses(options: Options) -> Found:
    """Loss and gradients on the device beside those on the CPU: the largest difference, as a share of the largest."""
    found: Found = {}
    for name, half, tf32 in (("float32", False, False), ("tf32", False, True), ("bfloat16", True, False)):
        sides = []
        for device, narrow in ((torch.device("cpu"), False), (options.device, half)):
            model = random_model(options.model).to(device)
            x, label, channel = (part.to(device) for part in batch(options.model, 4))
            with arithmetic(device, tf32=tf32), torch.autocast(device.type, torch.bfloat16, enabled=narrow):
                loss = random_slice_loss(model, x, label, channel=channel)
            with arithmetic(device, tf32=tf32):
                gradients = torch.autograd.grad(loss, tuple(model.parameters()))
            sides.append([part.detach().double().cpu() for part in (loss, *gradients)])
        shares = [float((one - other).abs().max() / one.abs().max()) for one, other in zip(*sides, strict=True)]
        found[name] = {"loss": shares[0], "gradients": max(shares[1:])}
    assert found["float32"]["loss"] < 1e-4, found
    assert found["bfloat16"]["loss"] < 2e-2, found
    return found


def resume(options: Options) -> Found:
    """Weights of a run that was ended and resumed beside those of one that was not: the largest difference."""
    steps, found = 2 if options.dry_run else 40, {}
    for deterministic in (True, False):
        config = TrainConfig(
            steps=steps, batch_size=4, warmup_steps=1, deterministic=deterministic, device=options.device.type,
            save_every=steps // 2, precision="float32" if options.dry_run else "bfloat16",
        )  # fmt: skip
        sides = []
        for ends in ((steps,), (steps // 2, steps)):
            with tempfile.TemporaryDirectory() as folder:
                for end in ends:
                    model = random_model(options.model)
                    train(model, examples(options.model), replace(config, steps=end), folder, resume=end != ends[0])
                sides.append(load_file(Path(folder) / "checkpoints" / f"step-{steps:08d}" / "model.safetensors"))
        differences = [float((sides[0][name] - sides[1][name]).abs().max()) for name in sides[0]]
        found["deterministic" if deterministic else "as it is"] = max(differences)
    assert found["deterministic"] == 0, found
    return found


def decoding(options: Options) -> Found:
    """Samples of equal noise, eager and by CUDA graphs: how many differ, and seconds."""
    model, count = random_model(options.model).eval().to(options.device), 2 if options.dry_run else 64
    recorded = options.device.type == "cuda"

    def drawn(compile: bool) -> torch.Tensor:
        return axial.sample(model, count, generator=torch.Generator().manual_seed(0), compile=compile)

    differ = int((drawn(False) != drawn(recorded)).flatten(1).any(1).sum())
    runs = {"eager": lambda: drawn(False), "graphs": lambda: drawn(recorded)}
    seconds = interleaved(runs, 1 if options.dry_run else 5, 0 if options.dry_run else 1, options.device)
    assert differ <= count // 16, f"{differ} of {count} samples differ"
    return {"samples": count, "differ": differ, "seconds": seconds}


def archives(options: Options) -> Found:
    """Archives by a model on the CPU, read by one on the device, and the other way round."""
    images = torch.from_numpy(examples(options.model).values[:4])
    sides = {str(device): random_model(options.model).to(device) for device in ("cpu", options.device)}
    sizes = {}
    for here, one in sides.items():
        archive = axial.compress(one, images)
        sizes[here] = len(archive)
        for there, other in sides.items():
            assert torch.equal(axial.decompress(other, archive), images), f"made on {here}, read on {there}"
    return {"bytes": sizes}


def memory_of_a_step(options: Options) -> Found:
    """The peak of a recipe's steps beside its estimate, blocks not compiled."""
    recipe = recipes.digits() if options.dry_run else recipes.fashion_mnist_gpu()
    model = options.model if options.dry_run else recipe.model
    config = replace(recipe.training, compile=False, device=options.device.type, label_dropout=0.0)
    forget_peak_memory(options.device)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(AxialTransformer(model), examples(model), config, Path(folder), Processes(options.device))
        for _ in range(3):
            run.update()
        found = {**run.figures(), "estimate": memory(model, config, 1).total}
        run.close()
    return {name: found[name] for name in ("peak_memory_bytes", "estimate", "data_wait_share", "examples_per_second")}


def training(options: Options) -> Found:
    """benchmarks/train.py: a step of the paper's recipes beside a straightforward one."""
    words = ["--device", "cuda", "--recipes", "imagenet32", "imagenet64", "--precisions", "bfloat16", "--seconds", "15"]
    if options.dry_run:
        words = ["--recipes", "digits", "--precisions", "float32", "--compiled", "False", "--batch", "2"]
        words += ["--seconds", "0", "--threads", "1"]
    return required(finished([sys.executable, "benchmarks/train.py", *words], SECONDS["training"]))


PARTS: dict[str, Callable[[Options], Found]] = {
    "tests": tests,
    "limits": limits,
    "losses": losses,
    "resume": resume,
    "decoding": decoding,
    "archives": archives,
    "memory": memory_of_a_step,
    "training": training,
}


def random_model(config: AxialTransformerConfig) -> AxialTransformer:
    model = AxialTransformer(config)
    randomise(model, torch.Generator().manual_seed(0))
    return model


def examples(config: AxialTransformerConfig) -> Examples:
    draw, count = np.random.default_rng(0), 128
    values = draw.integers(0, config.num_values, (count, *config.shape, config.channels), dtype=np.uint8)
    labels = draw.integers(0, config.num_classes, count) if config.num_classes else None
    return Examples(values=values, names=[str(i) for i in range(count)], labels=labels, num_values=config.num_values)


def batch(config: AxialTransformerConfig, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    some = examples(config)
    assert some.labels is not None
    return torch.from_numpy(some.values[:count]), torch.from_numpy(some.labels[:count]), torch.zeros(count).long()


if __name__ == "__main__":
    main(run_command(Options, description=__doc__))
