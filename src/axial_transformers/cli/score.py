"""axial score: how unusual each example is, and where."""

import sys
from itertools import islice

import numpy as np

from axial_transformers.cli.commands import Score
from axial_transformers.cli.console import printable, rank_zero_output, require_within, say
from axial_transformers.cli.options import products_in
from axial_transformers.likelihood.outliers import are_images, auroc, bits_of_outliers, ranking, rows_of, score
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
            are_images(trained.model.config, options.rank_by)
            look = options.shades.look(trained)
            scan = trained.scan(options.source) if options.heat_maps else None
            sources = [(options.source, options.split)] + ([(options.against, "all")] if options.against else [])
            wholes = [trained.examples(*source)[0] for source in sources]
            parts = [whole.spread(options.limit)[:] for whole in wholes]
        found = [
            score(trained.model, part.values, options.batch_size, bar("bits/dim"), processes.fill) for part in parts
        ]
    if not processes.rank_zero:
        return
    examples, scores = parts[0], found[0]
    by, why = ranking(scores, options.rank_by)
    say(f"ranked by {by}: {why}")
    order = np.argsort(-scores.by(by), kind="stable")
    rows = rows_of(scores, examples.names)
    ranked = [{"rank": rank, **rows[i]} for rank, i in enumerate(order, start=1)]
    maps = bits_of_outliers(trained.model, examples, order, wholes[0], options.batch_size)
    facts = {"model": str(options.model), "examples": f"{len(examples):,}", "ranked_by": by, "because": why}
    with products:
        shown = bar("heat maps")(islice(maps, options.top))
        save_scores(options.output, ranked, options.heat_maps, shown, look, scan, facts)
    if options.output:
        print(options.output)
    else:
        write_csv(sys.stdout, ranked[: options.top])
    if options.against:
        print(f"AUROC of {len(parts[1]):,} examples of {printable(options.against)} against these {len(examples):,}:")
        print(f"  {auroc(scores.bits, found[1].bits):.4f}  by bits_per_dim")
        if scores.corrected is not None and found[1].corrected is not None:
            print(f"  {auroc(scores.corrected, found[1].corrected):.4f}  by corrected")
