"""Scores that tell outliers (anomalies, out-of-distribution images) from typical images.

Likelihood alone misleads: simpler images often score higher (Nalisnick et al. 2019). Subtracting the compressed size
corrects that (Serrà et al. 2020, equation 3).

RUN/typical.json keeps scores of validation examples, with which others are compared.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Integer

from axial_transformers.data import Examples
from axial_transformers.data.lazy_array import Values
from axial_transformers.data.scans import Scan
from axial_transformers.data.tiles import corner_of, joined_tiles, tile_of
from axial_transformers.likelihood.bits import bits_map
from axial_transformers.likelihood.evaluation import Fill, batches, bits_of_each, fill
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.pictures.heat_maps import BitsOfExample
from axial_transformers.pictures.other_codecs import encoded_size
from axial_transformers.progress import Progress
from axial_transformers.storage.files import require_inside
from axial_transformers.storage.typed_json import from_json, read_object, write_object

RankBy = Literal["bits", "corrected", "deviation"]
TYPICAL = "typical.json"
"""The file of typical scores beside a model."""
MAX_TYPICAL = 1_000
"""How many it keeps of each kind."""
MIN_CORRELATION = 0.8
"""Above this rank correlation, PNG's bits explain most of the model's."""
MIN_EXAMPLES = 20
"""Fewer examples may correlate by chance."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of examples; larger for outliers."""

    bits: Float[np.ndarray, " n"]
    corrected: Float[np.ndarray, " n"] | None
    """Complexity-corrected: minus the bits/dim of a PNG file. None: the examples are no images."""

    def by(self, name: RankBy, typical: "Scores | None" = None) -> Float[np.ndarray, " n"]:
        """Return the scores of this name; bits where there is no other.

        The deviation is the distance of the bits from the median of the typical ones, or else of these.
        """
        if name == "deviation":
            return np.abs(self.bits - np.median((typical or self).bits))
        return self.bits if name == "bits" or self.corrected is None else self.corrected


def are_images(config: AxialTransformerConfig, rank_by: RankBy | None = None) -> bool:
    """Return True for gray or RGB images of 8 bits.

    Raises:
        ValueError: others cannot be ranked by this score.
    """
    images = len(config.shape) == 2 and config.channels in (1, 3) and config.lowest >= 0 and config.highest < 256
    if rank_by == "corrected" and not images:
        raise ValueError("rank_by=corrected is for models of 8-bit gray or RGB images: use rank_by=bits")
    return images


def score(
    model: AxialTransformer,
    values: Values,
    batch_size: int = 16,
    progress: Progress = iter,
    fill: Fill = fill,
    label: Integer[torch.Tensor, " n"] | None = None,
) -> Scores:
    """Return the scores of values [N, *A, C]; see `bits_of_each`."""
    values = np.asarray(values)
    bits = bits_of_each(model, torch.from_numpy(values), label, batch_size=batch_size, progress=progress, fill=fill)
    if not are_images(model.config):
        return Scores(bits=bits.numpy(), corrected=None)

    def png_bits(batch: slice) -> torch.Tensor:
        return torch.from_numpy(complexity(values[batch]))

    png = fill(torch.zeros_like(bits), batches(len(values), batch_size), png_bits)
    return Scores(bits=bits.numpy(), corrected=(bits - png).numpy())


def ranking(scores: Scores, wanted: RankBy | None = None) -> tuple[RankBy, str]:
    """Return the score to rank by, and why it is that one; it may be `wanted`."""
    if wanted:
        return wanted, "as asked"
    if scores.corrected is None:
        return "deviation", "examples with far fewer bits than usual ones are as odd as those with far more"
    if len(scores.bits) < MIN_EXAMPLES:
        return "bits", f"fewer than {MIN_EXAMPLES} examples do not tell whether bits go with the bits of PNG"
    rank_correlation = correlation(scores.bits, scores.bits - scores.corrected)
    why = f"bits and the bits of PNG have a rank correlation of {rank_correlation:.2f}, "
    if rank_correlation > MIN_CORRELATION:
        return "corrected", f"{why}above {MIN_CORRELATION}"
    return "bits", f"{why}not above {MIN_CORRELATION}"


def correlation(one: Float[np.ndarray, " n"], other: Float[np.ndarray, " n"]) -> float:
    """Return the correlation of ranks (Spearman's, but equal numbers rank in their order)."""
    ranks = np.argsort([one, other], kind="stable").argsort().astype(float)
    return float(np.corrcoef(ranks)[0, 1])


def bits_of_outliers(
    model: AxialTransformer,
    scored: Examples,
    order: Iterable[int],
    whole: Examples,
    batch_size: int = 16,
) -> Iterator[BitsOfExample]:
    """Yield the bits of each position of examples, in this order.

    In place of tiles, the image that holds them comes once, with all its tiles in `whole`.

    Args:
        scored, whole: their labels, if there are any, are those that the model takes.
    """
    images = len(scored.shape) == 2
    tiles: dict[str, list[int]] = {}
    for i, name in enumerate(whole.names if images else ()):
        tiles.setdefault(tile_of(name)[0], []).append(i)
    for rank, number in enumerate(order):
        name = scored.names[number]
        picture, corner = tile_of(name) if images else (name, None)
        if not corner:
            example = scored[[number]]
            yield BitsOfExample(rank, name, example.values[0], _batch_bits(model, example)[0])
        elif picture in tiles:
            own = whole[tiles.pop(picture)]
            values = joined_tiles(np.asarray(own.values), own.names)
            parts = [_batch_bits(model, own[batch]) for batch in batches(len(own), batch_size)]
            bits = joined_tiles(np.concatenate(parts), own.names)
            tile = tuple(slice(i * side, (i + 1) * side) for i, side in zip(corner, scored.shape))
            yield BitsOfExample(rank, picture, values, bits, tile)


def _batch_bits(model: AxialTransformer, examples: Examples) -> Float[np.ndarray, "n *a c"]:
    return bits_map(model, torch.from_numpy(examples.values), label_of(examples)).cpu().numpy()


def bits_of_scan(
    model: AxialTransformer,
    scored: Examples,
    scan: Scan,
    progress: Progress = iter,
    batch_size: int = 16,
) -> Scan:
    """Return the bits of each position of a scan of which examples are blocks, as a mean over channels.

    Positions in no block are NaN.
    """
    shape = [length for letter, length in zip(scan.axes, scan.values.shape) if letter != "C"]
    bits = np.full(shape, np.nan, np.float32)
    for batch in batches(len(scored), batch_size, progress):
        examples = scored[batch]
        for name, block in zip(examples.names, _batch_bits(model, examples).mean(axis=-1)):
            corner = corner_of(name, len(shape), block.shape)
            lengths = [1] * (len(shape) - block.ndim) + [*block.shape]
            bits[tuple(slice(at, at + length) for at, length in zip(corner, lengths))] = block
    return replace(scan, values=bits, axes=scan.axes.replace("C", ""), scale=1.0, offset=0.0)


def label_of(examples: Examples) -> Integer[torch.Tensor, " n"] | None:
    """Return the labels of examples as a tensor [N]; None if they have none."""
    return None if examples.labels is None else torch.from_numpy(examples.labels)


def keep_typical(folder: Path, scores: Scores) -> None:
    """Write typical scores beside a model, unless those there are of fewer bits/dim, and so of a better model."""
    before = typical_in(folder)
    if not scores.bits.mean() < (before.bits.mean() if before else np.inf):
        return
    points = np.linspace(0, 1, min(len(scores.bits), MAX_TYPICAL))
    few = {}
    for name, all_scores in vars(scores).items():
        few[name] = None if all_scores is None else np.quantile(all_scores, points).tolist()
    write_object(folder / TYPICAL, few, indent=None)


def typical_in(folder: str | Path) -> Scores | None:
    """Return the typical scores beside a model, or None."""
    path = Path(folder) / TYPICAL
    if not path.is_file():
        return None
    kept = from_json(_Kept, read_object(require_inside(path, Path(folder)), "typical scores"), path)
    return Scores(bits=np.array(kept.bits), corrected=None if kept.corrected is None else np.array(kept.corrected))


@dataclass(frozen=True)
class _Kept:
    bits: tuple[float, ...]
    corrected: tuple[float, ...] | None


def rows_of(
    scores: Scores,
    names: Sequence[str],
    by: RankBy,
    typical: Scores | None = None,
    flag: float | None = None,
) -> list[dict[str, Any]]:
    """Return a row per example; with typical scores, its quantile among them, and whether that is above `flag`."""
    columns = {"bits_per_dim": scores.bits}
    if scores.corrected is not None:
        columns["corrected"] = scores.corrected
    if by == "deviation":
        columns["deviation"] = scores.by(by, typical)
    if typical:
        columns["quantile"] = np.searchsorted(np.sort(typical.by(by)), scores.by(by, typical)) / len(typical.bits)
    pictures = [tile_of(name)[0] for name in names]
    if pictures != [*names]:
        _, numbers = np.unique(pictures, return_inverse=True)
        means = np.bincount(numbers, scores.bits) / np.bincount(numbers)
        columns["picture_bits_per_dim"] = means[numbers]
    rows = []
    for i, name in enumerate(names):
        row: dict[str, Any] = {"name": name}
        for column, column_scores in columns.items():
            row[column] = round(float(column_scores[i]), 6)
        if flag is not None:
            row["flagged"] = "yes" if row["quantile"] > flag else "no"
        rows.append(row)
    return rows


def complexity(values: Integer[np.ndarray, "n h w c"]) -> Float[np.ndarray, " n"]:
    """Return bits/dim as PNG files, of gray or RGB images of 8 bits."""
    return np.array([8 * encoded_size("PNG", image.astype(np.uint8)) / image.size for image in values])


def auroc(typical: Float[np.ndarray, " n"], outlying: Float[np.ndarray, " m"]) -> float:
    """Return the area under the ROC curve; ties count half."""
    if not len(typical) or not len(outlying):
        raise ValueError("an AUROC needs scores of both kinds")
    ordered = np.sort(typical)
    below, up_to = (np.searchsorted(ordered, outlying, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(typical)))
