"""The fields of a recipe."""

from dataclasses import dataclass, field

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training import TrainConfig

NOT_YET_MEASURED = "not yet measured"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole configuration: data, model and training, and the likelihood that they reach."""

    title: str
    """The data that is modelled, in a few words."""
    reaches: str
    """Bits/dim of this configuration, with the data and the machine; or `NOT_YET_MEASURED`."""
    source: str | None = None
    """Source of the data, as for `data.load`; None: the user names one."""
    data: DataConfig = field(default_factory=DataConfig)
    """Options of reading the source."""
    model: AxialTransformerConfig
    """The model; the data must have its shape."""
    training: TrainConfig
    """Options of training."""
