"""axial complete: the missing parts of partly known examples."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

import torch
from cyclopts import Parameter

from axial_transformers.cli.options import (
    Appearance,
    Compile,
    Device,
    Model,
    Precision,
    Reading,
    Source,
    Temperature,
    Weights,
    products_in,
)
from axial_transformers.cli.parsing import command, parse, require_within
from axial_transformers.data import Split
from axial_transformers.data.images import read_mask
from axial_transformers.data.scan_files import suffix_of
from axial_transformers.decoding.sampling import complete, exact_layouts, known_mask, require_room
from axial_transformers.pictures.completions import save_completions
from axial_transformers.pictures.saving import LOSSLESS, require_output, save_examples
from axial_transformers.progress import bar
from axial_transformers.training.trained_model import TrainedModel, open_model

APPROXIMATE = "approximate: values sampled before a known position do not depend on it"


@dataclass(frozen=True)
class Complete:
    """Complete images, clips or sequences that are partly known (inpainting), several times each.

    For example:
      axial complete runs/digits --rows 4
      axial complete runs/photos my_photos/ --rows 16 --count 6 --output completions.png
      axial complete runs/digits --mask mask.png --approximate --only 3 17
      axial complete runs/clips clips_test.npz --frames 1 --output continued.mp4

    Completions are exact samples from p(missing | known) where the known positions come first in the generation order.
    Otherwise an error names layouts where they do.
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
    """An image, white where known; or an .npy file of booleans per position (and channel), true where known."""
    approximate: bool = False
    """Allow any mask. Earlier values then do not depend on the known ones after them."""
    examples: int = 8
    """Number of examples to complete, evenly spaced over the source."""
    only: tuple[str, ...] | None = None
    """Complete these examples instead: positions from 0, or names, such as --only 3 17."""
    label: str | None = None
    """Class of all completions, for class-conditional models: its name or its number. None: no label."""
    data: Reading = Reading()
    count: int = 4
    """Completions of each."""
    output: Path = Path("completions.png")
    """NAME.png: known part, completions and original side by side. NAME.npz, NAME.npy: the completions; for data in
    NIfTI, DICOM or TIFF also NAME.nii, NAME.nii.gz, NAME.tif. For clips also NAME.mp4 and NAME.gif, which play;
    NAME.mkv: the completions, lossless. Only images and movies are replaced."""
    appearance: Annotated[Appearance, Parameter(name="*")] = Appearance()
    seed: int = 0
    """Equal seeds give equal completions."""
    temperature: Temperature = 1.0
    weights: Weights = "ema"
    precision: Precision = "auto"
    device: Device = "auto"
    compile: Compile = None


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    options = parse(Complete, argv, "complete")
    require_within("examples", options.examples, 1)
    require_within("count", options.count, 1)
    options.appearance.check()
    require_within("seed", options.seed, -(2**63))
    trained = options.data.of(open_model(options.model, options.weights, options.device))
    config, appearance, look = trained.model.config, options.appearance, options.appearance.look(trained)
    scan = appearance.scan(options.output, trained)
    require_output(options.output, clips=len(config.shape) == 3, source=options.source, scan=scan)
    label = trained.label(options.label)
    mask = _known_positions(trained, options, argv)
    examples = trained.examples(options.source, options.split)[0]
    known = (examples.spread(options.examples) if options.only is None else examples.named(options.only)).values
    require_room(config, options.count, len(known), appearance.pixels(options.output))
    with products_in(options.precision, trained.model.device):
        filled = complete(
            trained.model,
            torch.from_numpy(known),
            mask=mask,
            count=options.count,
            approximate=options.approximate,
            temperature=options.temperature,
            label=None if label is None else label.expand(len(known)),
            seed=options.seed,
            compile=options.compile,
            progress=bar(f"sampling {options.count} completions of {len(known)} examples"),
        )
    values, scale, fps = filled.cpu().numpy(), appearance.scale, appearance.fps
    if suffix_of(options.output) in LOSSLESS:
        save_examples(options.output, values, look, scale, fps, scan, trained.model.config.floats)
    else:
        note = APPROXIMATE if options.approximate else ""
        save_completions(options.output, known, mask.numpy(), values, look, scale, fps, note)
    print(options.output)


def _known_positions(trained: TrainedModel, options: Complete, argv: Sequence[str]) -> torch.Tensor:
    given = [f"--{name}" for name in ("mask", "rows", "channels", "frames") if getattr(options, name) is not None]
    if len(given) != 1:
        said = " and ".join(given) or "none"
        raise ValueError(f"give exactly one of --mask, --rows, --channels and --frames, not {said}")
    mask = known_mask(
        trained.model,
        mask=None if options.mask is None else torch.from_numpy(read_mask(options.mask)),
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
