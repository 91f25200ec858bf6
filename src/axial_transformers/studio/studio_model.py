"""The model of the page, its data, and uploaded files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data import Examples
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import Look, Palette

MAX_FILES, MAX_EXAMPLES, MAX_MEGABYTES, MAX_STORED = 64, 1024, 32, 1024


@dataclass(frozen=True, kw_only=True)
class StudioModel:
    """A model and what belongs to it."""

    model: AxialTransformer
    name: str
    read: Callable[[str, str], Examples]
    """Reads the file of a path, fitted to the model (`exact`, `crop`, `stretch` or `tiles`)."""
    examples: Examples | None = None
    class_names: tuple[str, ...] | None = None
    palette: Palette = "auto"
    fps: int = 8

    def __post_init__(self) -> None:
        if len(self.model.config.shape) > 3:
            raise ValueError(f"sequences, images and clips can be shown, not {len(self.model.config.shape)} axes")

    @property
    def look(self) -> Look:
        """Return how values are shown; three axes as frames, which can be painted on."""
        return Look(self.model.config.num_values, self.model.config.lowest, self.palette, axes="NTHW")

    @property
    def are_clips(self) -> bool:
        return len(self.model.config.shape) == 3

    @property
    def classes(self) -> list[str]:
        count = self.model.config.num_classes or 0
        return [*(self.class_names or ())][:count] or [str(i) for i in range(count)]

    def files(self, paths: Sequence[str], fit: str) -> tuple[NDArray[np.integer], list[str]]:
        """Return the examples [N, *A, C] of some files, and their names without folders."""
        if not paths:
            raise ValueError("there are no files: drop some on the field")
        if len(paths) > MAX_FILES:
            raise ValueError(f"{len(paths)} files are more than {MAX_FILES}: drop fewer at a time")
        parts, names = list[NDArray[np.integer]](), list[str]()
        for path in paths:
            try:
                found = self.read(path, fit)
            except ValueError as error:
                raise ValueError(str(error).replace(f"{Path(path).parent}/", "")) from error
            if len(names) + len(found) > MAX_EXAMPLES:
                raise ValueError(f"{Path(path).name}: more than {MAX_EXAMPLES:,} examples: give fewer files")
            parts.append(found[:].values)
            names += found.names
        return np.concatenate(parts), names
