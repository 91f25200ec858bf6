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
from typing import Any

from torch import Tensor

from axial_transformers.models import AxialTransformerConfig

AVERAGE = "/ExponentialMovingAverage"
_SLOTS = ("", AVERAGE, "/Adam", "/Adam_1")
_BOOKKEEPING = {"global_step", "beta1_power", "beta2_power"}

AUTHORS_DIVISOR = 255
VARIABLES_OF_A_LAYER = 16

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


def infer_config(shapes: Shapes, *, heads: int, channels: int | None) -> AxialTransformerConfig:
    """Return the configuration of the model with these variables; see `import_official`."""
    scope = decoder_scope(shapes)
    parent = _parent(scope)
    num_values, dim = _sizes(shapes, f"{scope}embs", 2)
    height, _ = _sizes(shapes, f"{scope}pos_embs_h", 2)
    width, _ = _sizes(shapes, f"{scope}pos_embs_w", 2)
    _, hidden = _sizes(shapes, f"{scope}inner_row_0/mlp/proj_in/w", 2)
    decoders: dict[str, Any] = {
        "num_values": num_values,
        "dim": dim,
        "heads": heads,
        "mlp_ratio": hidden / max(1, dim),
        "outer_layers": 2 * _layers(shapes, f"{scope}outer_row"),
        "inner_layers": _layers(shapes, f"{scope}inner_row"),
    }
    encoder_layers = 2 * _layers(shapes, f"{parent}exterior_row")
    if encoder_layers:
        kernel = f"{parent}exterior_input_conv/w"
        own = _sizes(shapes, kernel, 4)[2] // 2
        if channels not in (None, own):
            raise VariablesError(f"{kernel} is for {own} channels, not for {channels}")
        decoders |= {"encoder_layers": encoder_layers, "input_divisor": AUTHORS_DIVISOR}
        return AxialTransformerConfig(shape=(height, width), channels=own, **decoders)
    if channels is None:
        channels = 3 if parent else 1
    if channels < 1 or height % channels:
        raise VariablesError(
            f"{scope}pos_embs_h has {height} rows, which {channels} channels cannot share: give channels"
        )
    decoders |= {"encoder_layers": 0, "layout": "rows" if channels > 1 else "channels"}
    return AxialTransformerConfig(shape=(height // channels, width), channels=channels, **decoders)


def _sizes(shapes: Shapes, name: str, axes: int) -> tuple[int, ...]:
    """Return the shape of a variable with this number of axes."""
    shape = shapes.get(name, ())
    if len(shape) != axes:
        raise VariablesError(f"{name} must have {axes} axes, but is {[*shape] or 'missing'}")
    return shape


def _layers(shapes: Shapes, prefix: str) -> int:
    """Return how many scopes are called prefix_0, prefix_1, ..."""
    pattern = re.compile(rf"{re.escape(prefix)}_(\d+)/")
    return len({found[1] for found in map(pattern.match, shapes) if found})


def variables(tensors: Mapping[str, Tensor], config: AxialTransformerConfig, scope: str) -> dict[str, Tensor]:
    """Return views of a model's tensors by the authors' names and shapes; writing changes the model."""
    (outer_layers,) = config.layers_of_outer_decoders
    views = {f"{scope}embs": tensors["embed_value.table"]}
    views |= _positions(tensors, "position", scope)
    views |= _blocks(tensors, "outer_decoders.0", outer_layers, f"{scope}outer", ("row", "col"))
    views |= _blocks(tensors, "inner_decoder", config.inner_layers, f"{scope}inner", ("row",))
    views |= _norm(tensors, "head.0", f"{scope}final_ln")
    views |= _dense(tensors, "head.1", f"{scope}final_dense")
    if config.encoder_layers:
        parent = _parent(scope) or ""
        views |= _positions(tensors, "encoder.position", parent)
        views |= _dense(tensors, "encoder.convolution", f"{parent}exterior_input_conv", (3, 3, -1))
        views |= _blocks(tensors, "encoder", config.layers_of_encoder, f"{parent}exterior", ("row", "col"))
    return views


def check_variables(found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise VariablesError unless the variables, less those of training, are the model's, by type and shape."""
    names = {name.removesuffix(AVERAGE) for name in wanted}
    known = _BOOKKEEPING | {name + slot for name in names for slot in _SLOTS}
    differences = {
        "missing": [name for name in wanted if name not in found],
        "unknown": [name for name in found if name not in known],
        "different": [
            f"{name} is {found[name]}, not {what}"
            for name, what in wanted.items()
            if name in found and found[name] != what
        ],
    }
    if any(differences.values()):
        listed = "; ".join(f"{kind}: {_brief(names)}" for kind, names in differences.items() if names)
        raise VariablesError(f"the variables are not those of an Axial Transformer; {listed}")


def _parent(scope: str) -> str | None:
    match = re.fullmatch(r"(.+/)transformer2d/", scope)
    return match and match[1]


def _positions(tensors: Mapping[str, Tensor], ours: str, scope: str) -> dict[str, Tensor]:
    return {f"{scope}pos_embs_{axis}": tensors[f"{ours}.tables.{i}"] for i, axis in enumerate("hw")}


def _blocks(
    tensors: Mapping[str, Tensor], ours: str, layers: int, theirs: str, axes: tuple[str, ...]
) -> dict[str, Tensor]:
    views: dict[str, Tensor] = {}
    for i in range(layers):
        layer, axis = divmod(i, len(axes))
        views |= _block(tensors, f"{ours}.blocks.{i}", f"{theirs}_{axes[axis]}_{layer}")
    return views


def _block(tensors: Mapping[str, Tensor], ours: str, theirs: str) -> dict[str, Tensor]:
    weights = tensors[f"{ours}.attention.attention.qkv.weight"].chunk(3)
    biases = tensors[f"{ours}.attention.attention.qkv.bias"].chunk(3)
    return (
        _norm(tensors, f"{ours}.attention.norm", f"{theirs}/layernorm_attn")
        | {f"{theirs}/attn/{part}/w": weight.T for part, weight in zip("qkv", weights)}
        | {f"{theirs}/attn/{part}/b": bias for part, bias in zip("qkv", biases)}
        | _dense(tensors, f"{ours}.attention.attention.out", f"{theirs}/attn/proj_out")
        | _norm(tensors, f"{ours}.feedforward.norm", f"{theirs}/layernorm_mlp")
        | _dense(tensors, f"{ours}.feedforward.expand", f"{theirs}/mlp/proj_in")
        | _dense(tensors, f"{ours}.feedforward.contract", f"{theirs}/mlp/proj_out")
    )


def _norm(tensors: Mapping[str, Tensor], ours: str, theirs: str) -> dict[str, Tensor]:
    return {f"{theirs}/g": tensors[f"{ours}.weight"], f"{theirs}/b": tensors[f"{ours}.bias"]}


def _dense(tensors: Mapping[str, Tensor], ours: str, theirs: str, fan_in: tuple[int, ...] = (-1,)) -> dict[str, Tensor]:
    weight = tensors[f"{ours}.weight"].T.unflatten(0, fan_in)
    return {f"{theirs}/w": weight, f"{theirs}/b": tensors[f"{ours}.bias"]}


def _brief(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
