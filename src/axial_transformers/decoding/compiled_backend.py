"""Decoding by compiled kernels on a CPU: the network of `inference`, and rows whose values are drawn."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.decoding.backend import Backend
from axial_transformers.decoding.choices import Choose, KnownFirst, row_choice
from axial_transformers.decoding.exact_backend import arrays_of, backend_of
from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.inference.exact_network import ExactNetwork
from axial_transformers.kernels import Array, Choice, compiled_for, exact_kernels
from axial_transformers.models.axial_transformer import AxialTransformer


def is_fast() -> bool:
    """False where fused multiply-add is no instruction, but a call: on x86 processors from before 2013."""
    return compiled_for().multiplies_and_adds


def compiled(model: AxialTransformer, choose: Choose | KnownFirst, batch: int) -> Backend:
    """The backend for `batch` examples; the model is float32, and `choose` consists of tensors (`row_choice`)."""
    network = ExactNetwork(model, exact_kernels(compiled=True))
    return backend_of(network, partial(_draw, network, choose))


def _draw(
    network: ExactNetwork,
    choose: Choose | KnownFirst,
    context: Array,
    sites: Tensor,
    predictions: RowPredictions | None,
) -> Tensor:
    """The values or differences [B, L] of a row of sites with context [B, L, D]."""
    choice, num_values = row_choice(choose, sites), network.num_values
    assert choice is not None
    noise, known, draw = _array(choice.noise), _array(choice.known), choice.draw
    if known.max() >= num_values:
        raise ValueError(f"known values must be in 0..{num_values - 1}; found {known.max()}")
    top_k = min(draw.top_k or num_values, num_values)
    values = np.empty(known.shape, np.int64)
    drawn = Choice(noise, known, np.float32(draw.temperature), top_k, np.float32(draw.top_p or 1))
    network.rows.draw(context, arrays_of(predictions), values, drawn)
    return torch.from_numpy(values)


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()
