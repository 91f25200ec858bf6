"""axial score: how unusual each example is, and where."""

import sys
from itertools import islice

import numpy as np

from axial_transformers.cli.commands import Score
from axial_transformers.cli.console import printable, rank_zero_output, say
from axial_transformers.cli.options import products_in
from axial_transformers.likelihood import outliers
from axial_transformers.likelihood.outliers import Scores, are_images, label_of, ranking, rows_of, score
from axial_transformers.pictures.heat_maps import save_scores
from axial_transformers.pictures.saving import require_scores, write_csv
from axial_transformers.progress import bar
from axial_transformers.training.processes import processes_on


def main(options: Score) -> None:
    """Run the command."""
    with rank_zero_output():
        kept = _kept(options)
        processes = processes_on(options.device)
        products = products_in(options.precision, processes.device)
    with processes, products:
        with rank_zero_output():
            trained = options.opened(processes.device)
            are_images(trained.model.config, options.rank_by)
            look = options.look(trained)
            scan = trained.scan(options.source) if options.heat_maps else None
            wholes = [trained.examples_to_use(options.source, options.split)]
            wholes += [trained.examples_to_use(other, None) for other in (options.typical, options.against) if other]
            parts = [whole.spread(options.limit)[:] for whole in wholes]
        found = [
            score(trained.model, part.values, options.batch_size, bar("bits/dim"), processes.fill, label_of(part))
            for part in parts
        ]
    if not processes.rank_zero:
        return
    examples, scores, typical = parts[0], found[0], found[1] if options.typical else kept
    by, why = ranking(scores, options.rank_by)
    say(f"ranked by {by}: {why}")
    order = np.argsort(-scores.by(by, typical), kind="stable")
    rows = rows_of(scores, examples.names, by, typical, options.flag)
    ranked = [{"rank": rank, **rows[i]} for rank, i in enumerate(order, start=1)]
    maps = outliers.bits_of_outliers(trained.model, examples, order, wholes[0], options.batch_size)
    facts = {"model": str(options.model), "examples": f"{len(examples):,}", "ranked_by": by, "because": why}
    with products:
        shown = bar("heat maps")(islice(maps, options.top))
        usual = [*examples.values[order[options.top :][::-1][: options.top]]]
        whole = outliers.bits_of_scan(trained.model, examples, scan, bar("bits of the scan")) if scan else None
        save_scores(options.output, ranked, options.heat_maps, shown, look, whole, facts, usual)
    if options.output:
        print(options.output)
    else:
        write_csv(sys.stdout, ranked[: options.top])
    if options.flag is not None:
        flagged = sum(row["flagged"] == "yes" for row in rows)
        say(f"{flagged:,} of {len(rows):,} are flagged; of usual examples it would be {1 - options.flag:.1%}")
    if options.against:
        anomalies = f"{len(parts[-1]):,} examples of {printable(options.against)} as anomalies"
        print(f"AUROC of {anomalies} against these {len(examples):,} as usual ones:")
        names: tuple[outliers.RankBy, ...] = ("bits", "deviation" if scores.corrected is None else "corrected")
        for name in names:
            area = outliers.auroc(scores.by(name, typical), found[-1].by(name, typical or scores))
            print(f"  {area:.4f}  by {'bits_per_dim' if name == 'bits' else name}")


def _kept(options: Score) -> Scores | None:
    """Check the options, and return the typical scores beside the model."""
    require_scores(options.output, options.heat_maps)
    kept = None if options.typical or options.weights == "raw" else outliers.typical_in(options.model)
    if options.flag is not None and not (kept or options.typical):
        raise ValueError("--flag needs scores of usual examples: name these by --typical SOURCE")
    return kept
