"""What a recipe is."""

from dataclasses import dataclass, field

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training import TrainConfig

NOT_YET_MEASURED = "not yet measured"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole configuration: data, model and training, and the number that they reach."""

    title: str
    """What is modelled, in a few words."""
    reaches: str
    """The number that this configuration reaches, of what and on what machine; or `NOT_YET_MEASURED`."""
    source: str | None = None
    """Where the data comes from; None: the user says."""
    data: DataConfig = field(default_factory=DataConfig)
    """How the source is read."""
    model: AxialTransformerConfig
    """The model, whose shape the data must have."""
    training: TrainConfig
    """How it is trained."""
