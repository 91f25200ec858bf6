"""Typed JSON: objects read within bounds, and configuration dataclasses to and from them."""

import json
import sys
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, is_dataclass
from itertools import repeat
from math import isfinite
from pathlib import Path
from reprlib import repr as brief
from typing import Any, Literal, TypeVar, Union

from axial_transformers.storage.files import written_whole

Config = TypeVar("Config")


def read_object(path: Path, kind: str, mebibytes: int = 1) -> dict[str, Any]:
    """Read the JSON object in a file; errors call it `kind`."""
    try:
        if path.stat().st_size > mebibytes << 20:
            raise ValueError(f"over {mebibytes} MiB")
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("no JSON object")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not {kind} ({error})") from error
    return values


def write_object(path: Path, values: Mapping[str, Any], indent: int | None = 2) -> None:
    """Write values as a JSON object into a file, whole or not at all."""
    with written_whole(path) as aside:
        aside.write_text(json.dumps(values, indent=indent) + "\n", encoding="utf-8")


def line_of(metrics: Mapping[str, Any]) -> str:
    """Return metrics as one line of JSON."""
    infinite = {name: None for name, value in metrics.items() if isinstance(value, float) and not isfinite(value)}
    return json.dumps({**metrics, **infinite})


def to_json(config: Any) -> dict[str, Any]:
    """Return a dataclass as a JSON object."""
    return asdict(config)


def from_json(cls: type[Config], values: Any, source: str | Path) -> Config:
    """Return a dataclass from a JSON object; ValueError for wrong names or types."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{source}: {brief(values)} is not an object with the fields of {cls.__name__}")
    hints = typing.get_type_hints(cls)
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}  # type: ignore[arg-type]
    unknown = sorted(values.keys() - hints)
    missing = sorted(required - values.keys())
    if unknown or missing:
        raise ValueError(f"{source}: unknown fields {brief(unknown)}, missing fields {brief(missing)}")
    try:
        return cls(**{name: typed(hints[name], value, name) for name, value in values.items()})
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def typed(hint: Any, value: Any, name: str) -> Any:
    """Return a value as a type that JSON can hold; ValueError, with the name, for one of another type."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if is_dataclass(hint) and isinstance(value, Mapping):
        return from_json(hint, value, name)  # type: ignore[arg-type]
    if origin in (Union, types.UnionType):
        for choice in arguments:
            with suppress(ValueError):
                return typed(choice, value, name)
    elif origin is tuple and isinstance(value, (list, tuple)):
        inner = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        if len(inner) == len(value):
            return tuple(map(typed, inner, value, repeat(name)))
    elif origin is dict and isinstance(value, dict):
        return {key: typed(arguments[1], each, name) for key, each in value.items()}
    elif hint is Any or _matches(hint, value):
        return float(value) if hint is float else value
    kind = " or ".join(map(repr, arguments)) if origin is Literal else str(hint) if origin else hint.__name__
    raise ValueError(f"{name} is {brief(value)}, not {kind}")


def _matches(hint: Any, value: Any) -> bool:
    if typing.get_origin(hint) is Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return type(value) is hint and (hint is not int or -(1 << 63) <= value < 1 << 63)
