"""From arrays to the HTML of the page."""

import base64
import io
import tempfile
from html import escape
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.likelihood.bits import bits_map, bits_per_dim
from axial_transformers.likelihood.outliers import RankBy, Scores, share_below
from axial_transformers.pictures import for_display, image_grid, save_clips, save_movie
from axial_transformers.pictures.completions import completion_sheet
from axial_transformers.pictures.display import HEAT, with_alpha
from axial_transformers.pictures.grids import above, enlargement, gap_of, sheet, with_scale
from axial_transformers.pictures.heat_maps import heat_colours, hottest, laid_over, under_examples
from axial_transformers.studio.actions import sampled_early
from axial_transformers.studio.studio_model import StudioModel

MAX_ROWS = 200
THUMBNAIL = 64


def described(studio: StudioModel) -> str:
    """Return the model and its data."""
    parameters = sum(weight.numel() for weight in studio.model.parameters())
    data = "none" if studio.examples is None else f"{len(studio.examples):,}"
    named = {"model": studio.name, "parameters": f"{parameters:,}"}
    rows = {**named, **studio.model.config.describe(), "examples": data}
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows.items())
    return f'<h1>Studio: {escape(studio.name)}</h1><dl class="facts">{facts}</dl>'


def thumbnails(studio: StudioModel, values: NDArray[np.integer]) -> list[Image.Image]:
    """Return a small image of each example [N, *A, C]."""
    return [_small(picture) for picture in displayed(studio, values)]


def to_paint(studio: StudioModel, example: NDArray[np.integer]) -> tuple[NDArray[np.uint8], int]:
    """Return the enlarged image of an example [*A, C] to paint on, and its scale."""
    picture = displayed(studio, example[None])[0]
    scale = enlargement(picture.shape[1], picture.shape[0])
    return picture.repeat(scale, 0).repeat(scale, 1), scale


def displayed(studio: StudioModel, values: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Return examples [N, *A, C] as images [N, H, W] or [N, H, W, 3]."""
    return for_display(values, studio.look)


def samples(studio: StudioModel, values: NDArray[np.integer]) -> str:
    """Return samples [N, *A, C] as a grid, clips as one that plays."""
    what = f"{len(values)} samples"
    if not studio.are_clips:
        return _picture(image_grid(values, look=studio.look), what, "samples")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.mp4"
        columns = max(1, round(len(values) ** 0.5))
        save_clips(path, values, columns, None, studio.look, studio.fps)
        return _player(path, what)


def completions(
    studio: StudioModel, example: NDArray[np.integer], erased: NDArray[np.bool_], values: NDArray[np.integer]
) -> str:
    """Return completions [N, *A, C] of an example [*A, C] beside its known part and the whole."""
    known = ~np.broadcast_to(erased[..., None], example.shape)
    early = np.asarray(sampled_early(studio.model, known).any(axis=-1))
    text = "Exact samples: every known value comes before the erased ones in the model's order."
    if early.any():
        text = (
            f"Approximate: the model samples in a fixed order. {int(early.sum()):,} of {int(erased.sum()):,} erased"
            " positions, marked red, come before a known one and cannot take it into account."
        )
    look = studio.look.over(example[None])

    def page(chosen: slice | int, strips: bool | None) -> Image.Image:
        given, filled = example[None, chosen], values[:, chosen]
        return completion_sheet(given, known[chosen], filled, look, marked=early[chosen], strips=strips)

    every, clips = slice(None), studio.are_clips
    parts = [f"<p><strong>{escape(text)}</strong></p>"]
    if clips:
        frames = [np.asarray(page(frame, False)) for frame in range(len(example))]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "completions.mp4"
            save_movie(path, np.stack(frames), studio.fps)
            parts.append(_player(path, f"{len(values)} completions, playing"))
    parts.append(
        _picture(page(every, True if clips else None), f"{len(values)} completions beside the original", "completions")
    )
    return "\n".join(parts)


def bits(studio: StudioModel, example: NDArray[np.integer], label: int | None = None, opacity: float = 0.6) -> str:
    """Return the bits of each position of an example [*A, C], over its image and beside it."""
    model, x = studio.model, torch.from_numpy(example[None])
    given = None if label is None else torch.tensor([label])
    total, costs = bits_per_dim(model, x, given).item(), bits_map(model, x, given).cpu().numpy()
    if example.ndim == 2:
        page = under_examples(example[None], costs, studio.look)
    else:
        plain, heat = with_alpha(displayed(studio, example[None])), heat_colours(costs, studio.look)
        tiles = np.concatenate([plain, laid_over(plain, heat, opacity), heat])
        columns = 1 if studio.are_clips else 3
        height, width = plain.shape[1:3]
        scale = enlargement(columns * width, 3 // columns * height)
        page = sheet(tiles, columns=columns, scale=scale, gap=gap_of(scale))
        if columns == 3:
            page = above(page, [("picture", 1 / 6), ("bits over it", 1 / 2), ("bits", 5 / 6)])
        page = with_scale(page, HEAT, hottest(model.config.num_values), "bits")
    text = f"<p><strong>{total:.4f} bits/dim</strong>, the mean of all positions; colours are means of channels.</p>"
    return text + _picture(page, "bits of each position", "bits")


def ranking(
    studio: StudioModel,
    values: NDArray[np.integer],
    names: list[str],
    scores: Scores,
    typical: Scores | None,
    by: RankBy,
    why: str,
) -> str:
    """Return a table of examples [N, *A, C], highest score first, and why it is ranked by this one."""
    score = scores.by(by, typical)
    order = np.argsort(-score, kind="stable")[:MAX_ROWS]
    chosen = values[order]
    costs = bits_map(studio.model, torch.from_numpy(chosen)).cpu().numpy()
    num_values = studio.model.config.num_values
    pictures, heat = displayed(studio, chosen), heat_colours(costs, studio.look)
    heads = ["", "picture", "bits of each position", "name", "bits/dim"]
    heads += ["less PNG"] * (scores.corrected is not None) + ["above"] * (typical is not None)
    above_data = None if typical is None else share_below(typical.by(by), score)
    rows = list[str]()
    for rank, i in enumerate(order):
        cells = [
            str(rank + 1),
            _image(_small(pictures[rank]), names[i]),
            _image(_small(heat[rank]), f"bits of {names[i]}"),
            escape(names[i]),
            f"{scores.bits[i]:.4f}",
        ]
        cells += [] if scores.corrected is None else [f"{scores.corrected[i]:+.4f}"]
        cells += [] if above_data is None else [f"{above_data[i]:.1%} of the data"]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    more = f"<p>{len(values) - len(order):,} more are not shown.</p>" * (len(values) > len(order))
    head = "".join(f"<th>{name}</th>" for name in heads)
    gradient = f'<i style="background:linear-gradient(90deg,{",".join(HEAT)})"></i>'
    colours = f'<div class="scale">0 bits {gradient} {hottest(num_values)} bits or more</div>'
    said = f"<p>Ranked by {by}: {escape(why)}.</p>"
    return f'{said}<table class="ranking"><tr>{head}</tr>{"".join(rows)}</table>{more}{colours}'


def _small(picture: NDArray[np.uint8]) -> Image.Image:
    scale = enlargement(picture.shape[1], picture.shape[0], THUMBNAIL)
    return Image.fromarray(picture.repeat(scale, 0).repeat(scale, 1))


def _picture(picture: Image.Image, what: str, name: str) -> str:
    element = _image(picture.convert("RGB"), what)
    return _figure(element, element.split('"')[1], what, f"{name}.png")


def _player(movie: Path, what: str) -> str:
    address = f"data:video/mp4;base64,{base64.b64encode(movie.read_bytes()).decode()}"
    element = f'<video src="{address}" controls loop autoplay muted playsinline aria-label="{escape(what)}"></video>'
    return _figure(element, address, what, movie.name)


def _figure(element: str, address: str, what: str, name: str) -> str:
    caption = f'{escape(what)} (<a href="{address}" download="{name}">save</a>)'
    return f"<figure>{element}<figcaption>{caption}</figcaption></figure>"


def _image(picture: Image.Image, what: str) -> str:
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{escape(what)}">'
