"""Decode with the exact network of the engine. What the loop adds and indexes are NumPy arrays.

The decoder of an archive reads the values of rows from a stream. Sampling and completion choose them in the engine.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.decoding.backend import Backend, ReadsRow
from axial_transformers.decoding.choices import Choose, KnownFirst, row_choice
from axial_transformers.decoding.exact_network import ExactNetwork
from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.engine import (
    NO_CENTRING,
    NO_UNIFORMS,
    Array,
    Centring,
    RowSampling,
)
from axial_transformers.models import AxialTransformer


def backend_of(network: ExactNetwork, row: Callable[[Array, Tensor, RowPredictions | None], Tensor]) -> Backend:
    """Return the parts of the loop; `row` chooses the values of a row, see `Backend.row`."""
    return Backend(
        embed_conditioning=network.embed_conditioning,
        context=network.context,
        embed_value=network.embed_value,
        outer_decoders=network.outer_decoders,
        row=row,
    )


def reads_rows(network: ExactNetwork, model: AxialTransformer, choose: Any, batch: int) -> Backend:
    """Return the backend of an archive's decoder; `choose` is a `ReadsRow`."""
    assert model is network.model
    return backend_of(network, partial(_read, network, choose))


def _read(
    network: ExactNetwork, choose: ReadsRow, context: Array, positions: Tensor, predictions: RowPredictions | None
) -> Tensor:
    held = predictions and predictions.to("cpu")
    chosen = choose(partial(network.rows.read, context, arrays_of(held)), positions)
    if predictions is not None and held is not None:
        predictions.take(held)
    return chosen


def arrays_of(predictions: RowPredictions | None) -> Centring:
    """Return predictions on the CPU as the engine takes them, in the same memory: it writes into it."""
    if predictions is None:
        return NO_CENTRING
    return Centring(
        values=predictions.values.numpy(),
        positions=predictions.positions.numpy(),
        neighbours=predictions.neighbours.numpy(),
        coefficients=predictions.coefficients.numpy(),
    )


def compiled(model: AxialTransformer, choose: Choose | KnownFirst, batch: int) -> Backend:
    """Return the backend of a float32 model; `choose` is made of tensors (`row_choice`)."""
    network = ExactNetwork(model)
    return backend_of(network, partial(_sample, network, choose))


def _sample(
    network: ExactNetwork,
    choose: Choose | KnownFirst,
    context: Array,
    positions: Tensor,
    predictions: RowPredictions | None,
) -> Tensor:
    choice, num_values = row_choice(choose, positions), network.num_values
    assert choice.known is not None
    known, sampler = _array(choice.known), choice.sampler
    if known.max() >= num_values:
        raise ValueError(f"known values must be in 0..{num_values - 1}; found {known.max()}")
    top_k = min(sampler.top_k or num_values, num_values)
    values = np.empty(known.shape, np.int64)
    gumbel = choice.noise.ndim > known.ndim
    sampling = RowSampling(
        noise=_array(choice.noise) if gumbel else np.zeros((0, 0, 0), np.float32),
        known=known,
        temperature=np.float32(sampler.temperature),
        top_k=top_k,
        top_p=np.float32(sampler.top_p or 1),
        uniforms=NO_UNIFORMS if gumbel else _array(choice.noise.double()),
    )
    network.rows.sample(context, arrays_of(predictions), values, sampling)
    return torch.from_numpy(values)


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()
