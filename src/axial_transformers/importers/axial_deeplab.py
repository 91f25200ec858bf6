"""Weights of the authors' axial residual networks (github.com/csrhddlam/axial-deeplab).

- Their query-key-value projection is ordered by head first; ours by query, key, value first.
- They index the tables of queries and values by o - p; we index all by p - o (equation 4).
- Their batch normalisation interleaves the two sums of the output by channel.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from axial_transformers.models.residual_network import AxialResNet
from axial_transformers.storage.model_folders import require_finite

State = dict[str, Tensor]


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
    take = _Taker(theirs)
    ours: State = {}
    ours |= take("conv1", "stem.0") | take("bn1", "stem.1") | take("fc", "head")
    for i, stage in enumerate(model.stages):
        assert isinstance(stage, torch.nn.Sequential)
        for j, _ in enumerate(stage):
            here = f"layer{i + 1}.{j}."
            there = f"stages.{i}.{j}."
            ours |= take(here + "conv_down", there + "down", _flat) | take(here + "bn1", there + "down_norm")
            ours |= take(here + "conv_up", there + "up", _flat) | take(here + "bn2", there + "up_norm")
            for name, axis in (("hight_block", "height"), ("width_block", "width")):
                ours |= _attention(take, f"{here}{name}.", f"{there}{axis}.", model.config.heads)
            ours |= take(here + "downsample.0", there + "shortcut.0", _flat)
            ours |= take(here + "downsample.1", there + "shortcut.1")
    expected = model.state_dict()
    left = [name for name in theirs if not name.endswith("flatten_index")]
    if left or ours.keys() != expected.keys():
        missing = sorted(expected.keys() - ours.keys())
        raise ValueError(f"weights do not fit the network: nothing for {missing[:3]}, nowhere to put {left[:3]}")
    for name, tensor in ours.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{name} must be {list(expected[name].shape)}, not {list(tensor.shape)}")
        require_finite(tensor, name)
    model.load_state_dict(ours)


class _Taker:
    def __init__(self, state: State):
        self.state = state

    def __call__(self, old: str, new: str, change: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> State:
        names = [name for name in self.state if name.startswith(old + ".")]
        return {new + name.removeprefix(old): change(self.state.pop(name)) for name in names}


def _attention(take: _Taker, old: str, new: str, heads: int) -> State:
    relative = take.state.pop(old + "relative", None)
    if relative is None or relative.ndim != 2 or relative.shape[0] % 4:
        raise ValueError(f"{old}relative must be there, a tensor [2 x width of a head, 2 x size - 1]")
    key = relative.shape[0] // 4
    query_table, key_table, value_table = relative.T[:, None].split([key, key, 2 * key], dim=-1)

    def by_kind(tensor: Tensor) -> Tensor:
        if tensor.ndim == 0:
            return tensor
        parts = tensor.unflatten(0, (heads, -1)).split([key, key, 2 * key], dim=1)
        return torch.cat([part.flatten(0, 1) for part in parts])

    def part(index: slice) -> Callable[[Tensor], Tensor]:
        return lambda tensor: tensor if tensor.ndim == 0 else tensor[index]

    def bn_parts(name: str, into: str, index: slice) -> State:
        kept = {key: tensor for key, tensor in take.state.items() if key.startswith(f"{old}{name}.")}
        return _Taker(kept)(old + name, new + "normalise." + into, part(index))

    ours = {
        new + "query_table": query_table.flip(0),
        new + "key_table": key_table,
        new + "value_table": value_table.flip(0),
    }
    ours |= take(old + "qkv_transform", new + "qkv", lambda kernel: by_kind(kernel).squeeze(-1))
    ours |= take(old + "bn_qkv", new + "normalise.of_qkv", by_kind)
    for term in range(3):
        ours |= bn_parts("bn_similarity", f"of_terms.{term}", slice(term * heads, (term + 1) * heads))
    ours |= bn_parts("bn_output", "of_content", slice(0, None, 2)) | bn_parts(
        "bn_output", "of_position", slice(1, None, 2)
    )
    for name in ("bn_similarity", "bn_output"):
        take(old + name, "")
    return ours


def _flat(kernel: Tensor) -> Tensor:
    return kernel.flatten(1)
