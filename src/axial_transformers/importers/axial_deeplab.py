"""Weights of the authors' axial residual networks (github.com/csrhddlam/axial-deeplab).

- Their query-key-value projection is ordered by head first; ours by query, key, value first.
- They index the tables of queries and values by o - p; we index all by p - o (equation 4).
- Their batch normalisation interleaves the two sums of the output by channel.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from axial_transformers.models.residual_network import AxialResNet
from axial_transformers.storage.model_folders import require_finite

NAMES = {
    r"^stem\.0": "conv1",
    r"^stem\.1": "bn1",
    r"^head": "fc",
    r"\.down\.": ".conv_down.",
    r"\.up\.": ".conv_up.",
    r"down_norm": "bn1",
    r"up_norm": "bn2",
    r"shortcut": "downsample",
    r"height": "hight_block",
    r"width": "width_block",
    r"\w+_table": "relative",
    r"\.qkv": ".qkv_transform",
    r"normalise\.of_qkv": "bn_qkv",
    r"normalise\.of_terms\.\d": "bn_similarity",
    r"normalise\.of_(content|position)": "bn_output",
}
"""Patterns of our names, and theirs."""


def load_axial_deeplab(model: AxialResNet, state: Mapping[str, Tensor]) -> None:
    """Load tensors by the authors' names into `model`.

    Args:
        model: a network of the same blocks, width, heads, shape and classes; changed in place.
        state: tensors by name, such as torch.load(path, weights_only=True)["state_dict"]. A leading "module." is
            ignored.

    Raises:
        ValueError: a tensor is missing, left over, of another shape, or holds NaN or infinity.
    """
    theirs = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    expected = model.state_dict()
    names = {name: _their_name(name) for name in expected}
    missing = [name for name, old in names.items() if old not in theirs]
    left = [name for name in sorted(theirs.keys() - names.values()) if not name.endswith("flatten_index")]
    if missing or left:
        raise ValueError(f"weights do not fit the network: nothing for {missing[:3]}, nowhere to put {left[:3]}")
    ours = {}
    for name, own in expected.items():
        tensor = _converted(name, theirs[names[name]], own, model.config.heads)
        if tensor.shape != own.shape:
            raise ValueError(f"{name} must be {list(own.shape)}, not {list(tensor.shape)}")
        require_finite(tensor, name)
        ours[name] = tensor
    model.load_state_dict(ours)


def _their_name(name: str) -> str:
    name = re.sub(r"^stages\.(\d+)", lambda stage: f"layer{int(stage[1]) + 1}", name)
    for pattern, theirs in NAMES.items():
        name = re.sub(pattern, theirs, name)
    return name


def _converted(
    name: str,
    tensor: Tensor,
    own: Tensor,
    heads: int,
) -> Tensor:
    """Return what our tensor of a name takes of theirs; a tensor that does not fit keeps a wrong shape."""
    if tensor.ndim > own.ndim > 0:  # kernels of 1 x 1
        tensor = tensor.flatten(own.ndim - 1)
    if tensor.ndim == 0:
        return tensor
    *_, module, kind = name.split(".")
    if kind.endswith("_table") and tensor.ndim == 2:
        query, key, value = tensor.T[:, None].tensor_split([len(tensor) // 4, len(tensor) // 2], dim=-1)
        return {"query_table": query.flip(0), "key_table": key, "value_table": value.flip(0)}[kind]
    if module in ("qkv", "of_qkv") and len(tensor) == len(own):
        by_head = tensor.unflatten(0, (heads, -1))
        width = by_head.shape[1] // 4
        return torch.cat([x.flatten(0, 1) for x in by_head.tensor_split([width, 2 * width], dim=1)])
    if module in ("of_content", "of_position"):
        return tensor[module == "of_position" :: 2]
    if "of_terms" in name:
        return tensor[int(module) * heads :][:heads]
    return tensor
