"""Decoding by the network of `inference`: what the loop adds and indexes are NumPy arrays."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from axial_transformers.decoding.backend import Backend
from axial_transformers.decoding.choices import CodesRows
from axial_transformers.decoding.values_so_far import RowPredictions
from axial_transformers.inference.exact_network import ExactNetwork
from axial_transformers.kernels import NO_PREDICTION, Array, Prediction
from axial_transformers.models import AxialTransformer


def backend_of(network: ExactNetwork, row: Callable[[Array, Tensor, RowPredictions | None], Tensor]) -> Backend:
    """The loop's parts; `row` chooses the values of a row, see `Backend.row`."""
    return Backend(
        embed_conditioning=network.embed_conditioning,
        context=network.context,
        embed_value=network.embed_value,
        outer_decoders=network.outer_decoders,
        row=row,
    )


def reads_rows(network: ExactNetwork, model: AxialTransformer, choose: Any, batch: int) -> Backend:
    """The backend of an archive's decoder; `choose`, of the kind `CodesRows`, reads the values of rows."""
    assert model is network.model
    return backend_of(network, partial(_read, network, choose))


def _read(
    network: ExactNetwork, choose: CodesRows, context: Array, sites: Tensor, predictions: RowPredictions | None
) -> Tensor:
    held = predictions and predictions.to("cpu")
    chosen = choose(partial(network.rows.read, context, arrays_of(held)), sites)
    if predictions is not None and held is not None:
        predictions.take(held)
    return chosen


def arrays_of(predictions: RowPredictions | None) -> Prediction:
    """The predictions of a row, on the CPU, as the kernels take them; they write into the same memory."""
    if predictions is None:
        return NO_PREDICTION
    return Prediction(
        places=predictions.places.numpy(),
        known=predictions.known.numpy(),
        values=predictions.values.numpy(),
        planes=predictions.planes.numpy(),
        signed=predictions.predictor.signed,
    )
