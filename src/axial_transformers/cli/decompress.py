"""axial decompress: the files of an archive, with the same values."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from axial_transformers.cli.console import command, say
from axial_transformers.cli.options import Weights, sorted_words
from axial_transformers.progress import bar


@dataclass(frozen=True)
class Decompress:
    """Restore the files of an archive: the same values, names and types.

    Name the model if the archive does not hold it; axial inspect ARCHIVE says which one it needs.

        axial decompress all.axl all.npz
        axial decompress icons.axl restored/
    """

    USAGE: ClassVar[str] = "[MODEL] ARCHIVE OUT [OPTIONS]"

    model: str | Path | None = None
    """The model that compressed the archive, unless this holds it."""
    archive: Path | None = None
    """The .axl file."""
    out: Path | None = None
    """A new folder; or, of one image, an array, a table or a scan, a new file, such as x.png or x.npz."""
    _: KW_ONLY
    salvage: bool = False
    """Write what intact chunks contain, name what is lost, and end with status 1. Lost values of arrays are 0."""
    weights: Weights = "ema"


def main(options: Decompress) -> int:
    """Run the command; return 1 if something is lost."""
    from axial_transformers.compression import decompress_files
    from axial_transformers.compression.restoring import require_target
    from axial_transformers.training.trained_model import open_model

    name, source, out = sorted_words(options.model, options.archive, options.out, "ARCHIVE and OUT")
    archive = Path(source)
    if name is None and archive.is_dir():
        example = command("decompress", archive, out, "restored/")
        raise ValueError(f"{archive} is a folder, and no archive: name the archive and what to write, as in {example}")
    require_target(out)
    lost = decompress_files(
        None if name is None else open_model(name, options.weights, "cpu").model, archive, out,
        salvage=options.salvage, progress=bar("decompressing: chunks"),
    )  # fmt: skip
    print(out)
    if not lost:
        return 0
    say(f"lost, {len(lost)}: {', '.join(lost)}")
    return 1
