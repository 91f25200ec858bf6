"""A folder <-> (model name, configuration, tensors), as config.json and model.safetensors. Knows no model."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from axial_transformers.storage.files import folder_written_whole, inside
from axial_transformers.storage.typed_json import read_object

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
FLOATING_POINT = ("F64", "F32", "F16", "BF16")
"""The dtypes, as a weights file names them, of what is floating point here."""


def save(folder: str | Path, name: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes a new model folder, whole or not at all.

    Raises:
        FileExistsError: `folder` exists and is not empty.
    """
    with folder_written_whole(folder) as aside:
        write(aside, name, config, tensors)


def write(folder: Path, name: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes both files into a folder that the caller makes appear whole."""
    (folder / CONFIG).write_text(json.dumps({"model": name, **config}, indent=2) + "\n")
    write_tensors(folder / WEIGHTS, tensors)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a file of tensors.

    Raises:
        OSError: it could not be written; something of it may be there.
    """
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error


def locate(folder: str | Path) -> Path:
    """The model folder itself, or a local copy of the hub repository "owner/name".

    Raises:
        FileNotFoundError: there is neither.
    """
    if (Path(folder) / CONFIG).is_file():
        return Path(folder)
    if Path(folder).exists() or str(folder).count("/") != 1 or str(folder).startswith((".", "/", "~")):
        raise FileNotFoundError(f"{folder}: no model folder there (it would hold {CONFIG} and {WEIGHTS})")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(folder), allow_patterns=[CONFIG, WEIGHTS]))
    except Exception as error:
        raise FileNotFoundError(
            f"{folder}: no such folder, and not to be had from the hub ({type(error).__name__})"
        ) from error


def load_config(folder: Path, name: str) -> dict[str, Any]:
    """The configuration in `folder`, which must be of the model called `name`.

    Raises:
        ValueError: not JSON, or another model's.
    """
    path = inside(folder / CONFIG, _home(folder))
    config = read_object(path, "a model configuration")
    if config.pop("model", None) != name:
        raise ValueError(f"{path}: not the configuration of a model called {name!r}")
    return config


def load_tensors(folder: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in `folder`, as `read_tensors` reads them.

    Raises:
        ValueError: as `read_tensors`, or they are a link out of the folder.
        FileNotFoundError: no weights in the folder.
    """
    path = inside(folder / WEIGHTS, _home(folder))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: missing; a model folder holds {CONFIG} and {WEIGHTS}")
    return read_tensors(path, expected)


def _home(folder: Path) -> Path:
    """What a model folder may link to: itself; the hub's cache has snapshots/REVISION/ link to blobs/ beside them."""
    place = Path(os.path.realpath(folder))
    return place.parents[1] if place.parent.name == "snapshots" else place


def read_tensors(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in a file, which must be exactly the expected ones, by name, shape and dtype family.

    Raises:
        ValueError: damaged file, or another model's tensors; the message names the first differences.
    """
    try:
        with safe_open(path, framework="pt") as file:
            stored = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: tuple(tensor.get_shape()) for name, tensor in stored.items()}
            wanted = {name: tuple(tensor.shape) for name, tensor in expected.items()}
            if found != wanted:
                raise ValueError(
                    f"{path}: these are not the weights of this configuration ({_differences(found, wanted)})"
                )
            for name, tensor in expected.items():
                if (stored[name].get_dtype() in FLOATING_POINT) != tensor.is_floating_point():
                    raise ValueError(f"{path}: {name} holds {stored[name].get_dtype()} values, not {tensor.dtype}")
            return {name: file.get_tensor(name) for name in wanted}
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged or cut off ({error}); fetch or export it again") from error


def _differences(found: dict[str, tuple[int, ...]], wanted: dict[str, tuple[int, ...]]) -> str:
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted]
    shapes = [
        f"{name} is {list(found[name])}, not {list(wanted[name])}"
        for name in wanted
        if name in found and found[name] != wanted[name]
    ]
    parts = [
        f"{word} {', '.join(name[:99] for name in names[:3])}{' ...' * (len(names) > 3)}"
        for word, names in (("missing", missing), ("unknown", extra), ("", shapes))
        if names
    ]
    return "; ".join(parts).replace("  ", " ")
