"""Training: the loop, its settings, and the folder of a run."""

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
