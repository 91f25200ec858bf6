"""axial score: bits/dim of each image, and how unusual it is."""

import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from cyclopts import Parameter

from axial_transformers.cli.console import printable, rank_zero_output
from axial_transformers.cli.options import (
    BatchSize,
    Device,
    Model,
    Precision,
    Reading,
    Shades,
    Source,
    Weights,
    products_in,
)
from axial_transformers.cli.parsing import parse, require_within
from axial_transformers.data import Split
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.outliers import auroc, rows_of, score
from axial_transformers.pictures.heat_maps import save_scores
from axial_transformers.pictures.saving import require_scores, write_csv
from axial_transformers.progress import bar
from axial_transformers.training.processes import processes_on
from axial_transformers.training.trained_model import open_model


@dataclass(frozen=True)
class Score:
    """Bits/dim of every image, least likely first, to find anomalies.

    For example:
      axial score runs/digits
      axial score runs/photos new_photos/ --output scores.csv --heat-maps maps/
      axial score models/photos32 large_photos/ --data.fit tiles --data.size 32
      axial score runs/fashion_mnist fashion_mnist_test.npz --against mnist_t10k.npz

    There are two scores: the model's bits/dim, and the complexity-corrected score, which subtracts the bits/dim of the
    image as PNG (Serrà et al. 2020). Simple images have a high likelihood whatever they show (Nalisnick et al. 2019).
    --against measures how well each score tells two sources apart: the AUROC, 0.5 for not at all, 1 for perfectly. For
    tiles, each row also has the mean over its image, `picture_bits_per_dim`.
    """

    model: Model
    source: Source = None
    _: KW_ONLY
    split: Split | None = None
    """Part of the data; as for axial evaluate."""
    output: Path | None = None
    """NAME.csv or NAME.json: the scores of all images. None: print the `top` least likely as CSV."""
    heat_maps: Path | None = None
    """A new folder for heat maps of the `top` least likely images: the bits of each position. Of volumes: as colours
    over the slices through the position of the most bits, and as an array: .npy, or as NIfTI or TIFF like the data."""
    shades: Annotated[Shades, Parameter(name="*")] = Shades()
    top: int = 20
    """Number of the least likely images that are printed and shown."""
    limit: int | None = None
    """Number of examples to score of each source, evenly spaced over it."""
    data: Reading = Reading()
    against: str | Path | None = None
    """Another source, whose images the scores should tell from those of the first."""
    weights: Weights = "ema"
    batch_size: BatchSize = 64
    precision: Precision = "auto"
    device: Device = "auto"


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    with rank_zero_output():
        options = parse(Score, argv, "score")
        require_within("top", options.top, 1)
        require_within("limit", options.limit, 1)
        require_within("batch-size", options.batch_size, 1)
        require_scores(options.output, options.heat_maps)
        processes = processes_on(options.device)
        products = products_in(options.precision, processes.device)
    with processes, products:
        with rank_zero_output():
            trained = options.data.of(open_model(options.model, options.weights, str(processes.device)))
            look = options.shades.look(trained)
            scan = trained.scan(options.source) if options.heat_maps else None
            sources = [(options.source, options.split)] + ([(options.against, "all")] if options.against else [])
            parts = [trained.examples(*source)[0].spread(options.limit)[:] for source in sources]
        found = [
            score(trained.model, part.values, options.batch_size, bar("bits/dim"), processes.fill) for part in parts
        ]
    if not processes.rank_zero:
        return
    examples, scores = parts[0], found[0]
    order = np.argsort(-scores.bits, kind="stable")
    rows = rows_of(scores, examples.names)
    ranked = [{"rank": rank, **rows[i]} for rank, i in enumerate(order, start=1)]
    shown = examples[order[: options.top]]
    maps = (bits_map(trained.model, torch.from_numpy(values[None]))[0].cpu().numpy() for values in shown.values)
    with products:
        named = zip(shown.names, shown.values, maps, strict=True)
        save_scores(options.output, ranked, options.heat_maps, named, look, scan)
    if options.output:
        print(options.output)
    else:
        write_csv(sys.stdout, ranked[: options.top])
    if options.against:
        print(f"AUROC of {len(parts[1]):,} images of {printable(options.against)} against these {len(examples):,}:")
        print(f"  {auroc(scores.bits, found[1].bits):.4f}  by bits_per_dim")
        print(f"  {auroc(scores.corrected, found[1].corrected):.4f}  by corrected")
