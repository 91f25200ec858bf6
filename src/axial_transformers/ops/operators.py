"""Operators of this package, opaque to torch.compile and torch.export: functions of tensors on a CPU."""

from collections.abc import Callable
from typing import Any

import torch

from axial_transformers.ops.argument_checks import check_devices

LIBRARY = torch.library.Library("axial_transformers", "FRAGMENT")


def cpu_operator(
    name: str,
    fake: Callable[..., Any] = lambda *arguments: None,
    mutates_args: tuple[str, ...] = (),
    tags: tuple[torch.Tag, ...] = (),
) -> Callable[[Callable[..., Any]], Any]:
    """Declares a function as the operator `name`, "axial_transformers::..", and returns the operator.

    It takes less time to call than one that `torch.library.custom_op` declares. Derivatives are left to an autograd
    function around it.

    Args:
        name: of the operator.
        fake: the result without values, of the same arguments; by default there is none.
        mutates_args: the arguments that it writes to.
        tags: beside that of an operator that torch.compile may take as it is.
    """
    own = name.removeprefix("axial_transformers::")

    def without_values(*arguments: Any) -> Any:
        check_devices(arguments)  # torch calls it if some tensors have values and some have none
        return fake(*arguments)

    def declare(function: Callable[..., Any]) -> Any:
        schema = torch.library.infer_schema(function, mutates_args=mutates_args)
        LIBRARY.define(own + schema, tags=(torch.Tag.pt2_compliant_tag, *tags))
        LIBRARY.impl(own, function, "CPU")
        torch.library.register_fake(name, without_values, lib=LIBRARY)
        return getattr(torch.ops.axial_transformers, own).default

    return declare
