"""axial decompress: the images or the scan of an archive, bit for bit."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from axial_transformers.cli.console import say
from axial_transformers.cli.options import Weights
from axial_transformers.cli.parsing import parse
from axial_transformers.compression.files.file_archive import decompress_files, require_target
from axial_transformers.progress import bar
from axial_transformers.training.trained_model import open_model


@dataclass(frozen=True)
class Decompress:
    """Restore the files of an archive: the same pixels, names and modes.

    For example:
      axial decompress runs/fashion_mnist test.axl test.npz
      axial decompress runs/photos photos.axl restored/
      axial decompress runs/photos photos.axl cat.png --only cat.png
      axial decompress runs/head head.axl head.nii.gz
    """

    model: str | Path
    """The model that compressed the archive: folder of a run or of an exported model, or a hub id."""
    archive: Path
    """The .axl file."""
    output: Path
    """A new folder for images or videos; for one alone, a new file such as x.png or x.mkv; for an array, a new .npz or
    .npy file. A scan takes the suffix that it had, or a folder."""
    _: KW_ONLY
    salvage: bool = False
    """Write what intact chunks contain, and name what is lost."""
    only: str | None = None
    """Restore only the image or video of this name, or the example of this number. A scan is restored whole."""
    most_values: int | None = None
    """Refuse an archive of more values (pixels x channels) than this, to bound the time."""
    weights: Weights = "ema"


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    options = parse(Decompress, argv, "decompress")
    require_target(options.output)
    model = open_model(options.model, options.weights, "cpu").model
    lost = decompress_files(
        model, options.archive, options.output, salvage=options.salvage, only=options.only,
        most_values=options.most_values, progress=bar("chunks"),
    )  # fmt: skip
    if lost:
        say(f"warning: lost, {len(lost)}: {', '.join(lost)}")
    print(options.output)
