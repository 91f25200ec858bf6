"""Muon: momentum whose steps are orthogonalised (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon)."""

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from axial_transformers.torch_private import add_to_each, lerp_each, lerp_each_in_place

ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic X <- a X + (b G + c G^2) X, G = X X^T, that takes singular values in (0, 1] to about 0.7 .. 1.2."""
TOGETHER = 2**22
"""Numbers that are orthogonalised at a time, at most, unless one parameter has more: they bound the memory."""


class Muon(Optimizer):
    """Steps along the orthogonalised momentum of each matrix.

    M <- momentum * M + (1 - momentum) * gradient
    W <- W - lr * sqrt(max(1, rows / columns)) * orthogonalised(momentum * M + (1 - momentum) * gradient)

    As torch.optim.Muon without weight decay; but a parameter can hold several matrices, those of one shape are
    orthogonalised together, and the dtype is chosen: bfloat16 is slow where the processor does not multiply it.

    Args:
        parameters: matrices [rows, columns], and the number of equally high matrices, one below the other, in each.
        lr: the rate, about the spectral norm of each step.
        momentum: decay of the momentum.
        dtype: of the products that orthogonalise.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[Tensor, int]],
        lr: float,
        momentum: float = 0.95,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        alike: dict[tuple[int, int, int], list[Tensor]] = {}
        for parameter, count in parameters:
            rows, columns = parameter.shape
            alike.setdefault((count, rows // count, columns), []).append(parameter)
        groups = [{"params": each, "matrices": shape} for shape, each in alike.items()]
        super().__init__(groups, {"lr": lr, "momentum": momentum})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Changes the parameters that have gradients."""
        for group in self.param_groups:
            for parameters in _parts([each for each in group["params"] if each.grad is not None]):
                self._step(parameters, **{name: group[name] for name in ("matrices", "lr", "momentum")})

    def _step(self, parameters: list[Tensor], matrices: tuple[int, int, int], lr: float, momentum: float) -> None:
        for each in parameters:
            if not self.state[each]:
                self.state[each]["momentum_buffer"] = torch.zeros_like(each)
        momenta = [self.state[each]["momentum_buffer"] for each in parameters]
        gradients = [each.grad for each in parameters if each.grad is not None]
        lerp_each_in_place(momenta, gradients, 1 - momentum)
        ahead = torch.stack(lerp_each(gradients, momenta, momentum))
        steps = orthogonalised(ahead.view(-1, *matrices[1:]).to(self.dtype)).to(ahead.dtype).view_as(ahead)
        add_to_each(parameters, steps.unbind(), alpha=-lr * sqrt(max(1.0, matrices[1] / matrices[2])))


def orthogonalised(matrices: Float[Tensor, "n r c"]) -> Float[Tensor, "n r c"]:
    """U V^T of each matrix U S V^T, about: [N, rows, columns] with singular values 0.7 .. 1.2 where S is not tiny."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _parts(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    size = max(1, TOGETHER // parameters[0].numel()) if parameters else 1
    for start in range(0, len(parameters), size):
        yield [*parameters[start : start + size]]
