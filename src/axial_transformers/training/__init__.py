"""Training: the loop, its settings, and the folder of a run."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.training.checkpoints import raw_weights as raw_weights
    from axial_transformers.training.config import RunConfig as RunConfig, TrainConfig as TrainConfig
    from axial_transformers.training.fit import train as train
    from axial_transformers.training.metrics import NonFiniteLoss as NonFiniteLoss
    from axial_transformers.training.run_folder import Facts as Facts, RunRecord as RunRecord, read_run as read_run
    from axial_transformers.training.run_state import RunState as RunState

_HOMES = {
    "Facts": "run_folder",
    "NonFiniteLoss": "metrics",
    "RunConfig": "config",
    "RunRecord": "run_folder",
    "RunState": "run_state",
    "TrainConfig": "config",
    "raw_weights": "checkpoints",
    "read_run": "run_folder",
    "train": "fit",
}
__getattr__ = opened_at_first_use(__name__, _HOMES)
