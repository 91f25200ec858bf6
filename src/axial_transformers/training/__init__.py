"""Training: the loop, its settings, and the folder of a run."""

from axial_transformers.training.config import TrainConfig
from axial_transformers.training.metrics import NonFiniteLoss
from axial_transformers.training.run import Together
from axial_transformers.training.run_folder import Origin, RunRecord, decided, raw_weights, read_run
from axial_transformers.training.training_loop import TrainResult, train
from axial_transformers.training.understanding import Understanding

__all__ = [
    "NonFiniteLoss",
    "Origin",
    "RunRecord",
    "Together",
    "TrainConfig",
    "TrainResult",
    "Understanding",
    "decided",
    "raw_weights",
    "read_run",
    "train",
]
