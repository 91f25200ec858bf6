"""Weights of the package `axial_attention` (github.com/lucidrains/axial-attention, tested with 0.6.1)."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from axial_transformers.layers.attention import AxialAttention
from axial_transformers.storage.model_folders import require_finite

PARTS = ("to_q.weight", "to_kv.weight", "to_out.weight", "to_out.bias")


def from_axial_attention(
    state: Mapping[str, Tensor],
    heads: int = 8,
    combine: Literal["sequence", "sum"] = "sum",
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
    count = len({name.split(".")[1] for name in theirs if name.startswith("axial_attentions.")}) or 1
    expected = {f"axial_attentions.{i}.fn.{part}" for i in range(count) for part in PARTS}
    missing = sorted(expected - theirs.keys())
    left = sorted(theirs.keys() - expected)
    if missing or left:
        raise ValueError(
            f"weights are not those of axial_attention's AxialAttention: missing {missing[:3]}, left over {left[:3]}"
        )
    out = theirs["axial_attentions.0.fn.to_out.weight"]
    if out.ndim != 2:
        raise ValueError(f"axial_attentions.0.fn.to_out.weight must be a matrix, not {list(out.shape)}")
    dim, width = out.shape
    shapes = dict(zip(PARTS, ((width, dim), (2 * width, dim), (dim, width), (dim,))))
    for name, tensor in theirs.items():
        shape = shapes[name.split(".fn.")[1]]
        if tensor.shape != shape:
            raise ValueError(f"{name} must be {list(shape)}, not {list(tensor.shape)}")
        require_finite(tensor, name)
    layer = AxialAttention(dim, heads, range(1, count + 1), combine, key_dim=width, value_dim=width)
    for i, attention in enumerate(layer.layers.values()):
        query, key_value, weight, bias = (theirs[f"axial_attentions.{i}.fn.{part}"] for part in PARTS)
        qkv = torch.cat([query, key_value])
        own = {"qkv.weight": qkv, "qkv.bias": qkv.new_zeros(len(qkv)), "out.weight": weight, "out.bias": bias}
        attention.load_state_dict(own)
    return layer
