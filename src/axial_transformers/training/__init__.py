"""Training: the loop, and what decides its every step."""

from axial_transformers.training.config import TrainConfig
from axial_transformers.training.loop import TrainResult, train
from axial_transformers.training.metrics import NonFiniteLoss

__all__ = ["NonFiniteLoss", "TrainConfig", "TrainResult", "train"]
