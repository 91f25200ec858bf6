"""Scores that tell outliers (anomalies, out-of-distribution images) from typical images.

Likelihood alone misleads: simpler images often score higher (Nalisnick et al. 2019). Subtracting the compressed size
corrects that (Serrà et al. 2020, equation 3).

RUN/typical.json keeps scores of validation examples, with which others are compared.
"""

import json
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
from axial_transformers.likelihood.evaluation import Fill, bits_of_each, fill
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.pictures.heat_maps import BitsOfExample
from axial_transformers.pictures.other_codecs import image_bytes
from axial_transformers.progress import Progress
from axial_transformers.storage.files import require_inside, written_whole
from axial_transformers.storage.typed_json import from_json, read_object

RankBy = Literal["bits", "corrected", "deviation"]
TYPICAL, MAX_TYPICAL = "typical.json", 1_000
"""The file of typical scores beside a model, and how many it keeps of each kind."""
MIN_CORRELATION, MIN_EXAMPLES = 0.8, 20
"""Above this rank correlation, PNG's bits explain most of the model's. Fewer examples may correlate by chance."""


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
    found = len(config.shape) == 2 and config.channels in (1, 3) and 0 <= config.lowest <= config.highest < 256
    if rank_by == "corrected" and not found:
        raise ValueError("rank_by=corrected is for models of 8-bit gray or RGB images: use rank_by=bits")
    return found


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
    size = min(batch_size, len(values))
    bits = bits_of_each(model, torch.from_numpy(values), label, batch_size=size, progress=progress, fill=fill)
    if not are_images(model.config):
        return Scores(bits=bits.numpy(), corrected=None)
    batches = (slice(start, start + size) for start in range(0, len(values), size))
    png = fill(torch.zeros_like(bits), batches, lambda batch: torch.from_numpy(complexity(values[batch])))
    return Scores(bits=bits.numpy(), corrected=(bits - png).numpy())


def ranking(scores: Scores, wanted: RankBy | None = None) -> tuple[RankBy, str]:
    """Return the score to rank by, and why it is that one; it may be `wanted`."""
    if wanted:
        return wanted, "as asked"
    if scores.corrected is None:
        return "deviation", "examples with far fewer bits than usual ones are as odd as those with far more"
    if len(scores.bits) < MIN_EXAMPLES:
        return "bits", f"fewer than {MIN_EXAMPLES} examples do not tell whether bits go with the bits of PNG"
    found = correlation(scores.bits, scores.bits - scores.corrected)
    why = f"bits and the bits of PNG have a rank correlation of {found:.2f}, "
    if found > MIN_CORRELATION:
        return "corrected", f"{why}above {MIN_CORRELATION}"
    return "bits", f"{why}not above {MIN_CORRELATION}"


def correlation(one: Float[np.ndarray, " n"], other: Float[np.ndarray, " n"]) -> float:
    """Return the correlation of ranks (Spearman's, but equal numbers rank in their order)."""
    first, second = (each.argsort(kind="stable").argsort().astype(float) for each in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


def bits_of_outliers(
    model: AxialTransformer, scored: Examples, order: Iterable[int], whole: Examples, batch_size: int = 16
) -> Iterator[BitsOfExample]:
    """Yield the bits of each position of examples, in this order.

    In place of tiles, the image that holds them comes once, with all its tiles in `whole`.

    Args:
        scored, whole: their labels, if there are any, are those that the model takes.
    """
    tiles: dict[str, list[int]] = {}
    for i, name in enumerate(whole.names if len(scored.shape) == 2 else ()):
        tiles.setdefault(tile_of(name)[0], []).append(i)
    for rank, i in enumerate(order):
        name = scored.names[i]
        picture, corner = tile_of(name) if len(scored.shape) == 2 else (name, None)
        if corner and picture not in tiles:
            continue
        part = whole[tiles.pop(picture)] if corner else scored[[i]]
        batches = (part[start : start + batch_size] for start in range(0, len(part), batch_size))
        maps = (bits_map(model, torch.from_numpy(batch.values), label_of(batch)) for batch in batches)
        bits = np.concatenate([each.cpu().numpy() for each in maps])
        values, bits = (
            joined_tiles(each, part.names) if corner else each[0] for each in (np.asarray(part.values), bits)
        )
        tile = corner and tuple(slice(i * side, (i + 1) * side) for i, side in zip(corner, scored.shape, strict=True))
        yield BitsOfExample(rank, picture, values, bits, tile)


def bits_of_scan(
    model: AxialTransformer, scored: Examples, scan: Scan, progress: Progress = iter, batch_size: int = 16
) -> Scan:
    """Return the bits of each position of a scan of which examples are blocks, as a mean over channels.

    Positions in no block are NaN.
    """
    shape = [length for letter, length in zip(scan.axes, scan.values.shape, strict=True) if letter != "C"]
    bits = np.full(shape, np.nan, np.float32)
    for start in progress(range(0, len(scored), batch_size)):
        batch = scored[start : start + batch_size]
        maps = bits_map(model, torch.from_numpy(batch.values), label_of(batch)).mean(dim=-1).cpu().numpy()
        for name, block in zip(batch.names, maps, strict=True):
            lengths = (*[1] * (len(shape) - block.ndim), *block.shape)
            corner = corner_of(name, len(shape), block.shape)
            bits[tuple(slice(at, at + length) for at, length in zip(corner, lengths, strict=True))] = block
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
    few = {name: None if each is None else np.quantile(each, points).tolist() for name, each in vars(scores).items()}
    with written_whole(folder / TYPICAL) as aside:
        aside.write_text(json.dumps(few) + "\n", encoding="utf-8")


def typical_in(folder: str | Path) -> Scores | None:
    """Return the typical scores beside a model, or None."""
    if not (path := Path(folder) / TYPICAL).is_file():
        return None
    kept = from_json(_Kept, read_object(require_inside(path, Path(folder)), "typical scores"), path)
    return Scores(bits=np.array(kept.bits), corrected=None if kept.corrected is None else np.array(kept.corrected))


@dataclass(frozen=True)
class _Kept:
    bits: tuple[float, ...]
    corrected: tuple[float, ...] | None


def rows_of(
    scores: Scores, names: Sequence[str], by: RankBy, typical: Scores | None = None, flag: float | None = None
) -> list[dict[str, Any]]:
    """Return a row per example; with typical scores, its quantile among them, and whether that is above `flag`."""
    columns = {"bits_per_dim": scores.bits} | ({} if scores.corrected is None else {"corrected": scores.corrected})
    if by == "deviation":
        columns["deviation"] = scores.by(by, typical)
    if typical:
        columns["quantile"] = np.searchsorted(np.sort(typical.by(by)), scores.by(by, typical)) / len(typical.bits)
    if (means := _means_of_pictures(names, scores.bits)) is not None:
        columns["picture_bits_per_dim"] = means
    rows: list[dict[str, Any]] = [
        {"name": name, **{column: round(float(each[i]), 6) for column, each in columns.items()}}
        for i, name in enumerate(names)
    ]
    return rows if flag is None else [{**row, "flagged": "yes" if row["quantile"] > flag else "no"} for row in rows]


def _means_of_pictures(names: Sequence[str], bits: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"] | None:
    pictures = [tile_of(name)[0] for name in names]
    if pictures == list(names):
        return None
    _, picture_of = np.unique(pictures, return_inverse=True)
    return np.asarray((np.bincount(picture_of, bits) / np.bincount(picture_of))[picture_of])


def complexity(values: Integer[np.ndarray, "n h w c"]) -> Float[np.ndarray, " n"]:
    """Return bits/dim as PNG files, of gray or RGB images of 8 bits."""
    return np.array([8 * image_bytes("PNG", each.astype(np.uint8)) / each.size for each in values])


def auroc(typical: Float[np.ndarray, " n"], outlying: Float[np.ndarray, " m"]) -> float:
    """Return the area under the ROC curve; ties count half."""
    if not len(typical) or not len(outlying):
        raise ValueError("an AUROC needs scores of both kinds")
    ordered = np.sort(typical)
    below, up_to = (np.searchsorted(ordered, outlying, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(typical)))
