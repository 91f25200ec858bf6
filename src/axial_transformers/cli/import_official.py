"""axial import-official: the authors' TensorFlow checkpoints."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from axial_transformers.cli.console import say, working
from axial_transformers.cli.parsing import parse
from axial_transformers.importers.official import PUBLISHED_HEADS, import_official_to


@dataclass(frozen=True)
class ImportOfficial:
    """Convert a TensorFlow checkpoint of the authors' code into a model folder, without TensorFlow.

    For example:
      axial import-official logdir -o models/imagenet32
      axial import-official logdir -o models/imagenet32_raw --raw --verify
    """

    checkpoint: Path
    """Folder of model.ckpt.index and model.ckpt.data-..., with or without its `checkpoint` file."""
    _: KW_ONLY
    output: Annotated[Path, Parameter(alias="-o")]
    """The model folder to write: new, or empty."""
    raw: bool = False
    """Take the raw weights instead of the EMA weights (averaged)."""
    heads: int = PUBLISHED_HEADS
    """Attention heads, which a checkpoint does not record; the published models have 16."""
    channels: int | None = None
    """Channels of a model that stacks its channels as rows, which a checkpoint does not record."""
    verify: bool = False
    """Check the checksum of every tensor, not only that of the index."""


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    options = parse(ImportOfficial, argv, "import-official")
    with working(f"reading {options.checkpoint}"):
        model = import_official_to(
            options.checkpoint,
            options.output,
            raw=options.raw,
            heads=options.heads,
            channels=options.channels,
            verify=options.verify,
        )
    config = model.config
    size = sum(parameter.numel() for parameter in model.parameters())
    say(
        f"{'raw' if options.raw else 'EMA'} weights, {size:,} parameters; data {[*config.shape, config.channels]}; "
        f"layers {config.encoder_layers} + {config.outer_layers} + {config.inner_layers}; width {config.dim}; "
        f"{config.heads} heads (not recorded in a checkpoint: --heads)"
    )
    print(options.output)
