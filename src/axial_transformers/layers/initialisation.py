"""The base of layers, initialised linear layers and tables, and random weights for tests."""

from math import sqrt

import torch
from torch import nn

from axial_transformers.ops.argument_checks import explains_arguments


class Layer(nn.Module):
    """A layer that explains arguments of other libraries' layers."""

    def __init_subclass__(cls) -> None:
        for name in {"__init__", "forward"} & {*vars(cls)}:
            setattr(cls, name, explains_arguments(vars(cls)[name]))


class Dense(nn.Linear):
    """y = W x + b; W starts truncated normal of variance 1 / fan_in (the authors' variance_scaling), b zero.

    With `residual`, W starts at zero: the block is the identity.
    """

    def __init__(self, fan_in: int, fan_out: int, residual: bool = False, bias: bool = True):
        self.residual = residual
        super().__init__(fan_in, fan_out, bias)

    def reset_parameters(self) -> None:
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.residual:
            nn.init.zeros_(self.weight)
        else:
            std = 1 / sqrt(self.in_features)
            nn.init.trunc_normal_(self.weight, std=std / 0.8796256610342398, a=-2.2737 * std, b=2.2737 * std)


def normal_table(*shape: int) -> nn.Parameter:
    """Return a table, normal with standard deviation 1 / sqrt(width)."""
    return nn.Parameter(torch.randn(*shape) / sqrt(shape[-1]))


def randomise(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Sample weights of scale 1, for tests: near the identity, a new model hides errors."""

    def normal(tensor: torch.Tensor, mean: float, std: float) -> None:
        sample = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device="cpu")
        tensor.copy_(mean + std * sample)

    with torch.no_grad():
        for part in module.modules():
            for name, parameter in part.named_parameters(recurse=False):
                if isinstance(part, nn.LayerNorm):
                    normal(parameter, float(name == "weight"), 0.1)
                elif name.startswith("bias"):
                    normal(parameter, 0.0, 0.1)
                elif isinstance(part, (nn.Linear, nn.LSTM)):
                    normal(parameter, 0.0, 1 / sqrt(parameter.shape[1]))
                else:
                    normal(parameter, 0.0, 1.0)
