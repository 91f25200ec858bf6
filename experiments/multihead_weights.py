"""Replace the trained nn.MultiheadAttention of a small classifier by AxialAttention, and train on.

    python experiments/multihead_weights.py TRAIN.npz TEST.npz

The files hold gray images of 28x28 with labels, as `public_datasets.py fashion_mnist` writes them. The network has a
grid of 14x14 positions and two residual blocks with attention over all of them. Each row puts another attention in
their place, keeps all other weights, and trains on. Prints a JSON line for each row: the accuracy on test images after
so many steps.
"""

import copy
import json
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import axial_transformers as axial
from axial_transformers.data import Examples, load
from of_benchmarks import now, run_command

DIM, HEADS, SIDE = 64, 4, 14
BATCH, RATE = 32, 2e-3


class Multihead(nn.Module):
    """nn.MultiheadAttention over all positions of a grid [B, H, W, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(DIM, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(1, 2)
        return self.attention(tokens, tokens, tokens, need_weights=False)[0].view_as(x)


class Block(nn.Module):
    """Attention and a feedforward network, each on a layer norm with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention: nn.Module = Multihead()
        self.feedforward = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.feedforward(self.second(x))


class Classifier(nn.Module):
    """Ten logits of images [B, 28, 28, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(4, DIM)
        self.positions = nn.Parameter(torch.randn(SIDE, SIDE, DIM) / 10)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 10))

    def forward(self, images: Tensor) -> Tensor:
        patches = F.pixel_unshuffle(images.movedim(-1, 1) / 255, 2).movedim(1, -1)
        x = self.patches(patches) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


def line_weights(trained: nn.MultiheadAttention, share: float) -> dict[str, Tensor]:
    """Return the weights of a LineAttention that projects as `trained` does, its output times `share`."""
    assert trained.in_proj_weight is not None
    return {
        "qkv.weight": trained.in_proj_weight,
        "qkv.bias": trained.in_proj_bias,
        "out.weight": trained.out_proj.weight * share,
        "out.bias": trained.out_proj.bias * share,
    }


def replaced(model: Classifier, combine: Literal["sequence", "sum"], share: float | None) -> Classifier:
    """Return a copy with axial attention: with the trained weights on both axes, or fresh if `share` is None."""
    model = copy.deepcopy(model)
    for block in model.blocks.children():
        assert isinstance(block, Block)
        layer = axial.AxialAttention(dim=DIM, heads=HEADS, combine=combine)
        if share is not None:
            trained = block.attention.attention
            assert isinstance(trained, nn.MultiheadAttention)
            weights = line_weights(trained, share)
            for line in layer.layers.values():
                line.load_state_dict(weights)
        block.attention = layer
    return model


def accuracy(model: nn.Module, test: Examples, count: int) -> float:
    """Return the share of the first `count` images whose class has the largest logit."""
    right = 0
    with torch.no_grad():
        for start in range(0, count, 250):
            part = test[start : min(start + 250, count)]
            right += int((model(torch.from_numpy(part.values)).argmax(-1) == torch.from_numpy(part.labels)).sum())
    return right / count


def train(model: nn.Module, data: Examples, steps: int, seed: int) -> float:
    """Train by Adam, with a rate that falls along a line to zero. Return the CPU seconds of a step."""
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, steps)
    generator, began = torch.Generator().manual_seed(seed), now()
    for _ in range(steps):
        chosen = torch.randint(len(data), (BATCH,), generator=generator).numpy()
        batch = data[chosen]
        loss = F.cross_entropy(model(torch.from_numpy(batch.values)), torch.from_numpy(batch.labels).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return (now() - began) / steps


def main(
    train_file: str, test_file: str, steps: int = 500, more: tuple[int, ...] = (50, 200), count: int = 1000
) -> None:
    """Print the accuracies of each way to replace attention.

    Args:
        train_file: images and labels.
        test_file: images and labels.
        steps: training of the network with nn.MultiheadAttention.
        more: lengths of the trainings after the replacement, each from the replaced weights.
        count: test images.
    """
    torch.manual_seed(0)
    data, test = load(train_file, split="all"), load(test_file, split="all")
    count = min(count, len(test))
    first = Classifier()
    train(first, data, steps, seed=0)
    rows = {
        "nn.MultiheadAttention": first,
        "sum, half of its weights each": replaced(first, "sum", 0.5),
        "sum, fresh": replaced(first, "sum", None),
        "sequence, its weights": replaced(first, "sequence", 1.0),
        "sequence, fresh": replaced(first, "sequence", None),
    }
    for name, model in rows.items():
        found = {0: accuracy(model, test, count)}
        for length in more:
            longer = copy.deepcopy(model)
            seconds = train(longer, data, length, seed=1)
            found[length] = accuracy(longer, test, count)
        print(json.dumps({"attention": name, "accuracy": found, "step_seconds": round(seconds, 3)}), flush=True)


if __name__ == "__main__":
    run_command(main)
