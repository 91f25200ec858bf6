"""Training: the loop, its settings, and the folder of a run."""

from typing import TYPE_CHECKING

from axial_transformers.doors import opened_at_first_use

if TYPE_CHECKING:
    from axial_transformers.training.config import TrainConfig
    from axial_transformers.training.metrics import NonFiniteLoss
    from axial_transformers.training.run import Collective
    from axial_transformers.training.run_folder import Origin, RunRecord, Summary, raw_weights, read_run
    from axial_transformers.training.training_loop import TrainResult, train

__all__ = [
    "Collective",
    "NonFiniteLoss",
    "Origin",
    "RunRecord",
    "Summary",
    "TrainConfig",
    "TrainResult",
    "raw_weights",
    "read_run",
    "train",
]

__getattr__ = opened_at_first_use(
    __name__,
    {
        "Collective": "run",
        "NonFiniteLoss": "metrics",
        "Origin": "run_folder",
        "RunRecord": "run_folder",
        "Summary": "run_folder",
        "TrainConfig": "config",
        "TrainResult": "training_loop",
        "raw_weights": "run_folder",
        "read_run": "run_folder",
        "train": "training_loop",
    },
)
