"""What one tree of the package takes on a device: `gpu_parts.py` measures this tree, and an earlier one beside it.

Each side is a process that finds the package and `speed.py` of its own tree on PYTHONPATH, so this file uses names that
both trees have. It prints one JSON object.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity

import axial_transformers as axial
from axial_transformers.models import AxialTransformer
from axial_transformers.recipes import NAMED
from speed import seconds_of_steps, started
from timing import now

Found = dict[str, Any]
CUDA, CPU = torch.device("cuda"), torch.device("cpu")
KINDS = {
    "attention": ("flash", "fmha", "attention", "sdpa", "cudnn"),
    "matmul": ("gemm", "cutlass", "nvjet", "xmma"),
    "copies": ("memcpy", "memset", "direct_copy"),
    "optimizer": ("multi_tensor", "foreach", "lerp"),
    "element-wise": ("",),
}
"""Kinds of GPU kernels, by words in their names; the first that fits. Triton's are named after what they replace."""
LARGEST = 12
"""Kernels that a profile names."""


def profile(work: Callable[[], object], device: torch.device) -> Found:
    """Return the seconds of work, the share of each kind of kernel and of an idle device, and the largest kernels."""
    began = now(device)
    work()
    seconds = now(device) - began
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (device.type == "cuda")]
    with torch.profiler.profile(activities=activities) as profiled:
        work()
        now(device)
    events = [event for event in profiled.key_averages() if not event.is_user_annotation]
    events = [event for event in events if event.device_type.name == "CUDA"] or events  # operators
    shares, largest = dict.fromkeys(KINDS, 0.0), {}
    for event in sorted(events, key=lambda event: -event.self_device_time_total):
        key = "" if event.key.startswith("triton") else event.key.lower()
        kind = next(kind for kind, words in KINDS.items() if any(word in key for word in words))
        share = event.self_device_time_total / 1e6 / seconds
        shares[kind] += share
        if len(largest) < LARGEST:
            largest[event.key[:80]] = {"share": share, "calls": event.count}
    return {"seconds": seconds, "idle": 1 - sum(shares.values()), **shares, "largest": largest}


def settings(device: torch.device, **changes: Any) -> Found:
    precision = "bfloat16" if device.type == "cuda" else "float32"
    return {
        "device": device.type,
        "precision": precision,
        "warmup_steps": 1,
        "compile": device.type == "cuda",
        **changes,
    }


def steps(device: torch.device, **changes: Any) -> Found:
    """Whole steps of fashion_mnist: how many a second, and the seconds in which the host makes a batch."""
    recipe = NAMED["fashion_mnist"]()
    count, rounds = (100, 5) if device.type == "cuda" else (1, 1)
    model = recipe.model if device.type == "cuda" else replace(recipe.model, shape=(4, 4), dim=16, heads=2)
    with started(model, replace(recipe.training, **settings(device, **changes)), device) as run:
        seconds_of_steps(run, min(count, 30), device)
        seconds = median(seconds_of_steps(run, count, device) for _ in range(rounds))
        began = time.perf_counter()
        for _ in range(count):
            next(run.batches)
        batch = (time.perf_counter() - began) / count
        run.meter.read()
    return {"steps_per_second": count / seconds, "host_seconds_of_a_batch": batch}


def attention(device: torch.device) -> Found:
    """Attention of 128 keys, forward and backward, by what it adds: seconds, and errors beside float64."""
    on_cuda = device.type == "cuda"
    batch, length, heads, width = (32, 128, 8, 64) if on_cuda else (1, 4, 2, 8)
    shape = batch, length, length, heads, width
    dtype = torch.bfloat16 if on_cuda else torch.float32
    keep = torch.rand(shape[:3], device=device) > 0.2
    bias = torch.randn(batch, heads, length, length, device=device, dtype=dtype)
    cases: dict[str, Found] = {
        "plain": {},
        "key_mask": {"key_mask": keep},
        "bias": {"attn_bias": bias},
        "learned bias": {"attn_bias": bias.clone().requires_grad_()},
        "learned bias, key_mask": {"attn_bias": bias.clone().requires_grad_(), "key_mask": keep},
    }
    qkv = [torch.randn(shape, device=device, dtype=dtype).requires_grad_() for _ in range(3)]
    grad = torch.randn(shape, device=device, dtype=dtype)
    found: Found = {}
    for name, given in cases.items():
        learned = [x for x in given.values() if x.requires_grad]
        work = partial(there_and_back, [*qkv, *learned], grad, given)
        seconds = []
        for _ in range(2 + 10 * on_cuda):
            began = now(device)
            work()
            seconds.append(now(device) - began)
        found[name] = {"seconds": min(seconds[1:]), "error": error_of([*qkv, *learned], grad, given)}
    return found


def there_and_back(tensors: list[torch.Tensor], grad: torch.Tensor, given: Found) -> list[torch.Tensor]:
    """Return the result and its gradients."""
    q, k, v = tensors[:3]
    out = axial.axial_attention(q, k, v, 2, **given)
    return [out, *torch.autograd.grad(out, tensors, grad)]


def error_of(tensors: list[torch.Tensor], grad: torch.Tensor, given: Found) -> float:
    """Return the largest error of an example beside float64, of the result or a gradient, as a share of its norm."""
    sides = []
    for dtype in (grad.dtype, torch.float64):
        some = [x[:1].detach().to(dtype).requires_grad_() for x in tensors]
        own = {name: x[:1].to(dtype) if name == "attn_bias" else x[:1] for name, x in given.items()}
        if len(some) > 3:
            own["attn_bias"] = some[3]
        sides.append([x.detach() for x in there_and_back(some, grad[:1].to(dtype), own)])
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(*sides, strict=True))


def large(device: torch.device) -> Found:
    """Compiled steps of imagenet32 on 32 images: a profile of three."""
    recipe = NAMED["imagenet32"]()
    model = recipe.model
    if device.type == "cpu":
        model = replace(model, shape=(4, 4), dim=16, heads=2, encoder_layers=2, outer_layers=2, inner_layers=1)
    batch = 32 if device.type == "cuda" else 2
    training = replace(recipe.training, **settings(device, batch_size=batch, accumulate=1))
    with started(model, training, device) as run:
        seconds_of_steps(run, 11 if device.type == "cuda" else 1, device)
        run.meter.read()
        found = profile(partial(seconds_of_steps, run, 3, device), device)
    return {**found, "seconds": found["seconds"] / 3}


def sampled(device: torch.device) -> Found:
    """Samples of imagenet32 in bfloat16: profiles of 64 and of 256 images."""
    config, counts = NAMED["imagenet32"]().model, (64, 256)
    if device.type == "cpu":
        config = replace(config, shape=(2, 2), dim=16, heads=2, encoder_layers=2, outer_layers=2, inner_layers=1)
        counts = (1, 2)
    torch.manual_seed(0)
    with device:
        model = AxialTransformer(replace(config, dropout=0.0)).eval()
    found = {}
    for count in counts:
        with torch.autocast(device.type, torch.bfloat16):
            work = partial(axial.sample, model, count, seed=0, compile=device.type == "cuda")
            work()  # records
            found[str(count)] = profile(work, device)
    return found


MEASURED = {work.__name__: work for work in (steps, attention, large, sampled)}


def main() -> None:
    """Print what is measured: the name of a function, then settings of the run as JSON."""
    name, changes = sys.argv[1], json.loads(sys.argv[2])
    dry = changes.pop("dry_run")
    print(json.dumps(MEASURED[name](CPU if dry else CUDA, **changes)))
