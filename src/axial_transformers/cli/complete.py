"""axial complete: what is known in part, made whole."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from axial_transformers.cli.colours import sheet, unseen
from axial_transformers.cli.console import show_log
from axial_transformers.cli.parsing import Flag, Positional, either, parse
from axial_transformers.cli.runs import TrainedModel, Weights, open_model
from axial_transformers.data import MOVIES, Examples, Split, for_display, save_arrays, save_clips, save_movie
from axial_transformers.data.npy import read_array
from axial_transformers.decoding.sampling import complete, known_mask
from axial_transformers.progress import bar
from axial_transformers.storage.files import written_whole

APPROXIMATE = "approximate: what is drawn before a known site has not heard it"
LETTER = (7, 14)
"""Width and height of a letter in a caption, in pixels."""


@dataclass(frozen=True, kw_only=True)
class Complete:
    """Finish images, clips or sequences that are known in part, several times each.

    axial complete runs/digits --rows 4
    axial complete runs/photos my_photos/ --rows 16 --count 6 --output completions.png
    axial complete runs/digits --mask mask.npy --approximate
    axial complete runs/clips clips_test.npz --frames 1 --output continued.mp4

    Exact where the known sites come first in the model's order; otherwise an error names the layouts for which it is.
    """

    model: Positional[str]
    """Folder of a run or an exported model, or a hub id."""
    source: Positional[str | None] = None
    """Folder, array, video or TFRecord file, or digits. None: the data that the run was trained on."""
    split: Split | None = None
    """Which part of the data; as for axial evaluate."""
    rows: int | None = None
    """The first rows are known."""
    channels: int | None = None
    """The first channels are known."""
    frames: int | None = None
    """The first frames are known."""
    mask: Path | None = None
    """An .npy file of booleans, one a site (or one a site and channel), true where known."""
    approximate: bool = False
    """Allow any mask: known sites are forced when their turn comes, what is drawn before them has not heard them."""
    examples: int = 8
    """How many of the source's examples, from the first."""
    count: int = 4
    """Completions of each."""
    output: Path = Path("completions.png")
    """NAME.png: what is known, its completions, and the whole, side by side; of clips one strip of frames a row.
    NAME.npz: the completions. Of clips also NAME.mp4 and NAME.gif: the same side by side, playing; NAME.mkv: the
    completions, lossless, one after the other."""
    scale: int = 4
    """Enlargement of the picture."""
    fps: int = 8
    """Frames a second of a movie."""
    seed: int = 0
    """Equal seeds draw equal completions."""
    temperature: float = 1.0
    """1 draws from the model, less is more cautious, 0 takes the most likely value of every site."""
    weights: Weights = "ema"
    """The running average of the weights, or the raw ones of the newest checkpoint."""
    device: str = "auto"
    """cuda, cuda:1, cpu, ...; auto takes CUDA if there is any."""
    compile: Flag = False
    """Compile the decoding, however little there is to do."""
    no_compile: Flag = False
    """Do not compile it, however much there is. With neither flag: where it pays."""


def main(argv: Sequence[str]) -> None:
    """Runs the verb."""
    options = parse(Complete, argv, "complete")
    if options.output.suffix not in (".png", ".npz", *MOVIES):
        raise ValueError(f"--output {options.output} is neither NAME.png, NAME.npz, NAME.mp4, NAME.gif nor NAME.mkv")
    if options.examples < 1 or options.count < 1:
        raise ValueError("--examples and --count must be at least 1")
    compiled = either(options.compile, options.no_compile, "compile")
    trained = open_model(options.model, options.weights, options.device)
    if options.output.suffix in MOVIES and len(trained.model.config.shape) != 3:
        raise ValueError(f"--output {options.output}: this model is not of clips (frames, height, width)")
    examples = trained.examples(options.source, options.split)[0][: options.examples]
    mask = known_mask(
        trained.model,
        mask=None if options.mask is None else _read_mask(options.mask),
        rows=options.rows,
        channels=options.channels,
        frames=options.frames,
    )
    show_log()
    filled = complete(
        trained.model,
        torch.from_numpy(examples.values),
        mask=mask,
        count=options.count,
        approximate=options.approximate,
        temperature=options.temperature,
        generator=torch.Generator().manual_seed(options.seed),
        compile=compiled,
        progress=bar(f"drawing {options.count} completions of {len(examples)} examples"),
    )
    _save(filled.cpu().numpy(), trained, examples, mask.numpy(), options)
    print(options.output)


def _save(
    filled: NDArray[np.integer],
    trained: TrainedModel,
    examples: Examples,
    mask: NDArray[np.bool_],
    options: Complete,
) -> None:
    values = examples.values
    if options.output.suffix == ".npz":
        save_arrays(options.output, filled, uint16=trained.uint16)
    elif options.output.suffix == ".mkv":
        num_values = trained.model.config.num_values
        save_clips(options.output, filled, num_values=num_values, uint16=trained.uint16, fps=options.fps)
    elif options.output.suffix in MOVIES:
        pages = [
            _page(trained, values[:, t], mask[t], filled[:, t], options.count + 2, options) for t in range(len(mask))
        ]
        save_movie(options.output, np.stack([np.asarray(page) for page in pages]), options.fps)
    else:
        columns = 1 if values.ndim == 5 else options.count + 2
        page = _page(trained, values, mask, filled, columns, options)
        with written_whole(options.output) as aside:
            page.save(aside, format="PNG")


def _read_mask(path: Path) -> torch.Tensor:
    if path.suffix != ".npy" or not path.is_file():
        raise ValueError(f"--mask {path} is no .npy file")
    mask = read_array(path, "arr_0")
    if mask.dtype != np.bool_:
        raise ValueError(f"--mask {path} holds {mask.dtype}, not booleans")
    return torch.from_numpy(mask)


def _page(
    trained: TrainedModel,
    known: NDArray[np.uint8],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    columns: int,
    options: Complete,
) -> Image.Image:
    """Of each example what is known, its completions, the whole. With a caption if they are approximate."""
    values = trained.model.config.num_values
    hidden = for_display(mask[None].astype(np.uint8), num_values=2)[0] < 255
    if hidden.ndim == 3:
        hidden = hidden.all(axis=-1)  # a pixel of which some channels are known is shown as it is
    whole = _opaque(for_display(known, values, trained.uint16))
    drawn = _opaque(for_display(filled, values, trained.uint16)).reshape(len(known), options.count, *whole.shape[1:])
    tiles = np.concatenate([unseen(whole, hidden)[:, None], drawn, whole[:, None]], axis=1)
    grid = sheet(tiles.reshape(-1, *whole.shape[1:]), columns=columns, scale=options.scale, gap=options.scale)
    lines = textwrap.wrap(APPROXIMATE, max(10, grid.width // LETTER[0])) if options.approximate else []
    page = Image.new("RGB", (grid.width, grid.height + LETTER[1] * len(lines)), "white")
    page.paste(grid, mask=grid)
    ImageDraw.Draw(page).multiline_text((2, grid.height), "\n".join(lines), fill="black", spacing=2)
    return page


def _opaque(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Gray [N, H, W] or RGB [N, H, W, 3] pictures as RGBA [N, H, W, 4]."""
    if pictures.ndim == 3:
        pictures = np.repeat(pictures[..., None], 3, axis=-1)
    return np.concatenate([pictures, np.full_like(pictures[..., :1], 255)], axis=-1)
