"""Embeddings of values, positions and class labels."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from axial_transformers.layers.initialisation import normal_table


class Embedding(nn.Module):
    """A table [entries, D], indexed by integers of any shape."""

    def __init__(self, entries: int, dim: int):
        super().__init__()
        self.table = normal_table(entries, dim)

    def forward(self, x: Integer[Tensor, "*a"]) -> Float[Tensor, "*a d"]:
        return nn.functional.embedding(x, self.table)


class Positions(nn.Module):
    """Position embeddings: the sum of a row of each axis' table (section 3.2.1)."""

    def __init__(self, shape: tuple[int, ...], dim: int):
        super().__init__()
        self.tables = nn.ParameterList(normal_table(size, dim) for size in shape)

    def forward(self) -> Float[Tensor, "*a d"]:
        total = self.tables[0]
        for table in list(self.tables)[1:]:
            total = total.unsqueeze(-2) + table
        return total


class Labels(nn.Module):
    """Class embeddings; the last row is for unlabelled examples."""

    def __init__(self, classes: int, dim: int):
        super().__init__()
        self.classes = classes
        self.embed = Embedding(classes + 1, dim)

    def forward(self, label: Integer[Tensor, " b"] | None, batch: int) -> Float[Tensor, "b d"]:
        if label is None:
            label = torch.full((batch,), self.classes, device=next(self.parameters()).device)
        return self.embed(label)
