"""Initialised linear layers and tables, and random weights for tests."""

from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from axial_transformers.ops.torch_private import is_forward_mode


class Dense(nn.Linear):
    """y = W x + b; W starts truncated normal of variance 1 / fan_in (the authors' variance_scaling), b zero.

    With `residual`, W starts at zero: the block is the identity.
    """

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        residual: bool = False,
        bias: bool = True,
    ):
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


class LayerNorm(nn.LayerNorm):
    """Layer normalisation whose derivatives are right in forward mode, too.

    In torch 2.13, derivatives of torch's tangents are wrong (issue 196700 of PyTorch).
    """

    def forward(self, x: Float[Tensor, "*a d"]) -> Float[Tensor, "*a d"]:
        if not is_forward_mode():
            return super().forward(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = wide - wide.mean(-1, keepdim=True)
        normal = centred * (centred.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (normal * self.weight + self.bias).to(x.dtype)


def normal_table(*shape: int) -> nn.Parameter:
    """Return a table, normal with standard deviation 1 / sqrt(width)."""
    return nn.Parameter(torch.randn(*shape).div_(sqrt(shape[-1])))


def randomise(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Sample weights of scale 1, for tests: near the identity, a new model hides errors."""

    def normal(
        tensor: torch.Tensor,
        mean: float,
        std: float,
    ) -> None:
        sample = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device="cpu")
        tensor.copy_(mean + std * sample)

    with torch.no_grad():
        for child in module.modules():
            for name, parameter in child.named_parameters(recurse=False):
                if isinstance(child, nn.LayerNorm):
                    normal(parameter, float(name == "weight"), 0.1)
                elif name.startswith("bias"):
                    normal(parameter, 0.0, 0.1)
                elif isinstance(child, (nn.Linear, nn.LSTM)):
                    normal(parameter, 0.0, 1 / sqrt(parameter.shape[1]))
                else:
                    normal(parameter, 0.0, 1.0)
