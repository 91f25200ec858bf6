"""Options that several commands have."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from cyclopts import Parameter
from cyclopts.validators import Number

from axial_transformers.cli.console import rank_zero_output
from axial_transformers.data.config import DataConfig

if TYPE_CHECKING:  # options are read without torch
    import torch

    from axial_transformers.data.scans import Scan
    from axial_transformers.pictures import Look
    from axial_transformers.training.processes import Processes
    from axial_transformers.training.trained_model import TrainedModel

Positive = Annotated[int, Parameter(validator=Number(gte=1, lte=2**63 - 1))]
Source = Annotated[
    str | Path | None,
    Parameter(help="Data, as axial train reads them. None: the run's own."),
]
Split = Annotated[
    Literal["train", "validation", "test", "all"] | None,
    Parameter(help="None: all of a source; of a model's own data the test part, or else the validation part."),
]
Weights = Annotated[
    Literal["ema", "raw"],
    Parameter(help="The moving average of the weights, or the raw ones of a run's newest checkpoint."),
]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16"],
    Parameter(help="Arithmetic of matrix products. auto: bfloat16 on a GPU that has them, else float32."),
]
NO_OPTION = Parameter(parse=False)
READING = ("size", "cut", "frames", "mode", "axes", "key", "column", "decimal")
"""Settings of data that may differ from those that a model was trained with."""


def _reading_class() -> type[DataConfig]:
    """Return a class of settings of data that are None where they are not given; only those of READING are options."""
    of_training = Parameter(show_default=lambda _: "as when the model was trained")
    members: list[tuple[str, Any, Any]] = []
    for name, hint in get_type_hints(DataConfig).items():
        parameter = of_training if name in READING else NO_OPTION
        members.append((name, Annotated[hint | None, parameter], None))
    namespace = {"__module__": __name__, "__post_init__": lambda self: None}  # None is no valid setting
    return make_dataclass("Reading", members, bases=(DataConfig,), namespace=namespace, frozen=True, kw_only=True)


if TYPE_CHECKING:
    Reading = DataConfig
else:
    Reading = _reading_class()


def sorted_words(
    model: str | Path | None, source: str | Path | None, target: str | Path | None, names: str
) -> tuple[str | Path | None, str | Path, Path]:
    """Return the words of a command whose first one may be left out; the model is then None.

    Raises:
        ValueError: source or target is missing.
    """
    if target is None:
        model, source, target = None, model, source
    if source is None or target is None:
        raise ValueError(f"{names} are both needed: name them one after the other")
    return model, source, Path(target)


def products_in(precision: Precision, device: "torch.device") -> "torch.autocast":
    """Return the context for products of this precision."""
    import torch

    from axial_transformers.machine import multiplies_bfloat16

    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and multiplies_bfloat16(device) else "float32"
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def processes_on(device: str, precision: Precision) -> Iterator["Processes"]:
    """Connect the processes of torchrun, and compute products in this precision, within the block."""
    from axial_transformers.training.config import find_device
    from axial_transformers.training.processes import Processes

    with rank_zero_output():
        processes = Processes(find_device(device))
    with processes, products_in(precision, processes.device):
        yield processes


@dataclass(frozen=True)
class OfModel:
    """Options of commands that read a model."""

    model: str | Path
    """Folder of a run or of an exported model, or a hub id."""
    _: KW_ONLY
    weights: Weights = "ema"
    device: str = "auto"
    """cuda, cuda:1, cpu, ...; auto takes CUDA if there is any."""
    data: Annotated[Reading, Parameter(group="Data")] = field(default_factory=Reading)

    def opened(self, device: "torch.device | None" = None) -> "TrainedModel":
        """Return the model, and how its data are to be read: as given, otherwise as when it was trained."""
        from axial_transformers.training.trained_model import open_model

        trained = with_recipe_data(open_model(self.model, self.weights, str(device or self.device)))
        given = {name: value for name, value in vars(self.data).items() if value is not None}
        sides = trained.model.config.shape[-2:]
        square = len(sides) == 2 and sides[0] == sides[1]
        if self.data.cut and square and not (self.data.size or trained.data.size):
            given["size"] = sides[0]
        return replace(trained, data=replace(trained.data, **given))


def with_recipe_data(trained: "TrainedModel") -> "TrainedModel":
    """Return a model of the package with the data of its recipe; other models as they are."""
    from axial_transformers.recipes import NAMED
    from axial_transformers.storage.model_folders import is_shipped

    recipe = NAMED.get(trained.folder)
    if recipe is None or not is_shipped(trained.folder):
        return trained
    trained_on = (recipe.settings.data, recipe.trained_on) if recipe.trained_on else None
    return replace(trained, source=recipe.settings.source, trained_on=trained_on)


@dataclass(frozen=True)
class OnData(OfModel):
    """Options of commands that evaluate a model on data."""

    source: Source = None
    _: KW_ONLY
    split: Split = None
    limit: Positive | None = None
    """Number of examples of each source, evenly spaced over it."""
    batch_size: Positive = 64
    """Examples at a time. A CPU's result does not depend on it; a GPU's by rounding only."""


@dataclass(frozen=True, kw_only=True)
class Shades:
    """How values are shown."""

    window: tuple[float, float] | None = None
    """The values shown as black and white. None: the lowest and the highest, or, of more than 256 values, the
    percentiles 0.5 and 99.5."""

    def look(self, trained: "TrainedModel") -> "Look":
        """Return how values of the model are shown."""
        from axial_transformers.pictures import Look

        return replace(Look.of(trained.model.config, trained.data.axes), window=self.window)


@dataclass(frozen=True, kw_only=True)
class Sampling(OfModel, Shades):
    """Options of commands that sample, and write what they sample."""

    scale: Annotated[int | None, Parameter(validator=Number(gte=1, lte=256))] = None
    """Enlargement of an image. None: a whole factor for a width of at least 512 pixels."""
    seed: Annotated[int, Parameter(validator=Number(gte=-(2**63), lt=2**63))] = 0
    """Equal seeds give equal samples."""
    temperature: float = 1.0
    """1 samples from the model's distribution, less favours likely values, 0 takes the likeliest ones."""
    label: str | None = None
    """Class of all samples, for class-conditional models: its name or its number. None: no label."""
    precision: Precision = "auto"

    def scan(self, out: Path, trained: "TrainedModel") -> "Scan | None":
        """Return the scan that a file is like: the data, or one without geometry; None: it cannot be a scan."""
        import numpy as np

        from axial_transformers.data.scans import Scan, suffix_of
        from axial_transformers.pictures.saving import SCANS

        if suffix_of(out) not in SCANS or trained.model.config.channels > 1 or len(trained.model.config.shape) < 2:
            return None
        return trained.scan() or Scan(np.zeros(0, np.uint8), "")
