"""The model that is looked at, its data, and the files that are given to the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data import Examples
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import Palette, window_of
from axial_transformers.pictures.display import Window

MOST_FILES, MOST_EXAMPLES, MOST_MEGABYTES, MOST_STORED = 64, 1024, 32, 1024
"""Files that are given at once, examples (tiles, clips) that they hold together, 10^6 bytes of each, and 10^6 bytes of
all uploads that are stored at a time."""


@dataclass(frozen=True, kw_only=True)
class OpenedModel:
    """A model and what belongs to it.

    Raises:
        ValueError: a model of more than three axes.
    """

    model: AxialTransformer
    name: str
    read: Callable[[str, str], Examples]
    """Reads the file of a path, fitted to the model in a way (`exact`, `crop`, `stretch` or `tiles`); raises ValueError
    or OSError."""
    examples: Examples | None = None
    """Examples of the model's data; None where there are none."""
    uint16: bool = False
    class_names: tuple[str, ...] | None = None
    palette: Palette = "auto"
    fps: int = 8

    def __post_init__(self) -> None:
        if len(self.model.config.shape) > 3:
            raise ValueError(f"sequences, images and clips can be shown, not {len(self.model.config.shape)} axes")

    @property
    def are_clips(self) -> bool:
        """True of models of (frames, height, width)."""
        return len(self.model.config.shape) == 3

    @property
    def classes(self) -> list[str]:
        """A name for each class of a class-conditional model; none for others."""
        count = self.model.config.num_classes or 0
        return [*(self.class_names or ())][:count] or [str(i) for i in range(count)]

    def window(self, values: NDArray[np.integer]) -> Window:
        """The window in which values [N, *A, C] are shown, as `window_of` says."""
        return window_of(values, self.model.config.num_values, self.uint16)

    def files(self, paths: Sequence[str], fit: str) -> tuple[NDArray[np.uint8], list[str]]:
        """The examples [N, *A, C] of some files, and their names.

        Raises:
            ValueError: no file or too many, or one that is not read or not the model's. Names are without folders.
            OSError: a file cannot be read.
        """
        if not paths:
            raise ValueError("there are no files: drop some on the field")
        if len(paths) > MOST_FILES:
            raise ValueError(f"{len(paths)} files are more than {MOST_FILES}: drop fewer at a time")
        parts, names = list[NDArray[np.uint8]](), list[str]()
        for path in paths:
            try:
                found = self.read(path, fit)
            except ValueError as error:
                raise ValueError(str(error).replace(f"{Path(path).parent}/", "")) from error
            if len(names) + len(found) > MOST_EXAMPLES:
                raise ValueError(f"{Path(path).name}: more than {MOST_EXAMPLES:,} examples: give fewer files")
            parts.append(found[:].values)
            names += found.names
        return np.concatenate(parts), names
