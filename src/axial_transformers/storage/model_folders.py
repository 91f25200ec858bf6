"""Model folders: name and configuration of a model in config.json, its weights in model.safetensors."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as brief
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from axial_transformers.storage import hub
from axial_transformers.storage.files import folder_written_whole, require_inside, require_utf8
from axial_transformers.storage.typed_json import read_object

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
FLOATING_POINT = ("F64", "F32", "F16", "BF16")
MAX_HEADER = 8 << 20
"""Bytes. Adam's moments of 1,024 layers have a header of 6 MB."""
SHIPPED = Path(__file__).parents[1] / "pretrained"
"""The folder of the models in the package, with 16-bit weights."""
log = logging.getLogger("axial_transformers")


def save(
    folder: str | Path,
    name: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    overwrite: bool = False,
) -> None:
    """Write a model folder whole, if `load_tensors` reads it; with `overwrite`, in place of another model folder."""
    folder = Path(folder)
    require_utf8(folder)
    replace = overwrite and folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if replace and not _holds_a_model_only(folder):
        raise FileExistsError(
            f"{folder} is not replaced, since it holds more than a model: give another path, or remove it first"
        )
    with folder_written_whole(folder, replace) as aside:
        write(aside, name, config, tensors)
        try:
            load_tensors(aside, expected)
        except ValueError as error:
            reason = str(error).partition(f"{WEIGHTS}: ")[2]
            raise ValueError(f"{folder} is not written, since it could not be read: {reason}") from error


def _holds_a_model_only(folder: Path) -> bool:
    if folder.is_symlink() or not folder.is_dir() or {file.name for file in folder.iterdir()} - {CONFIG, WEIGHTS}:
        return False
    try:
        return "model" in _stored_config(folder)
    except (ValueError, OSError):
        return False


def write(folder: Path, name: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write both files into an existing folder."""
    (folder / CONFIG).write_text(json.dumps({"model": name, **config}, indent=2) + "\n", encoding="utf-8")
    write_tensors(folder / WEIGHTS, tensors)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of tensors."""
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    try:  # of copies: safetensors takes no weights that share memory
        save_file(copies, path)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error


def locate(folder: str | Path, revision: str | None = None) -> Path:
    """Return the path of a model folder.

    Args:
        folder: a folder; or a name in `SHIPPED`, such as "fashion_mnist"; or "owner/name" or "owner/name@revision" on
            the hub.

    Raises:
        FileNotFoundError: neither exists, or the hub has no such model.
        ValueError: a revision of a folder.
        OSError: the hub refuses.
    """
    if is_shipped(folder):
        log.info("%s: the model that comes with the package", folder)
        return SHIPPED / folder
    if (Path(folder) / CONFIG).is_file():
        if str(folder) in shipped_names():
            log.info("%s: the folder here, not the model that comes with the package", folder)
        if revision is not None:
            raise ValueError(f"{folder} is a folder, which has no revision {revision}: only models on the hub have")
        return Path(folder)
    if Path(folder).exists() or not (named := hub.split_id(folder.as_posix() if isinstance(folder, Path) else folder)):
        names = ", ".join(shipped_names())
        raise FileNotFoundError(
            f"{folder}: no model folder there (it would hold {CONFIG} and {WEIGHTS}); the package has {names};"
            " axial train makes others, and axial import-official those of the authors' checkpoints"
        )
    _require_no_run(Path(folder))
    repository, named_revision = named
    try:
        copy = hub.download(repository, revision or named_revision, [CONFIG, WEIGHTS])
    except (FileNotFoundError, ConnectionError) as error:  # the name may be that of a folder, mistyped
        raise FileNotFoundError(f"no folder {folder} here; {error}") from error
    if not (copy / CONFIG).is_file():
        raise FileNotFoundError(f"{folder}: no model of this package on the hub (it has no {CONFIG})")
    return copy


def _require_no_run(folder: Path) -> None:
    runs = sorted(path.parent.name for path in folder.parent.glob(f"*/{CONFIG}"))
    if runs:
        raise FileNotFoundError(f"{folder}: no such run; {folder.parent} has {', '.join(runs)}")
    if folder.parent.name == "runs":
        raise FileNotFoundError(f"{folder}: no such run, and no other yet: axial train digits makes one")


def is_shipped(name: str | Path) -> bool:
    """Return True for the name of a model in the package, unless there is a folder of that name."""
    return str(name) in shipped_names() and not Path(name).exists()


def shipped_names() -> list[str]:
    """Return the names of the models in the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def load_config(folder: Path, name: str) -> dict[str, Any]:
    """Read the configuration of the model `name`."""
    config = _stored_config(folder)
    if config.pop("model", None) != name:
        raise ValueError(f"{folder / CONFIG}: not the configuration of a model called {name!r}")
    return config


def _stored_config(folder: Path) -> dict[str, Any]:
    return read_object(require_inside(folder / CONFIG, _home(folder)), "a model configuration")


def count_tensors(folder: Path) -> int:
    """Return the number of tensors, by the header alone."""
    with _opened(_weights(folder)) as file:
        return len(file.keys())


def load_tensors(folder: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read the weights in `folder`: all float32, or all float64 where one is."""
    tensors = read_tensors(_weights(folder), expected)
    dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors.values()) else torch.float32
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def _weights(folder: Path) -> Path:
    path = require_inside(folder / WEIGHTS, _home(folder))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: missing; a model folder holds {CONFIG} and {WEIGHTS}")
    return path


def _home(folder: Path) -> Path:
    real = Path(os.path.realpath(folder))
    return real.parents[1] if real.parent.name == "snapshots" else real


def read_tensors(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read finite tensors of the expected names, shapes and kinds of dtype."""
    with _opened(path) as file:
        stored = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        shapes = {name: tensor.get_shape() for name, tensor in stored.items()}
        wanted = {name: [*tensor.shape] for name, tensor in expected.items()}
        if shapes != wanted:
            raise ValueError(
                f"{path}: these are not the weights of this configuration ({_differences(shapes, wanted)})"
            )
        for name, tensor in expected.items():
            dtype = stored[name].get_dtype()
            if (dtype in FLOATING_POINT) != tensor.is_floating_point():
                raise ValueError(f"{path}: {name} holds {dtype} values, not {tensor.dtype}")
        tensors = {name: file.get_tensor(name) for name in wanted}
    for name, tensor in tensors.items():
        require_finite(tensor, f"{path}: {name}")
    return tensors


def require_finite(tensor: Tensor, where: str) -> None:
    """Raise ValueError where a tensor has NaN or an infinity."""
    if not tensor.is_floating_point() or not tensor.numel():
        return
    least, greatest = torch.aminmax(tensor.detach())  # both are NaN where one value is; takes no memory
    if not (least.isfinite() and greatest.isfinite()):
        raise ValueError(f"{where} holds NaN or infinity, so that nothing can be computed with it: use other weights")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        if (header := int.from_bytes(file.read(8), "little")) > MAX_HEADER:
            raise ValueError(
                f"{path}: damaged, or not a model's weights (a header of {header:,} bytes, above {MAX_HEADER:,})"
            )
    try:
        with safe_open(path, framework="pt") as tensors:
            yield tensors
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged or cut off ({str(error)!r:.200}); fetch or export it again") from error


def _differences(shapes: dict[str, list[int]], wanted: dict[str, list[int]]) -> str:
    names = [name for name in wanted | shapes if shapes.get(name) != wanted.get(name)]
    return "; ".join(
        f"{name!r:.99} is {brief(shapes.get(name, 'missing'))}, not {wanted.get(name, 'unknown')}" for name in names[:4]
    )
