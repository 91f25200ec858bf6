"""Trains a small axial residual network on Fashion-MNIST, once a seed, and tests each once.

    python experiments/fashion_classifier.py fashion_mnist_train.npz fashion_mnist_test.npz

Settings are chosen with `--held-out 10000`: the last training images stand for the test images, which are not read.
The files hold images uint8 [N, 28, 28] and labels [N]. The last line is JSON.
"""

import json
import time
from dataclasses import asdict
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from cyclopts import Parameter
from torch import Tensor

from axial_transformers.models.baselines import AxialResNet, AxialResNetConfig
from of_benchmarks import dtypes, run_command


def read(path: Path) -> tuple[Tensor, Tensor]:
    """Images [N, 28, 28, 1] of mean 0 and deviation about 1, and labels [N]."""
    with np.load(path, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    pictures = torch.from_numpy(images).view(-1, 28, 28, 1)
    return (pictures.float() / 255 - 0.286) / 0.353, torch.from_numpy(labels).long()


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image is mirrored half of the time, and moved by up to one position along each axis."""
    n, size = len(images), images.shape[1]
    flip = torch.rand(n, generator=generator) < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(2), images)
    padded = F.pad(images, (0, 0, 1, 1, 1, 1), value=float(images.min()))
    rows, columns = (torch.arange(size) + torch.randint(3, (n, 1), generator=generator) for _ in range(2))
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


@torch.no_grad()
def accuracy(model: AxialResNet, images: Tensor, labels: Tensor) -> float:
    model.eval()
    hits = sum(int((model(x).argmax(-1) == y).sum()) for x, y in zip(images.split(500), labels.split(500)))
    return hits / len(labels)


def train_one(
    data: tuple[Tensor, Tensor], network: AxialResNetConfig, epochs: int, batch: int, rate: float, seed: int
) -> AxialResNet:
    """Trains with AdamW on a one-cycle schedule, in bfloat16 where the processor has instructions."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    images, labels = data
    model = AxialResNet(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    total = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=total)
    for epoch in range(epochs):
        model.train()
        average, start = 0.0, time.process_time()
        for rows in torch.randperm(len(images), generator=generator).split(batch):
            if len(rows) < batch:
                break
            with torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in dtypes()):
                logits = model(augment(images[rows], generator))
            loss = F.cross_entropy(logits.float(), labels[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            average += 0.01 * (loss.item() - average)
        minutes = (time.process_time() - start) / 60
        print(f"seed {seed}, epoch {epoch + 1}: loss {average:.3f}, {minutes:.1f} minutes", flush=True)
    return model


def main(
    train: Path,
    test: Path,
    width: int = 16,
    heads: int = 1,
    epochs: int = 2,
    batch: int = 64,
    rate: float = 3e-3,
    seeds: tuple[int, ...] = (0, 1, 2),
    held_out: Annotated[int, Parameter(help="test on the last N training images, not on `test`")] = 0,
) -> None:
    """Prints each seed's accuracy, their mean and its standard error, and minutes of processor time."""
    network = AxialResNetConfig(
        shape=(28, 28), channels=1, num_classes=10, blocks=(1, 1, 1, 1), width=width, heads=heads, stem_stride=2
    )
    data = read(train)
    tested = tuple(part[-held_out:] for part in data) if held_out else read(test)
    data = tuple(part[: len(part) - held_out] for part in data)
    start, found = time.process_time(), []
    for seed in seeds:
        model = train_one(data, network, epochs, batch, rate, seed)
        found.append(accuracy(model, *tested))
        print(
            f"seed {seed}: {found[-1]:.4f} of {len(tested[0])} {'held-out' if held_out else 'test'} images", flush=True
        )
    result: dict[str, Any] = {
        "accuracy": round(mean(found), 4),
        "standard error": round(stdev(found) / sqrt(len(found)), 4) if len(found) > 1 else None,
        "of each seed": dict(zip(seeds, found)),
        "tested on": f"{len(tested[0])} {'held-out training' if held_out else 'test'} images",
        "minutes": round((time.process_time() - start) / 60, 1),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "network": asdict(network),
        "epochs": epochs,
        "batch": batch,
        "rate": rate,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    run_command(main)
