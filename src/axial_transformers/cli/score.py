"""axial score: bits/dim of each image, and how unusual it is."""

import sys

import numpy as np
import torch

from axial_transformers.cli.commands import Score
from axial_transformers.cli.console import printable, rank_zero_output, require_within
from axial_transformers.cli.options import products_in
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.outliers import auroc, rows_of, score
from axial_transformers.pictures.heat_maps import save_scores
from axial_transformers.pictures.saving import require_scores, write_csv
from axial_transformers.progress import bar
from axial_transformers.training.processes import processes_on
from axial_transformers.training.trained_model import open_model


def main(options: Score) -> None:
    """Run the command."""
    with rank_zero_output():
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
