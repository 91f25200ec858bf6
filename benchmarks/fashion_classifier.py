"""Trains a small axial residual network on Fashion-MNIST and tests it once.

    python benchmarks/fashion_classifier.py fashion_mnist_train.npz fashion_mnist_test.npz

Reached 91.05 % on the 10,000 test images, used once: 811,802 parameters, 5 epochs, 34 minutes on one shared core
(torch 2.13, seed 0). The files hold images uint8 [N, 28, 28] and labels [N]. The last line is JSON.
"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from axial_transformers.baselines import AxialResNet, AxialResNetConfig

Positional = tyro.conf.Positional
NETWORK = AxialResNetConfig(
    shape=(28, 28), channels=1, num_classes=10, blocks=(1, 1, 1, 1), width=16, heads=2, stem_stride=2
)


def read(path: Path) -> tuple[Tensor, Tensor]:
    """Images [N, 28, 28, 1] of mean 0 and deviation about 1, and labels [N]."""
    with np.load(path, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    pictures = torch.from_numpy(images).view(-1, *NETWORK.shape, 1)
    return (pictures.float() / 255 - 0.286) / 0.353, torch.from_numpy(labels).long()


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image is mirrored half of the time, and moved by up to one site along each axis."""
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


def main(
    train: Positional[Path],
    test: Positional[Path],
    epochs: int = 5,
    batch: int = 128,
    rate: float = 3e-3,
    seed: int = 0,
    steps: Annotated[int | None, tyro.conf.arg(help="stop after so many, to try things")] = None,
) -> None:
    """Trains with AdamW on a one-cycle schedule in bfloat16."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    images, labels = read(train)
    model = AxialResNet(NETWORK)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    total = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=total)
    start, step = time.monotonic(), 0
    for epoch in range(epochs):
        model.train()
        mean = 0.0
        for rows in torch.randperm(len(images), generator=generator).split(batch):
            if len(rows) < batch or step == steps:
                break
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(augment(images[rows], generator))
            loss = F.cross_entropy(logits.float(), labels[rows], label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            step += 1
            mean += 0.01 * (loss.item() - mean)
        print(f"epoch {epoch + 1}: loss {mean:.3f}, {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
    result = {
        "accuracy": accuracy(model, *read(test)),
        "minutes": round((time.monotonic() - start) / 60, 1),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "network": asdict(NETWORK),
        "epochs": epochs,
        "batch": batch,
        "rate": rate,
        "seed": seed,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    tyro.cli(main)
