"""Examples and samples written as arrays, images and movies."""

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from reprlib import repr as brief
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from axial_transformers.data import save_arrays
from axial_transformers.data.grid import Grid
from axial_transformers.data.scans import WRITTEN, Scan, suffix_of, write_scan
from axial_transformers.data.value_range import ValueRange
from axial_transformers.data.video import write_mp4
from axial_transformers.pictures.display import Look, for_display
from axial_transformers.pictures.grids import image_grid
from axial_transformers.storage.files import folder_written_whole, require_writable, written_whole

MOVIES = (".mp4", ".gif")
FILES = (".png", ".npz", ".npy", *MOVIES)
SCANS = tuple(suffix for suffix in WRITTEN if suffix not in FILES)
LOSSLESS = (".npz", ".npy", *SCANS)
"""Data is not replaced; grids and movies are."""


def require_no_input(out: Path, inputs: Iterable[str | Path | None]) -> None:
    """Raise ValueError if `out` is an input, or lies in a folder of inputs with other files of its suffix.

    Args:
        inputs: files and folders; names of other things are no paths that exist.
    """
    if not os.path.lexists(out):
        return
    places = out.resolve(), out.parent.resolve() / out.name  # a link is replaced itself
    for name in inputs:
        source = Path(name or "").resolve()
        if name is None or not any(place.is_relative_to(source) for place in places):
            continue
        others = (file for file in source.rglob(f"*{out.suffix}") if file.resolve() not in places)
        if source.is_file() or any(file.is_file() for file in others):
            raise ValueError(f"out={out} is one of the files of {name}, and would be replaced: name another")


def require_output(out: Path, clips: bool, folder: bool = False, scan: Scan | None = None) -> None:
    """Raise an error where `save_examples` could not write `out`."""
    scans = SCANS if scan else ()
    if out.suffix not in (*FILES, *[""] * folder) and suffix_of(out) not in scans:
        names = ", ".join(f"NAME{suffix}" for suffix in (*FILES, *scans)) + " and a folder" * folder
        raise ValueError(f"out={out} is none of {names}")
    if out.suffix in MOVIES and not clips:
        raise ValueError(f"out={out}: this model is not of clips (frames, height, width)")
    require_writable(out, folder=not out.suffix)
    if suffix_of(out) in LOSSLESS and os.path.lexists(out):
        raise FileExistsError(f"out={out} exists already: give another path, or remove it first")


def save_examples(
    out: Path,
    values: NDArray[np.integer],
    look: Look,
    scale: int | None = None,
    scan: Scan | None = None,
    grid: Grid | None = None,
) -> None:
    """Write values [N, *A, C] as its suffix says; a scan of one channel like another, [*A] if there is one example.

    Arrays and scans hold the floats of the grid.
    """
    numbers = grid.floats(values) if grid else values.astype(ValueRange(*look.possible).type)
    if scan and suffix_of(out) in SCANS:
        stored = numbers[0, ..., 0] if len(values) == 1 else numbers[..., 0]
        axes = ("N" + scan.axes.replace("C", ""))[-stored.ndim :]
        with written_whole(out, replace=False) as aside:
            write_scan(aside, stored, replace(scan, axes=axes))
    elif out.suffix in (".npz", ".npy"):
        with written_whole(out, replace=False) as aside:
            save_arrays(aside, numbers, axes=look.axes)
    elif out.suffix in MOVIES:
        save_clips(out, values, scale=scale, look=look)
    elif out.suffix == ".png":
        save_grid(out, values, scale=scale, look=look)
    else:
        save_images(out, values, look=look)


def save_picture(path: str | Path, picture: Image.Image) -> None:
    """Write an image as a PNG file, whole or not at all."""
    with written_whole(path) as aside:
        picture.save(aside, format="PNG")


def require_scores(table: Path | None, heat_maps: Path | None) -> None:
    """Raise an error where `save_scores` could not write these files."""
    if table:
        if table.suffix not in (".csv", ".json"):
            raise ValueError(f"out={table} is neither NAME.csv nor NAME.json")
        require_writable(table)
    if heat_maps:
        require_writable(heat_maps, folder=True)


def save_table(
    path: Path,
    rows: Sequence[Mapping[str, object]],
    facts: Mapping[str, str],
) -> None:
    """Write rows as CSV or, with facts, as JSON, by the suffix."""
    with written_whole(path) as aside, aside.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        if path.suffix == ".json":
            file.write(json.dumps({**facts, "scores": rows}, indent=1) + "\n")
        else:
            write_csv(file, rows)


def write_csv(file: IO[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as CSV."""
    writer = csv.DictWriter(file, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)


def save_grid(
    path: str | Path,
    values: NDArray[np.integer],
    columns: int | None = None,
    scale: int | None = None,
    look: Look = Look(),
) -> None:
    """Write `image_grid` as a PNG file."""
    save_picture(path, image_grid(values, columns, scale, look))


def save_images(
    folder: str | Path,
    values: NDArray[np.integer],
    names: Sequence[str] | None = None,
    look: Look = Look(),
) -> None:
    """Write integers [N, *A, C], as `for_display` shows them, to PNG files of a new folder: 0000.png, ... or `names`.

    Raises:
        ValueError: floats; or names that are not as many different names of files as there are images.
        FileExistsError: the folder exists and is not empty.
    """
    if values.dtype.kind not in "iu":
        raise ValueError(f"{folder}: images are made of integers, not of {values.dtype}")
    pictures = for_display(values, look.exact(values))
    names = [f"{i:04d}" for i in range(len(pictures))] if names is None else names
    if not len({*names}) == len(names) == len(pictures):
        raise ValueError(f"{folder}: {len(pictures)} images need as many different names, not {brief(names)}")
    for name in names:
        if Path(name).name != name or not name.strip("."):
            raise ValueError(f"{folder}: {name} is no name of a file in a folder")
    with folder_written_whole(folder) as aside:
        for name, picture in zip(names, pictures):
            Image.fromarray(picture).save(aside / f"{name}.png")


def save_clips(
    path: str | Path,
    values: NDArray[np.integer],
    columns: int | None = None,
    scale: int | None = None,
    look: Look = Look(),
    fps: int = 8,
) -> None:
    """Write clips [N, T, H, W, C] as a movie of a grid.

    Raises:
        ValueError: not clips, or none; another suffix; an fps outside of 1..100.
    """
    if values.ndim != 5 or not len(values):
        raise ValueError(f"{path}: a movie is made of clips [N, T, H, W, C], not of {list(values.shape)}")
    look = look.over(values)
    grids = [image_grid(frame, columns, scale, look) for frame in values.swapaxes(0, 1)]
    save_movie(path, np.stack([*map(np.asarray, grids)]), fps)


def save_movie(
    path: str | Path,
    frames: NDArray[np.uint8],
    fps: int = 8,
) -> None:
    """Write frames [T, H, W] or [T, H, W, 3] as .mp4 (H.264) or .gif (256 colours).

    An odd side of .mp4 gets one more, white line.

    Raises:
        ValueError: another suffix; an fps outside of 1..100.
    """
    suffix = Path(path).suffix
    if suffix not in MOVIES:
        raise ValueError(f"{path} does not end in {', '.join(MOVIES)}")
    if not 1 <= fps <= 100:
        raise ValueError(f"fps must be within 1..100, not {fps}")
    with written_whole(path) as aside:
        if suffix == ".gif":
            first, *others = map(Image.fromarray, frames)
            first.save(aside, format="GIF", save_all=True, append_images=others, duration=round(1000 / fps), loop=0)
        else:
            height, width = frames.shape[1:3]
            padding = [(0, 0), (0, height % 2), (0, width % 2), (0, 0)]
            write_mp4(aside, np.pad(frames, padding[: frames.ndim], constant_values=255), fps)
