"""axial complete: the missing parts of partly known examples."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from axial_transformers.cli.options import Positive, Sampling, Source, Split, products_in
from axial_transformers.progress import bar
from axial_transformers.wording import counted

if TYPE_CHECKING:  # options are read without torch
    import torch

    from axial_transformers.data import Examples
    from axial_transformers.training.trained_model import TrainedModel


@dataclass(frozen=True)
class Complete(Sampling):
    """Complete images, clips or sequences that are partly known (inpainting), several times each.

    Completions are exact samples from p(missing | known) where the known positions come first in the generation order.
    Otherwise an error names layouts where they do.

        axial complete runs/photos my_photos/ --rows 16 --count 6 --out completions.png
        axial complete runs/clips clips_test.npz --frames 1 --out continued.mp4
    """

    source: Source = None
    _: KW_ONLY
    split: Split = None
    rows: int | None = None
    """The first rows are known."""
    frames: int | None = None
    """The first frames are known."""
    mask: Path | None = None
    """An image, opaque where known, or without transparency not black there; or an .npy file of booleans per position
    (and channel), true where known."""
    approximate: bool = False
    """Allow any mask. Earlier values then do not depend on the known ones after them."""
    examples: Positive = 8
    """Number of examples to complete, evenly spaced over the source."""
    only: tuple[str, ...] | None = None
    """Complete these examples instead: names that axial score prints, such as --only 3 17; or, where these are no
    numbers, positions from 0."""
    count: Positive = 4
    """Completions of each."""
    out: Path = Path("completions.png")
    """NAME.png: known part, completions and original side by side. Other files of axial sample: the completions."""


def main(options: Complete) -> None:
    """Run the command."""
    import numpy as np
    import torch

    from axial_transformers.data.scans import moved, suffix_of
    from axial_transformers.data.tiles import corner_of
    from axial_transformers.decoding.sampling import complete, require_room
    from axial_transformers.likelihood.outliers import label_of
    from axial_transformers.pictures.completions import save_completions
    from axial_transformers.pictures.saving import LOSSLESS, require_no_input, require_output, save_examples

    if (options.rows, options.frames, options.mask).count(None) != 2:
        raise ValueError("give one of --rows, --frames and --mask: what is known of an example")
    trained = options.opened()
    config = trained.model.config
    scan = options.scan(options.out, trained)
    look = options.look(trained)
    require_no_input(options.out, [*trained.inputs, options.source, options.mask])
    require_output(options.out, clips=len(config.shape) == 3, scan=scan)
    one_label = None if options.label is None else trained.label(options.label)
    mask = _known_positions(trained, options)
    chosen = _chosen_examples(trained, options)
    known = np.asarray(chosen.values)
    label = label_of(chosen) if one_label is None else one_label.expand(len(known))
    require_room(config, options.count, len(known))
    with products_in(options.precision, trained.model.device):
        filled = complete(
            trained.model,
            torch.from_numpy(known),
            mask=mask,
            count=options.count,
            approximate=options.approximate,
            temperature=options.temperature,
            label=label,
            seed=options.seed,
            progress=bar(f"sampling {options.count} completions of {counted(len(known), trained.kind)}: rows"),
        )
    values = filled.cpu().numpy()
    own = trained.scan(options.source) if scan and len(values) == 1 else None
    if own:
        scan = moved(own, corner_of(chosen.names[0], len(own.axes.replace("C", "")), config.shape))
    if suffix_of(options.out) in LOSSLESS:
        save_examples(options.out, values, look, options.scale, scan, config.floats)
    else:
        save_completions(options.out, known, mask.numpy(), values, look, options.scale)
    print(options.out)


def _chosen_examples(trained: "TrainedModel", options: Complete) -> "Examples":
    """Return the examples to complete; with the labels that the model needs, unless the user says one for all."""
    if options.label is None:
        examples = trained.examples_to_use(options.source, options.split)
    else:
        examples, _ = trained.examples(options.source, options.split)
    return examples.spread(options.examples) if options.only is None else examples.named(options.only)


def _known_positions(trained: "TrainedModel", options: Complete) -> "torch.Tensor":
    import torch

    from axial_transformers.data.images import read_mask
    from axial_transformers.decoding.sampling import known_mask, require_exact

    mask = known_mask(
        trained.model,
        mask=None if options.mask is None else torch.from_numpy(read_mask(options.mask)),
        rows=options.rows,
        frames=options.frames,
    )
    if not options.approximate:
        require_exact(trained.model, mask)
    return mask
