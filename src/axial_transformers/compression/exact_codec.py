"""Images of one chunk to its bytes and back in format version 2: encoder and decoder walk the same network.

images -> logits -> an interval of integers for each value  -> one stream: rows of sites, of each row GROUP images after
                                                               GROUP images, of these site after site
images that lossless WebP makes smaller than the model does -> WebP files
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.compression.chunk import Chunk
from axial_transformers.compression.codec import checksum_of, smaller_files, whole_chunk
from axial_transformers.compression.errors import DamagedError
from axial_transformers.compression.exact_network import ExactNetwork, Row
from axial_transformers.kernels.exact.definition import (
    GROUP,
    LEAST_STATE,
    MOST_VALUES,
    NOT_FINITE,
    PRECISION,
    TOO_SHORT,
    WORD,
    Coding,
    Stream,
)
from axial_transformers.models import AxialTransformer, Conditioning

WORDS = np.dtype("<u4")
NO_LOGITS, NO_INTERVALS = np.zeros((0, 0, 0), np.float32), np.zeros((0, 0, 0), np.int64)


def prepared(model: AxialTransformer) -> ExactNetwork:
    """The model as the other functions take it.

    Raises:
        ValueError: it has attention that has no exact arithmetic, or too many values.
    """
    if model.config.num_values > MOST_VALUES:
        raise ValueError(f"the model has {model.config.num_values} values; archives hold at most {MOST_VALUES}")
    return ExactNetwork(model)


def encode_chunk(
    network: ExactNetwork, images: Int[Tensor, "n *a c"], conditioning: Conditioning, _: int, fallback: bool
) -> Chunk:
    """The chunk of images [N, *A, C]; `fallback`: images may be stored as WebP files."""
    found = intervals(network, images, conditioning)
    bits = (PRECISION - np.log2(found[..., 1])).sum((1, 2))
    pixels = images.to("cpu", torch.uint8).numpy()
    files = smaller_files(pixels, (bits / 8).tolist()) if fallback else {}
    modelled = [i for i in range(len(images)) if i not in files]
    words = network.arithmetic.write_stream(in_order(found[modelled])) if modelled else np.zeros(0, np.uint32)
    return Chunk(checksum_of(pixels), files, {}, words.astype(WORDS).tobytes())


def intervals(network: ExactNetwork, images: Int[Tensor, "n *a c"], conditioning: Conditioning) -> NDArray[np.int64]:
    """Start and frequency of every value: [N, rows of sites, L, 2], rows in generation order."""
    values = rows_of(network, images)
    found = np.empty((*values.shape, 2), np.int64)
    stream = Stream(np.zeros(0, np.uint32), np.zeros(3, np.int64))

    def code(row: Row, number: int) -> NDArray[np.int64]:
        some = np.ascontiguousarray(values[:, number])
        of_row = np.empty((*some.shape, 2), np.int64)
        row(Coding(some, of_row, stream, NO_LOGITS))
        found[:, number] = of_row
        return some

    network.walk(images, conditioning, code)
    _check_finite(stream)
    return found


def rows_of(network: ExactNetwork, images: Int[Tensor, "n *a c"]) -> NDArray[np.int64]:
    """Generated values [N, rows of sites, L], rows in generation order."""
    slices = network.model.slices
    generated = network.model.layout.to_model(images)[..., slices.start : slices.stop].movedim(-1, 1)
    return generated.reshape(len(images), -1, network.shape[-1]).long().cpu().numpy()


def in_order(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Intervals [N, rows, L, 2] in the order of a stream, [N rows L, 2]."""

    def groups() -> Iterator[NDArray[np.int64]]:
        for row in range(found.shape[1]):
            for first in range(0, len(found), GROUP):
                yield found[first : first + GROUP, row].swapaxes(0, 1).reshape(-1, 2)

    return np.concatenate([*groups()])


def symbols(network: ExactNetwork, images: int, chunk: Chunk) -> int:
    """Number of symbols in the stream of a chunk of so many images."""
    return (images - len(chunk.webp)) * len(network.model.order)


def decode_chunk(
    network: ExactNetwork, images: int, chunk: Chunk, conditioning: Conditioning, _: int
) -> UInt8[Tensor, "n *a c"]:
    """The images of a chunk: uint8 [N, *A, C].

    Raises:
        DamagedError: the chunk does not decode to the images it was made of.
    """
    if chunk.escapes:
        raise DamagedError("a stream of version 2 leaves no values out, but the chunk lists some")
    shape = (*network.model.config.shape, network.model.config.channels)
    return whole_chunk(
        images, shape, chunk, lambda some: decode_stream(network, (len(some), *shape), chunk, conditioning.of(some))
    )


def decode_stream(
    network: ExactNetwork, shape: tuple[int, ...], chunk: Chunk, conditioning: Conditioning
) -> UInt8[Tensor, "n *a c"]:
    """The images [N, *A, C] = `shape` of a chunk's stream.

    Raises:
        DamagedError: the stream is of another length, or was not written with this model.
    """
    if len(chunk.stream) % WORDS.itemsize or len(chunk.stream) < 2 * WORDS.itemsize:
        raise DamagedError(f"a stream has {len(chunk.stream)} bytes: not two or more words of {WORDS.itemsize}")
    words = np.frombuffer(chunk.stream, WORDS).astype(np.uint32)
    first = int(words[0]) << WORD | int(words[1])
    if not LEAST_STATE <= first < LEAST_STATE << WORD:
        raise DamagedError("a stream starts with a state that no encoder leaves")
    stream = Stream(words, np.array([first, 2, 0], np.int64))

    def code(row: Row, number: int) -> NDArray[np.int64]:
        values = np.empty((shape[0], network.shape[-1]), np.int64)
        row(Coding(values, NO_INTERVALS, stream, NO_LOGITS))
        _check_finite(stream)
        if stream.state[2] == TOO_SHORT:
            raise DamagedError("a stream ends before its last symbol, or was not written with this model")
        return values

    values = network.walk(torch.zeros(shape, dtype=torch.int64), conditioning, code)
    state, read, _ = stream.state.tolist()
    if (state, read) != (LEAST_STATE, len(words)):
        raise DamagedError("a stream does not end with its last symbol, or was not written with this model")
    return network.model.layout.to_data(torch.from_numpy(values)).to(torch.uint8)


def _check_finite(stream: Stream) -> None:
    if stream.state[2] == NOT_FINITE:
        raise ValueError("the model's logits are not finite: its weights cannot be used to compress")
