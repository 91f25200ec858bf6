"""axial import-official: the authors' TensorFlow checkpoints."""

from axial_transformers.cli.commands import ImportOfficial
from axial_transformers.cli.console import say
from axial_transformers.importers.official import import_official_to


def main(options: ImportOfficial) -> None:
    """Run the command."""
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
