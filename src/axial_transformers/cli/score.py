"""axial score: how unusual each example is, and where."""

import re
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from axial_transformers.cli.console import rank_zero_output, say
from axial_transformers.cli.messages import printable
from axial_transformers.cli.options import OnData, Positive, Precision, Shades, processes_on, products_in
from axial_transformers.progress import bar
from axial_transformers.wording import counted

if TYPE_CHECKING:  # options are read without torch
    import numpy as np
    from numpy.typing import NDArray

    from axial_transformers.data import Examples
    from axial_transformers.data.scans import Scan
    from axial_transformers.likelihood.outliers import RankBy, Scores
    from axial_transformers.pictures import Look
    from axial_transformers.training.trained_model import TrainedModel

AXES = {2: "row, column", 3: "z, y, x"}
"""What the numbers of a tile or block in a name are, by how many they are."""


@dataclass(frozen=True)
class Score(OnData, Shades):
    """Scores of all examples, the most unusual first, to find anomalies.

    For example:

        axial score runs/photos new_photos/ --out scores.csv --heat-maps maps/
        axial score runs/fashion_mnist USUAL.npz --against ANOMALIES.npz
    """

    _: KW_ONLY
    rank_by: Literal["bits", "corrected", "deviation"] | None = None
    """None: what suits the data; a line says which, and why."""
    typical: str | Path | None = None
    """A source of usual examples, for quantiles. None: the scores of its validation part that a run has kept."""
    flag: Annotated[float | None, Parameter(validator=Number(gt=0, lt=1))] = None
    """Mark examples whose quantile is above this, such as 0.99, and count them."""
    out: Path | None = None
    """NAME.csv or NAME.json: the scores of all examples. None: print the `top` as CSV."""
    heat_maps: Path | None = None
    """A new folder for heat maps of the `top` examples, and scores.html, which shows them."""
    top: Positive = 20
    """Number of the most unusual examples that are printed, and of heat maps."""
    against: str | Path | None = None
    """A source of anomalies, where SOURCE holds usual examples. Prints the AUROC of each score: 0.5 is chance."""
    precision: Precision = "auto"


def main(options: Score) -> None:
    """Run the command."""
    from axial_transformers.likelihood.outliers import are_images, label_of, score
    from axial_transformers.pictures.saving import require_no_input, require_scores

    with rank_zero_output():
        require_scores(options.out, options.heat_maps)
        kept = _kept_scores(options)

    def score_all(examples: "Examples") -> "Scores":
        progress = bar(f"bits/dim of {counted(len(examples), trained.kind)}: batches")
        return score(trained.model, examples.values, options.batch_size, progress, processes.fill, label_of(examples))

    with processes_on(options.device, options.precision) as processes:
        with rank_zero_output():
            trained = options.opened(processes.device)
            if options.out:
                require_no_input(options.out, [*trained.inputs, options.source, options.typical, options.against])
            are_images(trained.model.config, options.rank_by)
            look = options.look(trained)
            scan = trained.scan(options.source) if options.heat_maps else None
            whole = trained.examples_to_use(options.source, options.split)
            examples = whole.spread(options.limit)[:]
            usual = _read_examples(options.typical, trained, options)
            anomalies = _read_examples(options.against, trained, options)
        scores = score_all(examples)
        typical = kept if usual is None else score_all(usual)
        of_anomalies = None if anomalies is None else score_all(anomalies)
    if not processes.rank_zero:
        return
    ranked = _ranked(scores, typical, examples, options)
    say(f"ranked by {ranked.by}: {ranked.why}")
    with products_in(options.precision, processes.device):
        _save(ranked, examples, whole, trained, look, scan, options)
    _print(ranked, options)
    if of_anomalies is not None:
        _print_auroc(scores, of_anomalies, typical, options.against)


@dataclass(frozen=True)
class Ranked:
    """Examples in the order of their scores, the most unusual first."""

    by: "RankBy"
    why: str
    order: "NDArray[np.intp]"
    """Which example has each rank, [N]."""
    rows: list[dict[str, Any]]
    """Rank, name and scores of each."""


def _kept_scores(options: Score) -> "Scores | None":
    """Return the scores of usual examples that a run has kept; they are of its EMA weights.

    Raises:
        ValueError: examples are to be flagged, and no usual ones are known.
    """
    from axial_transformers.likelihood.outliers import typical_in

    if options.typical:
        return None
    kept = None if options.weights == "raw" else typical_in(options.model)
    if options.flag is not None and kept is None:
        raise ValueError("--flag needs scores of usual examples: name these by --typical SOURCE")
    return kept


def _read_examples(source: str | Path | None, trained: "TrainedModel", options: Score) -> "Examples | None":
    if source is None:
        return None
    return trained.examples_to_use(source, None).spread(options.limit)[:]


def _ranked(scores: "Scores", typical: "Scores | None", examples: "Examples", options: Score) -> Ranked:
    import numpy as np

    from axial_transformers.likelihood.outliers import ranking, rows_of

    by, why = ranking(scores, options.rank_by)
    rows = rows_of(scores, examples.names, by, typical, options.flag)
    order = np.argsort(-scores.by(by, typical), kind="stable")
    return Ranked(by, why, order, [{"rank": rank, **rows[i]} for rank, i in enumerate(order, start=1)])


def _save(
    ranked: Ranked,
    examples: "Examples",
    whole: "Examples",
    trained: "TrainedModel",
    look: "Look",
    scan: "Scan | None",
    options: Score,
) -> None:
    """Write the table, and the heat maps with their page, if they are asked for."""
    from axial_transformers.likelihood.outliers import bits_of_outliers, bits_of_scan
    from axial_transformers.pictures.heat_maps import save_scores

    facts = {
        "model": str(options.model),
        "examples": f"{len(examples):,}",
        "ranked_by": ranked.by,
        "because": ranked.why,
    }
    if place := explain_places(examples.names, trained.kind):
        facts["names"] = place
        say(place)
    maps = bits_of_outliers(trained.model, examples, ranked.order, whole, options.batch_size)
    most_usual = ranked.order[options.top :][::-1][: options.top]
    of_scan = bits_of_scan(trained.model, examples, scan, bar("bits of the scan: blocks")) if scan else None
    save_scores(
        options.out,
        ranked.rows,
        options.heat_maps,
        bar("drawing heat maps:")(islice(maps, options.top)),
        look,
        of_scan,
        facts,
        [*examples.values[most_usual]],
    )


def explain_places(names: Sequence[str], kind: str) -> str | None:
    """Return what the numbers after # in names mean; None: names have none."""
    place = re.search(r"#(\d+(?:,\d+)+)$", names[0])
    if place is None:
        return None
    axes = AXES.get(place[1].count(",") + 1, "axis")
    if kind == "clip" and axes == AXES[3]:
        axes = "frame, row, column"
    what = "blocks" if kind in ("clip", "volume") else "tiles"
    return f"in {names[0]}, the numbers after # count {what} by {axes}, from 0"


def _print(ranked: Ranked, options: Score) -> None:
    """Print the path of the table or the most unusual examples as CSV, and how many are flagged."""
    from axial_transformers.pictures.saving import write_csv

    if options.out:
        print(options.out)
    else:
        write_csv(sys.stdout, ranked.rows[: options.top])
    if options.flag is not None:
        flagged = sum(row["flagged"] == "yes" for row in ranked.rows)
        say(f"{flagged:,} of {len(ranked.rows):,} are flagged; of usual examples, {1 - options.flag:.1%} would be")


def _print_auroc(
    scores: "Scores", of_anomalies: "Scores", typical: "Scores | None", anomalies: str | Path | None
) -> None:
    from axial_transformers.likelihood.outliers import auroc

    print(
        f"AUROC of {len(of_anomalies.bits):,} examples of {printable(anomalies)} as anomalies against these"
        f" {len(scores.bits):,} as usual ones:"
    )
    other: RankBy = "deviation" if scores.corrected is None else "corrected"
    by_bits = auroc(scores.bits, of_anomalies.bits)
    by_other = auroc(scores.by(other, typical), of_anomalies.by(other, typical or scores))
    print(f"  {by_bits:.4f}  by bits_per_dim")
    print(f"  {by_other:.4f}  by {other}")
