"""Checks calls against the shapes and dtypes in signatures, and against no other annotation."""

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def of_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """For `jaxtyping.install_import_hook`: beartype, which not every annotation of the package suits."""
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if has_shape(hint)}
    return beartype(function) if function.__annotations__ else function


def has_shape(hint: Any) -> bool:
    parts = get_args(hint)
    return any(map(has_shape, parts)) if parts else isinstance(hint, type) and issubclass(hint, AbstractArray)
