"""Training: the loop, its settings, and the folder of a run."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.training.checkpoints import raw_weights
    from axial_transformers.training.config import RunConfig, TrainConfig
    from axial_transformers.training.fit import train
    from axial_transformers.training.metrics import NonFiniteLoss
    from axial_transformers.training.run_folder import Facts, RunRecord, read_run
    from axial_transformers.training.run_state import RunState

__all__ = [
    "Facts",
    "NonFiniteLoss",
    "RunConfig",
    "RunRecord",
    "RunState",
    "TrainConfig",
    "raw_weights",
    "read_run",
    "train",
]

__getattr__ = opened_at_first_use(
    __name__,
    {
        "Facts": "run_folder",
        "NonFiniteLoss": "metrics",
        "RunConfig": "config",
        "RunRecord": "run_folder",
        "RunState": "run_state",
        "TrainConfig": "config",
        "raw_weights": "checkpoints",
        "read_run": "run_folder",
        "train": "fit",
    },
)
