"""axial doctor: what can be trusted on this machine."""

import copy
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from axial_transformers import data
from axial_transformers.cli.commands import Doctor
from axial_transformers.cli.console import print_rows, working
from axial_transformers.compression import compress, decompress
from axial_transformers.decoding.exact_network import ExactNetwork
from axial_transformers.decoding.sampling import sample
from axial_transformers.engine import library, network, reference
from axial_transformers.layers.initialisation import randomise
from axial_transformers.layers.lines import LineAttention
from axial_transformers.layers.position_sensitive import PositionSensitiveAxialAttention
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.planning.machine import machine_facts, machine_rows
from axial_transformers.training import TrainConfig, train

ARCHIVE = "f64f5c93"
"""The first digits of the SHA-256 of the archive of 16 bundled digits by the shipped model, on every machine."""
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
"""Largest error of a layer's output and gradients, as a share of their norm."""
SECONDS = 120
"""Longest time for two processes to start and train."""


def main(_: Doctor) -> int:
    """Run the command."""
    for title, facts in machine_rows(machine_facts()).items():
        print_rows(facts, title)
    failed, rows = [], {}
    for name, (check, guards) in CHECKS.items():
        with working(f"checking {name}"):
            try:
                rows[name] = check()
            except Exception as error:  # whatever it is, the rest is checked too
                rows[name] = f"FAILED: {error}"
                failed.append(guards)
    print_rows(rows, "checks")
    print(f"\nDo not trust here: {'; '.join(failed)}." if failed else "\nAll that was checked can be trusted.")
    return int(bool(failed))


def check_network() -> str:
    """Compare the engine with its reference in NumPy, for random models of every kind of layer."""
    if library() is None:
        return "not checked: the engine is not compiled"
    kinds: dict[str, dict[str, Any]] = {
        "attention": {"rotary": 10.0, "convolution": 1},
        "lstm": {"inner": "lstm", "encoder_layers": 2},
    }
    for kind, options in kinds.items():
        model = AxialTransformer(
            AxialTransformerConfig(shape=(3, 5), channels=2, num_values=7, dim=8, heads=2, inner_layers=1, **options)
        )
        randomise(model, torch.Generator().manual_seed(0))
        x = torch.arange(60).view(2, 3, 5, 2) * 5 % 7
        compiled, slow = (ExactNetwork(model, each).nats(x) for each in (network, reference))
        require(bool((compiled == slow).all()), f"{kind}: {(compiled != slow).mean():.0%} of the log-probabilities")
    return "the reference's bits"


def check_archive() -> str:
    """Compare an archive with that of other machines, and restore it."""
    model, images = _digits()
    archive = compress(model, images)
    found = hashlib.sha256(archive).hexdigest()
    require(found.startswith(ARCHIVE), f"an archive has the SHA-256 {found[:8]}, elsewhere {ARCHIVE}")
    require(torch.equal(decompress(model, archive), images), "an archive was not restored")
    return "the bytes of other machines"


def check_samples() -> str:
    """Compare compiled samples with eager ones, for equal noise."""
    if library() is None:
        return "not checked: the engine is not compiled"
    model, _ = _digits()
    compiled, eager = (sample(model, 4, seed=0, compile=compile) for compile in (True, False))
    require(torch.equal(compiled, eager), "compiled samples differ from eager ones")
    return "compiled as eager"


def check_layers() -> str:
    """Compare attention layers and their gradients with float64; the calls are large enough for compiled kernels."""
    generator, errors = torch.Generator().manual_seed(0), dict[torch.dtype, float]()
    for layer in (LineAttention(32, 4, axis=2, causal=True), PositionSensitiveAxialAttention(32, 4, axis=2, span=9)):
        randomise(layer, generator)
        x = torch.randn(8, 16, 64, 32, generator=generator)
        expected = _with_gradients(copy.deepcopy(layer).double(), x.double())
        for dtype in TOLERANCE:
            found = _with_gradients(copy.deepcopy(layer).to(dtype), x.to(dtype))
            error = max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))
            require(error <= TOLERANCE[dtype], f"{type(layer).__name__} in {dtype} is off by {error:.1g} of its size")
            errors[dtype] = max(error, errors.get(dtype, 0.0))
    return "float64's within " + ", ".join(f"{error:.0e} in {str(dtype)[6:]}" for dtype, error in errors.items())


def _with_gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.requires_grad_()
    out = layer(x)
    return [out.detach(), *torch.autograd.grad(out.square().mean(), [x, *layer.parameters()])]


def check_processes() -> str:
    """Train two steps in two processes, which compare their weights at the checkpoint."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-c", f"from {__name__} import train_two_steps; train_two_steps({folder!r})"]
        started = [
            subprocess.Popen(
                command, env=os.environ | world | {"RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True
            )
            for rank in "01"
        ]
        try:
            said = [each.communicate(timeout=SECONDS)[1].strip() for each in started]
        finally:
            for each in started:
                each.kill()
    for process, text in zip(started, said, strict=True):
        require(process.returncode == 0, text.splitlines()[-1] if text else f"exit status {process.returncode}")
    return "equal weights in two processes (gloo, Muon)"


def train_two_steps(folder: str) -> None:
    """Train a small model on the digits in this process, one of several."""
    config = AxialTransformerConfig(shape=(8, 8), num_values=17, dim=16, heads=2, outer_layers=2, inner_layers=1)
    model = AxialTransformer(config)
    randomise(model, torch.Generator().manual_seed(0))
    options = TrainConfig(steps=2, batch_size=8, optimizer="muon", device="cpu", precision="float32", compile=False)
    train(model, data.load("digits"), options, folder)


def check_gpu() -> str:
    """Compare bits/dim on a CUDA device with those of the CPU."""
    if not torch.cuda.is_available():
        return "not checked: there is no CUDA device"
    model, images = _digits()
    bits = bits_per_dim(model, images)
    error = float((bits_per_dim(model.cuda(), images.cuda()).cpu() - bits).abs().max())
    require(error < 1e-4, f"bits/dim are off by {error:.1g}")
    return f"the CPU's bits/dim within {error:.0e}"


def require(holds: bool, otherwise: str) -> None:
    """Raise AssertionError with the text, even under python -O."""
    if not holds:
        raise AssertionError(otherwise)


def _digits() -> tuple[AxialTransformer, Tensor]:
    return AxialTransformer.from_pretrained("digits"), torch.from_numpy(data.load("digits", split="test").values[:16])


CHECKS: dict[str, tuple[Callable[[], str], str]] = {
    "network": (check_network, "bits/dim, scores and archives"),
    "archives": (check_archive, "archives from or for other machines"),
    "samples": (check_samples, "samples and completions without --no-compile"),
    "layers": (check_layers, "training, and layers in your network"),
    "processes": (check_processes, "training with several processes"),
    "GPU": (check_gpu, "anything on the CUDA device"),
}
"""Each check, and what cannot be trusted where it fails."""
