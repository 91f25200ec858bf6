"""Decode by the exact network: rows are sampled, or chosen by a function, such as one that reads an archive."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from axial_transformers.decoding.backend import Backend
from axial_transformers.decoding.choices import NoiseChoice
from axial_transformers.engine import Array, RowSampling
from axial_transformers.exact.network import ExactNetwork
from axial_transformers.exact.row_predictions import RowPredictions


def exact_backend(network: ExactNetwork, row: Callable[[Array, Tensor, RowPredictions | None], Tensor]) -> Backend:
    """Return the parts of the loop; `row` chooses the values of a row, see `Backend.row`."""
    return Backend(
        embed_conditioning=network.embed_conditioning,
        context=network.context,
        embed_value=network.embed_value,
        outer_decoders=network.outer_decoders,
        row=row,
        device="cpu",
    )


def sampling_backend(network: ExactNetwork, choose: NoiseChoice) -> Backend:
    """Return the parts of the loop that samples."""

    def sample_row(context: Array, positions: Tensor, predictions: RowPredictions | None) -> Tensor:
        choice = choose.of_row(positions)
        sampler = choice.sampler
        assert choice.known is not None
        known = choice.known.unflatten(1, (context.shape[1], -1))
        noise = choice.noise.unflatten(1, known.shape[1:])
        gumbel = noise.ndim > known.ndim
        sampling = RowSampling(
            noise=(noise.float() if gumbel else noise.double()).numpy(),
            known=known.numpy(),
            temperature=np.float32(sampler.temperature),
            top_k=sampler.top_k or network.model.config.num_values,
            top_p=np.float32(sampler.top_p or 1),
        )
        return network.sample_row(context, predictions, sampling)

    return exact_backend(network, sample_row)
