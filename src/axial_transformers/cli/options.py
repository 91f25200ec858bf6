"""Options that several commands have."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from axial_transformers.cli.console import require_within

if TYPE_CHECKING:  # options are read without torch
    import torch

    from axial_transformers.data.scan_files import Scan
    from axial_transformers.pictures import Look
    from axial_transformers.training.trained_model import TrainedModel

Model = Annotated[str | Path, Parameter(help="Folder of a run or of an exported model, or a hub id.")]
Source = Annotated[
    str | Path | None,
    Parameter(
        help="Folder, picture, array, scan, video or data set, as axial train reads it. None: the run's own data."
    ),
]
Weights = Annotated[
    Literal["ema", "raw"],
    Parameter(help="The moving average of the weights, or the raw ones of a run's newest checkpoint."),
]
Device = Annotated[str, Parameter(help="cuda, cuda:1, cpu, ...; auto takes CUDA if there is any.")]
BatchSize = Annotated[
    int, Parameter(help="Examples at a time. A CPU's result does not depend on it; a GPU's by rounding only.")
]
Temperature = Annotated[
    float,
    Parameter(help="1 samples from the model's distribution, less favours likely values, 0 takes the likeliest ones."),
]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16"],
    Parameter(help="Arithmetic of matrix products. auto: bfloat16 on a GPU that has them, otherwise float32."),
]
Compile = Annotated[
    bool | None,
    Parameter(help="Compile the decoding. Neither: only where it saves time.", show_default=False),
]
Palette = Literal["auto", "gray", "categories"]
Split = Literal["train", "validation", "test", "all"]
Fit = Literal["exact", "crop", "stretch", "tiles"]


def products_in(precision: Precision, device: "torch.device") -> "torch.autocast":
    """Return the context for products of this precision; warn where bfloat16 is slow."""
    import torch

    from axial_transformers.machine import multiplies_bfloat16
    from axial_transformers.training.config import warn_if_slow

    if precision == "bfloat16":
        warn_if_slow("precision", device)
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and multiplies_bfloat16(device) else "float32"
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Settings that replace those of the run; None: as when the model was trained."""

    size: tuple[int, ...] | int | None = None
    """Side in pixels of the square images and frames that a folder is fitted to; several numbers: of blocks of arrays
    and scans."""
    fit: Fit | None = None
    """Fitting to the size: exact refuses other sizes, crop cuts out the centre, stretch resizes both sides, tiles cuts
    without overlap."""
    frames: int | None = None
    """Frames of a clip."""
    stride: int | None = None
    """Take every stride-th frame of a video, from the first."""
    mode: Literal["auto", "rgb", "rgba", "gray"] | None = None
    """Channels of a folder's images and videos."""
    background: Literal["white", "black"] | None = None
    """Colour behind transparent images, which then have no alpha."""
    axes: str | None = None
    """The axes of an array, one letter each, such as NCHW."""
    key: str | None = None
    """Name of the array within an .npz file."""
    column: str | None = None
    """Column of a data set that holds the examples."""
    label_column: str | None = None
    """Column of a data set that holds classes."""
    skip_bad: int | None = None
    """Most damaged examples to leave out."""

    def of(self, trained: "TrainedModel") -> "TrainedModel":
        """Return the model with these settings."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) is not None}
        sides = trained.model.config.shape[-2:]
        if self.fit is not None and self.size is None and trained.data.size is None and len({*sides}) < len(sides):
            given["size"] = sides[0]
        return replace(trained, data=replace(trained.data, **given))


@dataclass(frozen=True, kw_only=True)
class Shades:
    """How values are shown."""

    palette: Palette = "auto"
    """Shades, or a colour for each value. auto: colours where one channel has 3 to 12 values."""
    window: tuple[float, float] | None = None
    """The values shown as black and white. None: of more than 256 values, the percentiles 0.5 and 99.5 of those shown;
    of fewer, the lowest and the highest."""

    def look(self, trained: "TrainedModel") -> "Look":
        """Return how values of the model are shown."""
        from axial_transformers.pictures import Look

        return replace(Look.of(trained.model.config, trained.data.axes), palette=self.palette, window=self.window)


@dataclass(frozen=True, kw_only=True)
class Appearance(Shades):
    """How sampled examples are shown."""

    scale: int | None = None
    """Enlargement of an image. None: a whole factor for a width of at least 512 pixels."""
    fps: int = 8
    """Frames per second of a movie."""

    def check(self) -> None:
        require_within("scale", self.scale, 1, 256)
        require_within("fps", self.fps, 1)

    def scan(self, output: Path, trained: "TrainedModel") -> "Scan | None":
        """Return the scan that an output is like: the data, or one without geometry; None: it cannot be a scan."""
        import numpy as np

        from axial_transformers.data.scan_files import Scan, suffix_of
        from axial_transformers.pictures.saving import SCANS

        if suffix_of(output) not in SCANS or trained.model.config.channels > 1 or len(trained.model.config.shape) < 2:
            return None
        return trained.scan() or Scan(np.zeros(0, np.uint8), "")

    def pixels(self, output: Path) -> int:
        """Return the pixels per position of an image."""
        from axial_transformers.data.scan_files import suffix_of
        from axial_transformers.pictures.saving import LOSSLESS

        return 0 if suffix_of(output) in ("", *LOSSLESS) else (self.scale or 1) ** 2
