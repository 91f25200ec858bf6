"""The authors' variables, and the configuration that follows.

    SCOPE/embs, pos_embs_h, pos_embs_w             Transformer2d: the decoders of one channel
    SCOPE/outer_row_I, outer_col_I, inner_row_I        a block: layernorm_attn, attn, layernorm_mlp, mlp
    SCOPE/final_ln, final_dense
    PARENT/pos_embs_h, pos_embs_w                  Transformer3d, whose SCOPE is PARENT/transformer2d
    PARENT/exterior_input_conv
    PARENT/exterior_row_I, exterior_col_I
    NAME/ExponentialMovingAverage, Adam, Adam_1    of each variable, from training
    global_step, beta1_power, beta2_power          from training

MultiChannelTransformer2d is PARENT/transformer2d without an encoder, its channels stacked as rows.
"""

import re
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from torch import Tensor

from axial_transformers.models import AxialTransformerConfig

AVERAGE = "/ExponentialMovingAverage"
_SLOTS = ("", AVERAGE, "/Adam", "/Adam_1")
_BOOKKEEPING = {"global_step", "beta1_power", "beta2_power"}

AUTHORS_DIVISOR = 255
VARIABLES_OF_A_LAYER = 16
MAX_LISTED = 400
"""Characters of a list of variables in a message."""

NAMES = {
    r"^embed_value\.table": "embs",
    r"^(encoder\.)?position\.tables\.0": "pos_embs_h",
    r"^(encoder\.)?position\.tables\.1": "pos_embs_w",
    r"^encoder\.convolution\.": "exterior_input_conv/",
    r"^encoder\.blocks": "exterior",
    r"^outer_decoders\.0\.blocks": "outer",
    r"^inner_decoder\.blocks": "inner",
    r"^head\.0\.": "final_ln/",
    r"^head\.1\.": "final_dense/",
    r"attention\.norm\.": "layernorm_attn/",
    r"attention\.attention\.qkv\.": "attn/qkv/",
    r"attention\.attention\.out\.": "attn/proj_out/",
    r"feedforward\.norm\.": "layernorm_mlp/",
    r"feedforward\.expand\.": "mlp/proj_in/",
    r"feedforward\.contract\.": "mlp/proj_out/",
    r"(final_ln|layernorm_\w+)/weight": r"\1/g",
    r"/weight": "/w",
    r"/bias": "/b",
}
"""Patterns of our names, and theirs."""

Shapes = Mapping[str, tuple[int, ...]]


class VariablesError(ValueError):
    """The checkpoint's variables are not the model's; the message names them."""


def decoder_scope(names: Mapping[str, object]) -> str:
    """Return the scope of the one Transformer2d, with its slash."""
    scopes = [name.removesuffix("embs") for name in names if re.search(r"(^|/)embs$", name)]
    if len(scopes) != 1:
        raise VariablesError(
            f"an Axial Transformer has one variable called SCOPE/embs; found {_brief(scopes) or 'none'}"
        )
    return scopes[0]


def infer_config(
    shapes: Shapes,
    *,
    heads: int,
    channels: int | None,
) -> AxialTransformerConfig:
    """Return the configuration of the model with these variables; see `import_official`."""
    scope = decoder_scope(shapes)
    parent = _parent(scope)
    num_values, dim = _sizes(shapes, f"{scope}embs", 2)
    height, _ = _sizes(shapes, f"{scope}pos_embs_h", 2)
    width, _ = _sizes(shapes, f"{scope}pos_embs_w", 2)
    _, hidden = _sizes(shapes, f"{scope}inner_row_0/mlp/proj_in/w", 2)
    encoder_layers = 2 * _layers(shapes, f"{parent}exterior_row")
    others: dict[str, Any] = {}
    if encoder_layers:
        kernel = f"{parent}exterior_input_conv/w"
        own = _sizes(shapes, kernel, 4)[2] // 2
        if channels not in (None, own):
            raise VariablesError(f"{kernel} is for {own} channels, not for {channels}")
        channels = own
        others["input_divisor"] = AUTHORS_DIVISOR
    else:
        if channels is None:
            channels = 3 if parent else 1
        if channels < 1 or height % channels:
            raise VariablesError(
                f"{scope}pos_embs_h has {height} rows, which {channels} channels cannot share: give channels"
            )
        height //= channels
        others["layout"] = "rows" if channels > 1 else "channels"
    return AxialTransformerConfig(
        shape=(height, width),
        channels=channels,
        num_values=num_values,
        dim=dim,
        heads=heads,
        mlp_ratio=hidden / max(1, dim),
        encoder_layers=encoder_layers,
        outer_layers=2 * _layers(shapes, f"{scope}outer_row"),
        inner_layers=_layers(shapes, f"{scope}inner_row"),
        **others,
    )


def _sizes(
    shapes: Shapes,
    name: str,
    axes: int,
) -> tuple[int, ...]:
    """Return the shape of a variable with this number of axes."""
    shape = shapes.get(name, ())
    if len(shape) != axes:
        raise VariablesError(f"{name} must have {axes} axes, but is {[*shape] or 'missing'}")
    return shape


def _layers(shapes: Shapes, prefix: str) -> int:
    """Return how many scopes are called prefix_0, prefix_1, ..."""
    blocks = [re.match(rf"{re.escape(prefix)}_(\d+)/", name) for name in shapes]
    return len({block[1] for block in blocks if block})


def variables(tensors: Mapping[str, Tensor], scope: str) -> dict[str, Tensor]:
    """Return views of a model's tensors by the authors' names and shapes; writing changes the model."""
    views = {}
    for name, tensor in tensors.items():
        theirs = _their_name(name)
        if theirs.endswith("/w"):
            tensor = tensor.T
        if theirs == "exterior_input_conv/w":
            tensor = tensor.unflatten(0, (3, 3, -1))
        theirs = (_parent(scope) or "" if name.startswith("encoder.") else scope) + theirs
        if "/qkv/" in theirs:
            for part, view in zip("qkv", tensor.chunk(3, dim=-1)):
                views[theirs.replace("/qkv/", f"/{part}/")] = view
        else:
            views[theirs] = tensor
    return views


def _their_name(name: str) -> str:
    """Return the authors' name of a tensor, within its scope."""
    for pattern, theirs in NAMES.items():
        name = re.sub(pattern, theirs, name)
    return re.sub(r"^(exterior|outer|inner)\.(\d+)\.", _block_name, name)


def _block_name(block: re.Match[str]) -> str:
    """Return the scope of the i-th block of a stack: rows and columns alternate, but for the inner decoder."""
    axes = ["row"] if block[1] == "inner" else ["row", "col"]
    layer, axis = divmod(int(block[2]), len(axes))
    return f"{block[1]}_{axes[axis]}_{layer}/"


def check_variables(variables: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise VariablesError unless the variables, less those of training, are the model's, by type and shape."""
    known = {name.removesuffix(AVERAGE) + slot for name in wanted for slot in _SLOTS} | _BOOKKEEPING
    missing = []
    different = []
    for name, what in wanted.items():
        if name not in variables:
            missing.append(name)
        elif variables[name] != what:
            different.append(f"{name} is {variables[name]}, not {what}")
    unknown = [name for name in variables if name not in known]
    differences = {"missing": missing, "unknown": unknown, "different": different}
    listed = [f"{kind}: {_brief(names)}" for kind, names in differences.items() if names]
    if listed:
        raise VariablesError(f"the variables are not those of an Axial Transformer; {'; '.join(listed)}")


def _parent(scope: str) -> str | None:
    match = re.fullmatch(r"(.+/)transformer2d/", scope)
    return match and match[1]


def _brief(names: list[str]) -> str:
    return shorten(", ".join(names), MAX_LISTED)
