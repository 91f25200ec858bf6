"""axial score: bits/dim of each image, and how unusual it is."""

import csv
import json
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.cli.options import BatchSize, Device, Model, Reading, Source, Weights
from axial_transformers.cli.parsing import parse, require_within
from axial_transformers.cli.rank_zero import processes_on, rank_zero_output
from axial_transformers.cli.streams import printable
from axial_transformers.cli.trained_model import TrainedModel, limited, open_model
from axial_transformers.data import Examples, Split
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.evaluation import bits_of_each
from axial_transformers.likelihood.outliers import auroc, corrected
from axial_transformers.pictures.heat_maps import heat_map
from axial_transformers.progress import bar
from axial_transformers.storage.files import folder_written_whole, require_place, written_whole
from axial_transformers.training.processes import Processes

_TILE = re.compile(r"#\d+,\d+$")
Scores = dict[str, NDArray[np.floating]]
"""Of each example [N], by the score's name."""


@dataclass(frozen=True)
class Score:
    """Bits/dim of every image, least likely first.

    For example:
      axial score runs/digits
      axial score runs/photos new_photos/ --output scores.csv --heat-maps maps/
      axial score models/photos32 large_photos/ --data.fit tiles --data.size 32
      axial score runs/fashion_mnist fashion_mnist_test.npz --against mnist_t10k.npz

    There are two scores: the model's bits/dim, and the same less the bits/dim of the image as PNG (Serrà et al. 2020),
    since simple images have a high likelihood whatever they show (Nalisnick et al. 2019). --against measures how well
    each score tells two sources apart: the AUROC, 0.5 for not at all, 1 for perfectly. Of pictures cut into tiles each
    row has the mean over its picture as well, `picture_bits_per_dim`.
    """

    model: Model
    source: Source = None
    _: KW_ONLY
    split: Split | None = None
    """Part of the data; as for axial evaluate."""
    output: Path | None = None
    """NAME.csv or NAME.json: the scores of all images. None: the `top` least likely are printed, as CSV."""
    heat_maps: Path | None = None
    """A new folder for heat maps, one picture per image: the bits of each site of the `top` least likely images."""
    top: int = 20
    """Number of the least likely images that are printed and drawn."""
    limit: int | None = None
    """Score so many examples only of each source, evenly spaced over it."""
    data: Reading = Reading()
    against: str | Path | None = None
    """Another source, all of it, whose images the scores should tell from those of the first."""
    weights: Weights = "ema"
    batch_size: BatchSize = 64
    device: Device = "auto"


def main(argv: Sequence[str]) -> None:
    """Runs the command."""
    with rank_zero_output():
        options = _checked(parse(Score, argv, "score"))
        processes = processes_on(options.device)
    with processes:
        with rank_zero_output():
            opened = open_model(options.model, options.weights, str(processes.device))
            trained = options.data.of(opened)
            examples = limited(trained.examples(options.source, options.split)[0], options.limit)[:]
            others = limited(trained.examples(options.against, "all")[0], options.limit)[:] if options.against else None
        scores = _scores(trained, examples, options.batch_size, processes)
        odd = None if others is None else _scores(trained, others, options.batch_size, processes)
    if not processes.rank_zero:
        return
    _write_scores(options, trained, examples, scores)
    if others is not None and odd is not None:
        print(f"AUROC of {len(others):,} images of {printable(options.against)} against these {len(examples):,}:")
        for name in scores:
            print(f"  {auroc(scores[name], odd[name]):.4f}  by {name}")


def _checked(options: Score) -> Score:
    """The options; raises ValueError or OSError where one is out of its range, or an output cannot be written."""
    if options.output is not None and options.output.suffix not in (".csv", ".json"):
        raise ValueError(f"--output {options.output} is neither NAME.csv nor NAME.json")
    for path, folder in ((options.output, False), (options.heat_maps, True)):
        if path is not None:
            require_place(path, folder)
    require_within("top", options.top, 1)
    require_within("limit", options.limit, 1)
    require_within("batch-size", options.batch_size, 1)
    return options


def _write_scores(options: Score, trained: TrainedModel, examples: Examples, scores: Scores) -> None:
    """Writes the scores of all examples and their heat maps, as asked, or prints those of the least likely."""
    order = np.argsort(-scores["bits_per_dim"], kind="stable")
    rows = _rows(examples.names, scores, order, examples.uint16)
    with ExitStack() as whole:  # both outputs appear, or neither
        if options.heat_maps:
            maps = whole.enter_context(folder_written_whole(options.heat_maps))
            _draw(trained, examples[order[: options.top]], maps)
        if options.output:
            aside = whole.enter_context(written_whole(options.output))
            with aside.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
                _write(rows, file, as_json=options.output.suffix == ".json")
    if options.output:
        print(options.output)
    else:
        _write(rows[: options.top], sys.stdout, as_json=False)


def _rows(names: Sequence[str], scores: Scores, order: NDArray[np.integer], uint16: bool) -> list[dict[str, Any]]:
    """One row per image, least likely first; of 16-bit images, whose dimensions are bytes, with the bits per value."""
    if uint16:
        scores = {**scores, "bits_per_value": 2 * scores["bits_per_dim"]}
    scores = scores | _of_pictures(names, scores["bits_per_dim"])
    return [
        {"rank": rank, "name": names[i], **{name: round(float(each[i]), 6) for name, each in scores.items()}}
        for rank, i in enumerate(order, start=1)
    ]


def _of_pictures(names: Sequence[str], bits: NDArray[np.floating]) -> Scores:
    """Of each tile, named PICTURE#ROW,COLUMN, the mean over its picture; nothing where there are no tiles."""
    pictures = [_TILE.sub("", name) for name in names]
    if pictures == list(names):
        return {}
    _, picture_of = np.unique(pictures, return_inverse=True)
    return {"picture_bits_per_dim": (np.bincount(picture_of, bits) / np.bincount(picture_of))[picture_of]}


def _scores(trained: TrainedModel, examples: Examples, batch_size: int, processes: Processes) -> Scores:
    """The scores of all examples, in every process; each computes its share."""
    values, size = torch.from_numpy(examples.values), min(batch_size, len(examples))
    bits = bits_of_each(trained.model, values, batch_size=size, progress=bar("bits/dim"), fill=processes.fill)

    def corrected_bits(batch: slice) -> torch.Tensor:
        return torch.from_numpy(corrected(bits[batch].numpy(), examples.values[batch]))

    batches = (slice(start, start + size) for start in range(0, len(examples), size))
    return {
        "bits_per_dim": bits.numpy(),
        "corrected": processes.fill(torch.zeros_like(bits), batches, corrected_bits).numpy(),
    }


def _write(rows: Sequence[dict[str, Any]], file: IO[str], as_json: bool) -> None:
    if as_json:
        json.dump(rows, file, indent=1)
        file.write("\n")
    else:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _draw(trained: TrainedModel, examples: Examples, folder: Path) -> None:
    """Writes one heat map per image into a folder, named by its rank and its own name."""
    for rank, (values, name) in enumerate(zip(examples.values, examples.names, strict=True), start=1):
        bits = bits_map(trained.model, torch.from_numpy(values[None]))[0].cpu().numpy()
        heat_map(bits, trained.model.config.num_values).save(folder / f"{rank:04d}-{Path(name).stem}.png")
