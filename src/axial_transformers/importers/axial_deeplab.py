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
    ours = _moved(theirs, "conv1", "stem.0") | _moved(theirs, "bn1", "stem.1") | _moved(theirs, "fc", "head")
    for i, blocks in enumerate(model.config.blocks):
        for j in range(blocks):
            ours |= _block(theirs, f"layer{i + 1}.{j}.", f"stages.{i}.{j}.", model.config.heads)
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


def _block(theirs: State, old: str, new: str, heads: int) -> State:
    """Return the tensors of a bottleneck by our names."""
    ours = _moved(theirs, f"{old}bn1", f"{new}down_norm") | _moved(theirs, f"{old}bn2", f"{new}up_norm")
    ours |= _moved(theirs, f"{old}downsample.1", f"{new}shortcut.1")
    for kernel, layer in {"conv_down": "down", "conv_up": "up", "downsample.0": "shortcut.0"}.items():
        ours |= _moved(theirs, old + kernel, new + layer, lambda tensor: tensor.flatten(1))
    for block, axis in {"hight_block": "height", "width_block": "width"}.items():
        ours |= _attention(theirs, f"{old}{block}.", f"{new}{axis}.", heads)
    return ours


def _attention(theirs: State, old: str, new: str, heads: int) -> State:
    """Return the tensors of attention along one axis by our names."""
    relative = theirs.pop(old + "relative", None)
    if relative is None or relative.ndim != 2 or relative.shape[0] % 4:
        raise ValueError(f"{old}relative must be there, a tensor [2 x width of a head, 2 x size - 1]")
    key = relative.shape[0] // 4
    widths = [key, key, 2 * key]
    query_table, key_table, value_table = relative.T[:, None].split(widths, dim=-1)

    def by_kind(tensor: Tensor) -> Tensor:
        if tensor.ndim == 0:
            return tensor
        parts = tensor.unflatten(0, (heads, -1)).split(widths, dim=1)
        return torch.cat([part.flatten(0, 1) for part in parts])

    ours = {
        new + "query_table": query_table.flip(0),
        new + "key_table": key_table,
        new + "value_table": value_table.flip(0),
    }
    ours |= _moved(theirs, old + "qkv_transform", new + "qkv", lambda kernel: by_kind(kernel).squeeze(-1))
    ours |= _moved(theirs, old + "bn_qkv", new + "normalise.of_qkv", by_kind)
    terms = {f"of_terms.{term}": slice(term * heads, (term + 1) * heads) for term in range(3)}
    sums = {"of_content": slice(0, None, 2), "of_position": slice(1, None, 2)}
    return ours | _cut(theirs, old + "bn_similarity", new, terms) | _cut(theirs, old + "bn_output", new, sums)


def _moved(theirs: State, old: str, new: str, change: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> State:
    """Take the tensors of one of their modules out of `theirs`; return them by our names, changed."""
    names = [name for name in theirs if name.startswith(old + ".")]
    return {new + name.removeprefix(old): change(theirs.pop(name)) for name in names}


def _cut(theirs: State, old: str, new: str, parts: Mapping[str, slice]) -> State:
    """Take a batch normalisation out of `theirs`; return its channels as several of ours."""
    whole = _moved(theirs, old, "")
    ours: State = {}
    for module, channels in parts.items():
        for name, tensor in whole.items():
            ours[f"{new}normalise.{module}{name}"] = tensor[channels] if tensor.ndim else tensor
    return ours
