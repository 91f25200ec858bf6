"""axial import-official: the authors' TensorFlow checkpoints."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path


@dataclass(frozen=True)
class ImportOfficial:
    """Convert the authors' TensorFlow checkpoints into model folders, without TensorFlow.

    For example:

        axial import-official logdir --out models/imagenet32
    """

    checkpoint: Path
    """Folder of model.ckpt.index and model.ckpt.data-..., with or without its `checkpoint` file."""
    _: KW_ONLY
    out: Path
    """The model folder to write: new, or empty."""
    raw: bool = False
    """Take the raw weights instead of the EMA weights (averaged)."""
    heads: int = 16
    """Attention heads, which a checkpoint does not record; the published models have 16."""
    channels: int | None = None
    """Channels of a model that stacks its channels as rows, which a checkpoint does not record."""
    verify: bool = False
    """Check the checksum of every tensor, not only that of the index."""


def main(options: ImportOfficial) -> None:
    """Run the command."""
    from axial_transformers.importers.official import import_official_to

    import_official_to(**vars(options))
    print(options.out)
