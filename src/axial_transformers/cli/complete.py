"""axial complete: the missing parts of partly known examples."""

import numpy as np
import torch

from axial_transformers.cli.commands import Complete
from axial_transformers.cli.options import products_in
from axial_transformers.data.images import read_mask
from axial_transformers.data.scans import moved, suffix_of
from axial_transformers.data.tiles import corner_of
from axial_transformers.decoding.sampling import complete, exact_layouts, known_mask, require_room
from axial_transformers.likelihood.outliers import label_of
from axial_transformers.pictures.completions import save_completions
from axial_transformers.pictures.saving import LOSSLESS, require_output, save_examples
from axial_transformers.progress import bar
from axial_transformers.training.trained_model import TrainedModel

APPROXIMATE = "approximate: values sampled before a known position do not depend on it"


def main(options: Complete) -> None:
    """Run the command."""
    trained = options.opened()
    config, scan, look = trained.model.config, options.scan(options.output, trained), options.look(trained)
    require_output(options.output, clips=len(config.shape) == 3, source=options.source, scan=scan)
    one_label = None if options.label is None else trained.label(options.label)
    mask = _known_positions(trained, options)
    if one_label is None:
        examples = trained.examples_to_use(options.source, options.split)
    else:
        examples, _ = trained.examples(options.source, options.split)
    chosen = examples.spread(options.examples) if options.only is None else examples.named(options.only)
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
            progress=bar(f"sampling {options.count} completions of {len(known)} examples"),
        )
    values = filled.cpu().numpy()
    if scan and len(values) == 1 and (own := trained.scan(options.source)):
        scan = moved(own, corner_of(chosen.names[0], len(own.axes.replace("C", "")), config.shape))
    if suffix_of(options.output) in LOSSLESS:
        save_examples(options.output, values, look, options.scale, scan, trained.model.config.floats)
    else:
        save_completions(options.output, known, mask.numpy(), values, look, options.scale)
    print(options.output)


def _known_positions(trained: TrainedModel, options: Complete) -> torch.Tensor:
    mask = known_mask(
        trained.model,
        mask=None if options.mask is None else torch.from_numpy(read_mask(options.mask)),
        rows=options.rows,
        frames=options.frames,
    )
    layout = trained.model.config.layout
    exact = exact_layouts(trained.model, mask)
    if not options.approximate and layout not in exact:
        would = f"models of layout {' or '.join(exact)} are" if exact else "no layout is"
        raise ValueError(
            f"what is known does not come first in generation order with layout {layout}, so the completions would "
            f"not be exact ({would}); for {APPROXIMATE}, add --approximate"
        )
    return mask
