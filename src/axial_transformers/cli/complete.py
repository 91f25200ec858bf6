"""axial complete: the missing parts of partly known examples."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from cyclopts import Parameter
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.cli.options import Compile, Device, Model, Reading, Source, Temperature, Weights
from axial_transformers.cli.output_files import Appearance, check_output, require_other_file, require_room, save
from axial_transformers.cli.parsing import command, parse, require_within
from axial_transformers.cli.trained_model import TrainedModel, chosen, label_of, limited, open_model
from axial_transformers.data import Split, picture_files
from axial_transformers.data.npy import read_array
from axial_transformers.decoding.sampling import complete, exact_layouts, known_mask
from axial_transformers.pictures import MOVIES, for_display, save_movie, window_of
from axial_transformers.pictures.completions import completion_sheet
from axial_transformers.pictures.grids import below
from axial_transformers.progress import bar
from axial_transformers.storage.files import written_whole

APPROXIMATE = "approximate: values drawn before a known site do not depend on it"


@dataclass(frozen=True)
class Complete:
    """Complete images, clips or sequences that are partly known, several times each.

    For example:
      axial complete runs/digits --rows 4
      axial complete runs/photos my_photos/ --rows 16 --count 6 --output completions.png
      axial complete runs/digits --mask mask.png --approximate --only 3 17
      axial complete runs/clips clips_test.npz --frames 1 --output continued.mp4

    Completions are exact draws from p(missing | known) where the known sites come first in the model's generation
    order; otherwise an error names the layouts for which they would be.
    """

    model: Model
    source: Source = None
    _: KW_ONLY
    split: Split | None = None
    """Part of the data; as for axial evaluate."""
    rows: int | None = None
    """The first rows are known."""
    channels: int | None = None
    """The first channels are known."""
    frames: int | None = None
    """The first frames are known."""
    mask: Path | None = None
    """A picture, white where known; or an .npy file of booleans, one per site (or one per site and channel), true where
    known."""
    approximate: bool = False
    """Allow any mask: known sites keep their values, but values drawn before them do not depend on them."""
    examples: int = 8
    """Complete so many examples of the source, evenly spaced over it: neighbours are often tiles of one picture."""
    only: tuple[str, ...] | None = None
    """Complete these examples instead: positions from 0, or names, such as --only 3 17."""
    label: str | None = None
    """Class of all completions, for class-conditional models: its name or its number. None: no label is given."""
    data: Reading = Reading()
    count: int = 4
    """Completions of each."""
    output: Path = Path("completions.png")
    """NAME.png: the known part, its completions and the original side by side; of clips, one strip of frames per row.
    NAME.npz: the completions. Of clips also NAME.mp4 and NAME.gif: the same side by side, playing; NAME.mkv: the
    completions, lossless, one after the other. An .npz or .mkv that exists is not replaced."""
    appearance: Annotated[Appearance, Parameter(name="*")] = Appearance()
    seed: int = 0
    """Equal seeds draw equal completions."""
    temperature: Temperature = 1.0
    weights: Weights = "ema"
    device: Device = "auto"
    compile: Compile = None


def main(argv: Sequence[str]) -> None:
    """Runs the command."""
    options = parse(Complete, argv, "complete")
    for name, number in (("examples", options.examples), ("count", options.count), ("fps", options.appearance.fps)):
        require_within(name, number, 1)
    require_within("seed", options.seed, -(2**63))
    trained = options.data.of(open_model(options.model, options.weights, options.device))
    require_other_file(options.output, options.source)
    check_output(options.output, trained.model.config, options.appearance.scale, folder=False)
    label = label_of(trained, options.label)
    mask = _known_sites(trained, options, argv)
    examples = trained.examples(options.source, options.split)[0]
    known = (limited(examples, options.examples) if options.only is None else chosen(examples, options.only)).values
    require_room(options.count, options.output, trained.model.config, options.appearance.scale or 1, inputs=len(known))
    filled = complete(
        trained.model,
        torch.from_numpy(known),
        mask=mask,
        count=options.count,
        approximate=options.approximate,
        temperature=options.temperature,
        label=None if label is None else label.expand(len(known)),
        generator=torch.Generator().manual_seed(options.seed),
        compile=options.compile,
        progress=bar(f"drawing {options.count} completions of {len(known)} examples"),
    )
    _save(known, mask.numpy(), filled.cpu().numpy(), trained, options)
    print(options.output)


def _known_sites(trained: TrainedModel, options: Complete, argv: Sequence[str]) -> torch.Tensor:
    """The mask [*A, C], true where known.

    Raises:
        ValueError: not exactly one option says what is known, or it does not come first in the model's order.
    """
    given = [f"--{name}" for name in ("mask", "rows", "channels", "frames") if getattr(options, name) is not None]
    if len(given) != 1:
        said = " and ".join(given) or "none"
        raise ValueError(f"give exactly one of --mask, --rows, --channels and --frames, not {said}")
    mask = known_mask(
        trained.model,
        mask=None if options.mask is None else _read_mask(options.mask),
        rows=options.rows,
        channels=options.channels,
        frames=options.frames,
    )
    layout = trained.model.config.layout
    exact = exact_layouts(trained.model, mask)
    if not options.approximate and layout not in exact:
        would = f"models of layout {' or '.join(exact)} are" if exact else "no layout is"
        raise ValueError(
            f"what {given[0]} says is known does not come first in generation order with layout {layout}, so the "
            f"completions would not be exact ({would}); allow {APPROXIMATE.replace(':', ' ones, where', 1)} with: "
            f"{command('complete', *argv, '--approximate')}"
        )
    return mask


def _read_mask(path: Path) -> torch.Tensor:
    if path.suffix.lower() in picture_files.SUFFIXES and path.is_file():
        with picture_files.opened(path) as picture:
            return torch.from_numpy(np.asarray(picture_files.upright(path, picture).convert("L")) >= 128)
    if path.suffix != ".npy" or not path.is_file():
        raise ValueError(f"--mask {path} is neither an .npy file nor a picture")
    mask = read_array(path, "arr_0")
    if mask.dtype != np.bool_:
        raise ValueError(f"--mask {path} holds {mask.dtype}, not booleans")
    return torch.from_numpy(mask)


def _save(
    known: NDArray[np.uint8],
    mask: NDArray[np.bool_],
    filled: NDArray[np.integer],
    trained: TrainedModel,
    options: Complete,
) -> None:
    if options.output.suffix in (".npz", ".mkv"):
        save(options.output, filled, trained, options.appearance)
        return
    values, uint16 = trained.model.config.num_values, trained.uint16
    look = options.appearance
    window = window_of(known, values, uint16)
    show = partial(for_display, num_values=values, uint16=uint16, palette=look.palette, window=window)

    def page(at: int | slice, strips: bool | None) -> Image.Image:
        drawn = completion_sheet(known[:, at], mask[at], filled[:, at], show, scale=look.scale, strips=strips)
        return below(drawn, APPROXIMATE) if options.approximate else drawn

    if options.output.suffix in MOVIES:
        frames = (page(t, strips=False) for t in range(len(mask)))
        save_movie(options.output, np.stack([np.asarray(frame) for frame in frames]), look.fps)
    else:
        with written_whole(options.output) as aside:
            page(slice(None), strips=True if known.ndim == 5 else None).save(aside, format="PNG")
