"""Weights of the package `axial_attention` (github.com/lucidrains/axial-attention, tested with 0.6.1)."""

import re
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from axial_transformers.layers.attention import AxialAttention
from axial_transformers.storage.model_folders import require_finite

PARTS = ("to_q.weight", "to_kv.weight", "to_out.weight", "to_out.bias")


def from_axial_attention(
    state: Mapping[str, Tensor], heads: int = 8, combine: Literal["sequence", "sum"] = "sum"
) -> AxialAttention:
    """Return the layer that `axial_attention.AxialAttention` with this state_dict is.

    Axes and widths follow from the tensors. The biases of queries, keys and values are zero.

    Args:
        state: tensors by name, such as layer.state_dict(). A leading "module." is ignored.
        heads: number of heads, which no tensor says; 8 is the package's default.
        combine: "sum", or "sequence" for a layer made with sum_axial_out=False.

    Returns:
        A layer on [B, *A, D], dim_index=-1; for dim_index=1, wrap it in `ChannelsFirst`.

    Raises:
        ValueError: a tensor is missing, left over, of another shape, or holds NaN or infinity.
    """
    theirs = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    axes = {int(match[1]) for name in theirs if (match := re.match(r"axial_attentions\.(\d+)\.fn\.", name))} or {0}
    expected = {f"axial_attentions.{i}.fn.{part}" for i in range(len(axes)) for part in PARTS}
    missing = sorted(expected - theirs.keys())
    left = sorted(theirs.keys() - expected)
    if missing or left:
        raise ValueError(
            f"weights are not those of axial_attention's AxialAttention: missing {missing[:3]}, left over {left[:3]}"
        )
    dim, width = _sizes(theirs["axial_attentions.0.fn.to_out.weight"])
    shapes = dict(zip(PARTS, ((width, dim), (2 * width, dim), (dim, width), (dim,))))
    for name, tensor in theirs.items():
        if tensor.shape != (shape := shapes[name.split(".fn.")[1]]):
            raise ValueError(f"{name} must be {list(shape)}, not {list(tensor.shape)}")
        require_finite(tensor, name)
    numbers = tuple(i + 1 for i in range(len(axes)))
    layer = AxialAttention(dim, heads, numbers, combine, key_dim=width, value_dim=width)
    layer.load_state_dict({name: tensor for axis in numbers for name, tensor in _of_axis(theirs, axis).items()})
    return layer


def _sizes(out: Tensor) -> tuple[int, int]:
    if out.ndim != 2:
        raise ValueError(f"axial_attentions.0.fn.to_out.weight must be a matrix, not {list(out.shape)}")
    return out.shape[0], out.shape[1]


def _of_axis(theirs: Mapping[str, Tensor], axis: int) -> dict[str, Tensor]:
    query, key_value, weight, bias = (theirs[f"axial_attentions.{axis - 1}.fn.{part}"] for part in PARTS)
    qkv = torch.cat([query, key_value])
    ours = {"qkv.weight": qkv, "qkv.bias": qkv.new_zeros(len(qkv)), "out.weight": weight, "out.bias": bias}
    return {f"layers.axis_{axis}.{name}": tensor for name, tensor in ours.items()}
