"""All settings of a run in one value: a recipe or a command makes it, and `train.json` keeps it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

from axial_transformers.data.config import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.storage.settings import COUNT, Bounds, check_settings
from axial_transformers.training.config import TrainConfig

RUN_RECORD = "train.json"


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A training run: its data, its model, how it trains, and where it goes.

    A setting is open until something decides it:

    1. A recipe returns a run, in which some settings are `open`.
    2. The command line changes settings, which closes them (`changed`).
    3. `recipes.tiled` and `recipes.suited` decide those that depend on the data.
    4. `training.fit` trains it, and writes it to train.json. Nothing is open any more.
    """

    recipe: str | None = None
    """Name of the recipe; None: begun from Python."""
    source: str | None = None
    """Source of the data, as `data.load` takes it; None: examples from Python, or a recipe without data of its own."""
    out: Path = Path("runs")
    """The run's folder."""
    validate_on: Annotated[int, COUNT] = 1000
    """Most validation examples that are evaluated during training."""
    samples: Annotated[int, Bounds(least=0, most=10_000)] = 36
    """Examples in a sample grid. 0: no grids."""
    start_from: str | None = None
    """Start from the weights of this model: a run, a folder, a hub id, or a model of the package. Its values, channels,
    layout and width stay; the shape and the classes are those of the data."""
    data: DataConfig = field(default_factory=DataConfig)
    model: AxialTransformerConfig
    training: TrainConfig = field(default_factory=TrainConfig)
    open: tuple[str, ...] = ()
    """Names of settings, such as model.shape, that the data still decide."""

    def __post_init__(self) -> None:
        check_settings(self)

    def closed(self, settings: Iterable[str]) -> Self:
        """Return the run with these settings open no more; their values stay."""
        decided = {*settings}
        return replace(self, open=tuple(name for name in self.open if name not in decided))

    def changed(self, settings: Mapping[str, Any]) -> Self:
        """Return the run with new values for settings, by name, such as samples or model.dim; they are open no more."""
        new = {name: value for name, value in settings.items() if "." not in name}
        for part in ("data", "model", "training"):
            own = {name.split(".")[1]: settings[name] for name in settings if name.startswith(f"{part}.")}
            new[part] = replace(getattr(self, part), **own)
        return replace(self, **new).closed(settings)

    def decided(self, settings: Mapping[str, Any]) -> Self:
        """Return the run with new values for those of the settings that are open."""
        return self.changed({name: value for name, value in settings.items() if name in self.open})
