"""Measure and draw receptive fields, for docs/explanation/how_the_model_works.md and docs/layers.

    python experiments/masks.py docs/images

A position is in the receptive field of the marked one if the output there depends on it. The last line is JSON: the
number of positions in each receptive field.
"""

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Annotated, Literal

import torch
from cyclopts import Parameter
from torch import Tensor, nn

import axial_transformers as axial
from axial_transformers.layers.initialisation import randomise
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.baselines import AxialResNet, AxialResNetConfig
from of_benchmarks import run_command

SIDE, WIDTH, POSITION = 9, 8, (3, 5)
"""Rows and columns of every grid, width of the layers, and the marked position."""
CELL, GAP, TITLE = 14, 22, 34
"""Pixels of a square, between two grids, and of the two lines above a grid."""


def field_of_layer(layer: nn.Module, marked: tuple[int, int] = POSITION, **given: Tensor) -> Tensor:
    """[SIDE, SIDE]: True where the output at the marked position depends on the input."""
    randomise(layer)
    layer.double().eval()
    x = torch.randn(1, SIDE, SIDE, WIDTH, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x, **given)[0, *marked], x)
    return jacobian[:, 0].abs().amax((0, -1)) > 1e-12


def field_of_context(key_mask: Tensor) -> Tensor:
    """[SIDE, SIDE]: True where the output of cross attention depends on the context."""
    layer = axial.CrossAttention(WIDTH, 2)
    randomise(layer)
    x, context = torch.randn(2, 1, SIDE, SIDE, WIDTH)
    jacobian = torch.autograd.functional.jacobian(lambda context: layer(x, context, key_mask)[0, *POSITION], context)
    return jacobian[:, 0].abs().amax((0, -1)) > 0


def field_of_network(span: int | None) -> Tensor:
    """[SIDE, SIDE]: True where the first features of a residual network depend on a patch of 4 x 4 pixels."""
    config = AxialResNetConfig(
        shape=(4 * SIDE, 4 * SIDE), channels=1, num_classes=2, blocks=(1, 1, 1, 1), width=WIDTH, heads=2, span=span
    )
    network = AxialResNet(config)
    randomise(network)
    network.double().eval()
    x = torch.randn(32, 4 * SIDE, 4 * SIDE, 1, dtype=torch.float64)  # of a maximum, one input has a gradient
    jacobian = torch.autograd.functional.jacobian(lambda x: network.features(x)[0][:, *POSITION].sum(0), x)
    return jacobian.abs().amax((0, 1, -1)).view(SIDE, 4, SIDE, 4).amax((1, 3)) > 0


@torch.no_grad()
def field_of_model(outer_layers: int) -> Tensor:
    """[SIDE, SIDE]: True where the logits at the marked position depend on the value."""
    config = AxialTransformerConfig(
        shape=(SIDE, SIDE), num_values=16, dim=8, heads=2, encoder_layers=0, outer_layers=outer_layers, inner_layers=1
    )
    model = AxialTransformer(config)
    randomise(model)
    model.double()
    x = torch.randint(16, (1, SIDE, SIDE, 1)).expand(SIDE * SIDE, -1, -1, -1).clone()
    logits = model(x[:1])[0, *POSITION]
    x.view(SIDE * SIDE, -1).diagonal().add_(8).remainder_(16)
    return (model(x)[:, *POSITION] - logits).abs().amax((1, 2)).view(SIDE, SIDE) > 1e-12


def attention(**settings) -> Callable[[], Tensor]:
    return lambda: field_of_layer(axial.AxialAttention(WIDTH, 2, **settings))


def line(causal: bool = False, **options) -> Callable[[], Tensor]:
    return lambda: field_of_layer(
        axial.LineAttention(WIDTH, 2, axis=2, causal=causal, options=axial.AttentionOptions(**options))
    )


def block(**settings) -> Callable[[], Tensor]:
    return lambda: field_of_layer(axial.AxialBlock(WIDTH, 2, **settings))


def position_sensitive(*axes: int, **settings) -> Callable[[], Tensor]:
    return lambda: field_of_layer(
        nn.Sequential(*(axial.PositionSensitiveAxialAttention(WIDTH, 2, axis=axis, **settings) for axis in axes))
    )


def full(absent_from: int = SIDE) -> Callable[[], Tensor]:
    return lambda: field_of_layer(axial.FullAttention(WIDTH, 2), key_mask=present(absent_from))


def present(absent_from: int) -> Tensor:
    """[1, SIDE, SIDE]: True in the columns before that one."""
    return (torch.arange(SIDE) < absent_from).expand(1, SIDE, SIDE)


def triangle(node: Literal["starting", "ending"], **settings) -> Callable[[], Tensor]:
    return lambda: field_of_layer(axial.TriangleAttention(WIDTH, 2, node=node), **settings)


IMAGES: dict[str, dict[str, Callable[[], Tensor]]] = {
    "masks": {
        "row": attention(axes=2),
        "column": attention(axes=1),
        "masked row": attention(axes=2, causal=(2,)),
        "masked column": attention(axes=1, causal=(1,)),
        "row, then column": attention(axes=(2, 1)),
        "masked row, then\nmasked column": attention(axes=(2, 1), causal=(1, 2)),
        "inner decoder alone": lambda: field_of_model(outer_layers=0),
        "outer and inner\ndecoder": lambda: field_of_model(outer_layers=2),
    },
    "axial_block": {
        "axes=(2, 1)": block(),
        "axes=(2,)": block(axes=(2,)),
        "causal=(1,)": block(causal=(1,)),
        "window size 5": block(options=axial.AttentionOptions(window=5)),
    },
    "axial_attention": {
        'combine="sequence"': attention(),
        'combine="sum"': attention(combine="sum"),
        "causal=(1,)": attention(causal=(1,)),
        "causal=(1, 2)": attention(causal=(1, 2)),
    },
    "line_attention": {
        "axis=2": line(),
        "causal=True": line(causal=True),
        "window size 5\nwindow=5": line(window=5),
        "window=3,\ndilation=2": line(window=3, dilation=2),
    },
    "position_sensitive_axial_attention": {
        f"axis=1, size={SIDE}": position_sensitive(1, size=SIDE),
        "axis=1, span=5": position_sensitive(1, span=5),
        "axis=1, then 2": position_sensitive(1, 2, size=SIDE),
        "axis=1, then 2,\nspan=5": position_sensitive(1, 2, span=5),
    },
    "full_attention": {"all positions": full(), "key_mask: three\nabsent columns": full(absent_from=6)},
    "cross_attention": {
        "the context": lambda: field_of_context(present(SIDE)),
        "key_mask: three\nabsent columns": lambda: field_of_context(present(6)),
    },
    "triangle_attention": {'node="starting"': triangle("starting"), 'node="ending"': triangle("ending")},
    "axial_resnet": {
        "first features": lambda: field_of_network(span=None),
        "span=3": lambda: field_of_network(span=3),
    },
}
"""The images and their grids, with a title for each."""
UNMARKED = {"cross_attention"}
"""Images of another tensor than the one with the marked position."""


def drawn(fields: dict[str, Tensor], marked: bool) -> str:
    """Return an SVG image: four grids in a row, each with its title above."""
    side = SIDE * CELL
    columns, rows = min(4, len(fields)), -(-len(fields) // 4)
    width, height = columns * (side + GAP) + GAP, rows * (side + GAP + TITLE)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, (title, field) in enumerate(fields.items()):
        left, top = GAP + i % 4 * (side + GAP), TITLE + 6 + i // 4 * (side + GAP + TITLE)
        lines = title.split("\n")
        for j, text in enumerate(lines):
            parts.append(
                f'<text x="{left + side / 2:g}" y="{top - 8 - 15 * (len(lines) - 1 - j)}">{escape(text)}</text>'
            )
        parts.append(f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="#e4e7ec"/>')
        squares = "".join(f"M{left + CELL * x} {top + CELL * y}h{CELL}v{CELL}h-{CELL}z" for y, x in field.nonzero())
        parts.append(f'<path d="{squares}" fill="#5b9bd5"/>')
        marks = range(CELL, side, CELL)
        lattice = "".join(f"M{left + at} {top}v{side}M{left} {top + at}h{side}" for at in marks)
        parts.append(f'<path d="{lattice}" stroke="white"/>')
        if marked:
            y, x = POSITION
            parts.append(
                f'<rect x="{left + CELL * x}" y="{top + CELL * y}" width="{CELL}" height="{CELL}" '
                'fill="none" stroke="#d00000" stroke-width="2.5"/>'
            )
    return "\n".join([*parts, "</svg>", ""])


def main(folder: Annotated[Path, Parameter(help="where to write the images")]) -> None:
    """Draw all images."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, dict[str, int]] = {}
    for name, patterns in IMAGES.items():
        fields = {title: measure() for title, measure in patterns.items()}
        path = folder / ("masks.svg" if name == "masks" else f"field_of_{name}.svg")
        path.write_text(drawn(fields, marked=name not in UNMARKED))
        sizes[name] = {title.replace("\n", " "): int(field.sum()) for title, field in fields.items()}
    print(json.dumps(sizes))


if __name__ == "__main__":
    run_command(main)
