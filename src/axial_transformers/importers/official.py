"""Import of the authors' TensorFlow checkpoints, without TensorFlow."""

import hashlib
from pathlib import Path

import torch

from axial_transformers.importers.official_variables import (
    AVERAGE,
    VARIABLES_OF_A_LAYER,
    VariablesError,
    check_variables,
    decoder_scope,
    infer_config,
    variables,
)
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.storage import model_folders
from axial_transformers.storage.files import folder_written_whole, require_writable
from axial_transformers.storage.tensorflow import TensorBundle, find_prefix
from axial_transformers.storage.typed_json import to_json

PUBLISHED_HEADS = 16
"""Number of heads of both published models; checkpoints do not record it."""


def import_official(
    folder: str | Path,
    *,
    raw: bool = False,
    heads: int = PUBLISHED_HEADS,
    channels: int | None = None,
    verify: bool = False,
) -> AxialTransformer:
    """Return the model in a checkpoint of the authors' code, on the CPU, in evaluation mode.

    The code's class is Transformer3d, Transformer2d or MultiChannelTransformer2d. Memory holds the model and one
    tensor.

    Args:
        folder: holds model.ckpt.index and its shards, or those that its file `checkpoint` names.
        raw: take the weights of the last step instead of the EMA weights (averaged).
        heads: number of attention heads, which no checkpoint records; the published models have 16.
        channels: number of channels that a model stacks as rows, also not recorded. Default: 3 for
            MultiChannelTransformer2d, otherwise 1.
        verify: check the checksums of all tensors, not only that of the index.

    Raises:
        FormatError: damaged files or an unsupported format; the message names file and variable.
        VariablesError: missing or unknown variables, or other shapes; the message lists them.
        FileNotFoundError: no checkpoint in `folder`, or a missing shard.
        ValueError: `heads` or `channels` do not fit, or a variable holds NaN or infinity.
    """
    return _load(TensorBundle(find_prefix(folder)), raw, heads, channels, verify)


def import_official_to(
    checkpoint: str | Path,
    out: str | Path,
    *,
    raw: bool = False,
    heads: int = PUBLISHED_HEADS,
    channels: int | None = None,
    verify: bool = False,
) -> AxialTransformer:
    """Write what `import_official` reads as a new model folder with a model card.

    Keywords, result and errors are those of `import_official`.

    Raises:
        FileExistsError: `out` exists and is not empty.
    """
    require_writable(out, folder=True)
    bundle = TensorBundle(find_prefix(checkpoint))
    steps = _steps(bundle)
    with folder_written_whole(out) as aside:
        model = _load(bundle, raw, heads, channels, verify)
        (aside / "README.md").write_text(_card(model.config, bundle.path, raw, steps), encoding="utf-8")
        model_folders.write(aside, model.name, to_json(model.config), model.state_dict())
    return model


def _steps(bundle: TensorBundle) -> int | None:
    entry = bundle.entries.get("global_step")
    if entry is None:
        return None
    steps = bundle.read("global_step")
    if entry.shape or entry.dtype.kind != "i" or steps < 0:
        raise VariablesError(f"{bundle.path}: global_step is {entry.dtype} {steps}, not a number of steps")
    return int(steps)


def _load(
    bundle: TensorBundle,
    raw: bool,
    heads: int,
    channels: int | None,
    verify: bool,
) -> AxialTransformer:
    suffix = "" if raw else AVERAGE
    described = {name: f"{entry.dtype} {list(entry.shape)}" for name, entry in bundle.entries.items()}
    names = [name for name in bundle.entries if name.endswith(suffix)]
    shapes = {name.removesuffix(suffix): bundle.entries[name].shape for name in names}
    if not shapes:
        raise VariablesError(f"{bundle.path} holds no moving averages: import its raw weights (raw=True)")
    try:
        scope = decoder_scope(shapes)
        config = infer_config(shapes, heads=heads, channels=channels)
        least = VARIABLES_OF_A_LAYER * config.layers
        if len(shapes) < least:  # building many layers takes seconds
            raise VariablesError(f"{config.layers} layers have at least {least} variables, not {len(shapes)}")
        with torch.device("meta"):
            model = AxialTransformer(config)
        views = variables(model.state_dict(), scope)
        check_variables(described, {name + suffix: f"float32 {list(view.shape)}" for name, view in views.items()})
    except ValueError as error:
        raise VariablesError(f"{bundle.path}: {error}") from error
    model.to_empty(device="cpu")
    for name, view in variables(model.state_dict(), scope).items():
        values = torch.from_numpy(bundle.read(name + suffix, verify=verify))
        model_folders.require_finite(values, f"{bundle.path}: {name + suffix}")
        view.copy_(values)
    return model.eval()


_CARD = """\
---
library_name: axial-transformers
license: other
license_name: see-the-publisher
license_link: https://github.com/google-research/google-research/tree/master/axial
tags:
- axial-transformer
---
# An Axial Transformer, imported from a TensorFlow checkpoint

| | |
|---|---|
| Imported from | `{file}`, SHA-256 `{sha256}` |
| Weights | {weights} |
| Training steps | {steps} |
| Data | shape {shape}, channels {channels}, values {values} |
| Heads | {heads} (a checkpoint does not record them: set when importing) |

## Origin

The checkpoint has the variables of the authors' implementation of *Axial Attention in Multidimensional Transformers*
(Jonathan Ho, Nal Kalchbrenner, Dirk Weissenborn, Tim Salimans, 2019, https://arxiv.org/abs/1912.12180). They publish
code at https://github.com/google-research/google-research/tree/master/axial and weights, trained on downsampled
ImageNet, at `gs://axial-transformers/imagenet32` and `gs://axial-transformers/imagenet64`. The import changed the
arrangement of the numbers, not the numbers. Whether this checkpoint is one of those two, only its origin can tell.

## Licence

The authors' code is under the Apache License 2.0. The licence of the weights is what their publisher states, and the
images that they were trained on have terms of use of their own.
"""


def _card(config: AxialTransformerConfig, index: Path, raw: bool, steps: int | None) -> str:
    """Return README.md of the model folder, with the index's name and digest."""
    return _CARD.format(
        file=index.name,
        sha256=hashlib.sha256(index.read_bytes()).hexdigest(),
        weights="raw" if raw else "exponential moving average",
        steps="not recorded" if steps is None else f"{steps:,}",
        shape=list(config.shape),
        channels=config.channels,
        values=config.num_values,
        heads=config.heads,
    )
