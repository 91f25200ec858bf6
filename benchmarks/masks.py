"""Measure and draw the receptive field of each mask, for docs/explanation/how_the_model_works.md.

    pip install axial-transformers[plots]
    python benchmarks/masks.py docs/images/masks.png

A site is in the receptive field of the marked one if the output there depends on it. The last line is JSON: the number
of sites in each receptive field.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import matplotlib.pyplot as plt
import torch
from cyclopts import Parameter
from torch import Tensor, nn

from axial_transformers.layers.attention import AxialAttention
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from command_line import run_command

SIDE, SITE = 7, (3, 3)


def field_of_layer(layer: nn.Module) -> Tensor:
    """[SIDE, SIDE]: True where the output at SITE depends on the input."""
    randomise(layer)
    layer.double()
    x = torch.randn(1, SIDE, SIDE, 8, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x)[0, *SITE], x)
    return jacobian[:, 0].abs().amax((0, -1)) > 1e-12


@torch.no_grad()
def field_of_model(outer_layers: int) -> Tensor:
    """[SIDE, SIDE]: True where the logits at SITE depend on the value."""
    config = AxialTransformerConfig(
        shape=(SIDE, SIDE), num_values=16, dim=8, heads=2, encoder_layers=0, outer_layers=outer_layers, inner_layers=1
    )
    model = AxialTransformer(config)
    randomise(model)
    model.double()
    x = torch.randint(16, (1, SIDE, SIDE, 1)).expand(SIDE * SIDE, -1, -1, -1).clone()
    logits = model(x[:1])[0, *SITE]
    x.view(SIDE * SIDE, -1).diagonal().add_(8).remainder_(16)
    return (model(x)[:, *SITE] - logits).abs().amax((1, 2)).view(SIDE, SIDE) > 1e-12


PATTERNS: dict[str, Callable[[], Tensor]] = {
    "row": lambda: field_of_layer(AxialAttention(8, 2, axes=2)),
    "column": lambda: field_of_layer(AxialAttention(8, 2, axes=1)),
    "masked row": lambda: field_of_layer(AxialAttention(8, 2, axes=2, causal=(2,))),
    "masked column": lambda: field_of_layer(AxialAttention(8, 2, axes=1, causal=(1,))),
    "row, then column": lambda: field_of_layer(AxialAttention(8, 2, axes=(2, 1))),
    "masked row, then\nmasked column": lambda: field_of_layer(AxialAttention(8, 2, axes=(2, 1), causal=(1, 2))),
    "inner decoder alone": lambda: field_of_model(outer_layers=0),
    "outer and inner decoder": lambda: field_of_model(outer_layers=2),
}


def main(out: Annotated[Path, Parameter(help="picture to write")]) -> None:
    """Draws all patterns."""
    torch.manual_seed(0)
    patterns = {name: measure() for name, measure in PATTERNS.items()}
    figure, axes = plt.subplots(2, 4, figsize=(9, 5.2))
    for panel, (name, field) in zip(axes.flat, patterns.items()):
        panel.imshow(field.numpy(), cmap="Blues", vmin=0, vmax=1.6)
        panel.set_title(name, fontsize=10)
        panel.set_xticks([i - 0.5 for i in range(SIDE)], labels=[])
        panel.set_yticks([i - 0.5 for i in range(SIDE)], labels=[])
        panel.grid(color="grey", linewidth=0.4)
        panel.tick_params(length=0)
        panel.add_patch(plt.Rectangle((SITE[1] - 0.5, SITE[0] - 0.5), 1, 1, fill=False, edgecolor="red", linewidth=2))
    figure.tight_layout()
    figure.savefig(out, dpi=90)
    print(json.dumps({name.replace("\n", " "): int(field.sum()) for name, field in patterns.items()}))


if __name__ == "__main__":
    run_command(main)
