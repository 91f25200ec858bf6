"""Groups of models that experiments/ablation.py compares, and their sizes.

The models of a group are as large as its first, within 5 %: the width of the feedforward blocks makes up the
difference. The exceptions, named in `Group.as_given`, keep the first model's width, so that nothing but the part in
question differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from axial_transformers.data import DataConfig
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from sequence_models import (
    BlockTransformer,
    BlockTransformerConfig,
    ImageTransformer,
    ImageTransformerConfig,
    SparseTransformer,
    SparseTransformerConfig,
)

MODELS = {
    model.config_class: model for model in (AxialTransformer, ImageTransformer, BlockTransformer, SparseTransformer)
}
COMMON: dict[str, Any] = {"dim": 64, "heads": 2}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Models to compare on the same data."""

    train: str
    test: str
    data: DataConfig = field(default_factory=DataConfig)
    test_count: int
    """Test examples looked at, evenly spread."""
    steps: int
    batch: int
    rows: Mapping[str, AxialTransformerConfig]
    as_given: frozenset[str] = frozenset()
    """Rows whose feedforward blocks keep the width that they are given."""

    def config(self, row: str) -> AxialTransformerConfig:
        """The row's model, of the first row's size unless it is `as_given`."""
        if row in self.as_given:
            return self.rows[row]
        return of_size(self.rows[row], size(next(iter(self.rows.values()))))

    def model(self, row: str, seed: int) -> AxialTransformer:
        """The row's model, with the initial weights of a seed."""
        torch.manual_seed(seed)
        config = self.config(row)
        return MODELS[type(config)](config)


def _groups() -> dict[str, Group]:
    gray = {"shape": (28, 28), **COMMON}
    sequence = {**gray, "inner_layers": 8}
    colours = {"shape": (32, 32), "channels": 3, **COMMON}
    attention = AxialTransformerConfig(outer_layers=4, inner_layers=4, mlp_ratio=2.0, **gray)
    lstm = replace(attention, inner="lstm", inner_layers=1)
    channels = AxialTransformerConfig(encoder_layers=2, outer_layers=4, inner_layers=2, mlp_ratio=2.0, **colours)
    return {
        "fashion": Group(
            train="fashion_mnist_train.npz",
            test="fashion_mnist_test.npz",
            test_count=300,
            steps=400,
            batch=8,
            rows={
                "axial, attention": attention,
                "axial, row-wise": replace(attention, outer_layers=0, inner_layers=8),
                "axial, LSTM": lstm,
                "axial, LSTM, all else fixed": lstm,
                "Strided Sparse Transformer": SparseTransformerConfig(**sequence),
                "Image Transformer": ImageTransformerConfig(block=112, memory=112, **sequence),
                "Block Transformer": BlockTransformerConfig(blocks=((14, 14), (4, 28)), **sequence),
            },
            as_given=frozenset({"axial, LSTM, all else fixed"}),
        ),
        "photos": Group(
            train="photos/train",
            test="photos/test",
            data=DataConfig(size=32, cut="tiles", mode="rgb"),
            test_count=120,
            steps=400,
            batch=4,
            rows={
                "channels": channels,
                "channels, row-wise": replace(channels, outer_layers=0, inner_layers=6),
                "channels, LSTM": replace(channels, inner="lstm", inner_layers=1),
            },
        ),
    }


GROUPS = _groups()


def size(config: AxialTransformerConfig) -> int:
    """Parameters of the model."""
    with torch.device("meta"):
        return sum(p.numel() for p in MODELS[type(config)](config).parameters())


def of_size(config: AxialTransformerConfig, parameters: int) -> AxialTransformerConfig:
    """The configuration whose feedforward blocks are so wide that the model has so many parameters, within 5 %."""
    narrow, wide = (size(replace(config, mlp_ratio=ratio)) for ratio in (1.0, 2.0))
    hidden = round(config.dim * (1 + (parameters - narrow) / (wide - narrow)))
    sized = replace(config, mlp_ratio=hidden / config.dim)
    assert abs(size(sized) / parameters - 1) < 0.05
    return sized
