"""Images of one chunk to its bytes and back in format version 2: encoder and decoder walk the same network.

images -> logits -> an interval of integers for each value  -> one stream: rows of sites, of each row GROUP images after
                                                               GROUP images, of these site after site
images that lossless WebP makes smaller than the model does -> WebP files

The stream starts with the coder's last state; its first one, which the decoder ends with, is a checksum of the pixels.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.compression.chunk import Chunk
from axial_transformers.compression.codec import OTHER_PIXELS, checksum_of, smaller_files, whole_chunk
from axial_transformers.compression.container import Entry
from axial_transformers.compression.errors import DamagedError
from axial_transformers.decoding import decode
from axial_transformers.decoding.exact_backend import reads_rows
from axial_transformers.inference import exact_network
from axial_transformers.inference.exact_network import NOT_FINITE_LOGITS, ExactNetwork
from axial_transformers.kernels.exact.definition import (
    GROUP,
    LEAST_STATE,
    MOST_VALUES,
    NOT_FINITE,
    PRECISION,
    TOO_SHORT,
    WORD,
    Stream,
)
from axial_transformers.models import AxialTransformer, Conditioning

WORDS = np.dtype("<u4")


def obstacle(model: AxialTransformer) -> str | None:
    """The reason why a model's images cannot be written in this version; None if there is none."""
    if model.config.num_values > MOST_VALUES:
        return f"the model has more than {MOST_VALUES} values"
    return exact_network.obstacle(model)


def prepared(model: AxialTransformer) -> ExactNetwork:
    """The model as the other functions take it.

    Raises:
        ValueError: see `obstacle`.
    """
    if reason := obstacle(model):
        raise ValueError(reason)
    return ExactNetwork(model)


def encode_chunk(
    network: ExactNetwork, images: Int[Tensor, "n *a c"], conditioning: Conditioning, _: int, fallback: bool
) -> tuple[bytes, int]:
    """The bytes of the chunk of images [N, *A, C], and the number of their values.

    Args:
        fallback: images may be stored as WebP files.
    """
    found = network.intervals(images, conditioning)
    bits = (PRECISION - np.log2(found[..., 1])).sum((1, 2))
    pixels = images.to("cpu", torch.uint8).numpy()
    files = smaller_files(pixels, (bits / 8).tolist()) if fallback else {}
    modelled = [i for i in range(len(images)) if i not in files]
    words = np.zeros(0, np.uint32)
    if modelled:
        words = network.arithmetic.write_stream(in_order(found[modelled]), _first_state(pixels))
    return Chunk(files, {}, words.astype(WORDS).tobytes()).pack(), images[0].numel() * len(images)


def in_order(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Intervals [N, rows, L, 2] in the order of a stream, [N rows L, 2]."""

    def groups() -> Iterator[NDArray[np.int64]]:
        for row in range(found.shape[1]):
            for first in range(0, len(found), GROUP):
                yield found[first : first + GROUP, row].swapaxes(0, 1).reshape(-1, 2)

    return np.concatenate([*groups()])


def decode_chunk(
    network: ExactNetwork, entry: Entry, content: bytes, conditioning: Conditioning, _: int
) -> UInt8[Tensor, "n *a c"]:
    """The images of a chunk: uint8 [N, *A, C].

    Raises:
        DamagedError: the chunk does not decode to the images it was made of.
    """
    chunk = Chunk.unpack(content)
    if chunk.escapes:
        raise DamagedError("a stream of version 2 leaves no values out, but the chunk lists some")
    shape = (*network.model.config.shape, network.model.config.channels)
    modelled, (count, odd) = entry.images > len(chunk.webp), divmod(len(chunk.stream), WORDS.itemsize)
    if odd or (count < 2 if modelled else count):
        raise DamagedError(f"a stream of {len(chunk.stream)} bytes is no stream of {entry.images} images")
    words = np.frombuffer(chunk.stream, WORDS).astype(np.uint32)
    state = int(words[0]) << WORD | int(words[1]) if modelled else LEAST_STATE
    if not LEAST_STATE <= state < LEAST_STATE << WORD:
        raise DamagedError("a stream starts with a state that no encoder leaves")
    stream = Stream(words, np.array([state, 2, 0], np.int64))
    pixels = whole_chunk(
        entry.images, shape, chunk,
        lambda some: _decode_stream(network, (len(some), *shape), stream, conditioning.of(some)),
    )  # fmt: skip
    if modelled and stream.state[0] != _first_state(pixels.numpy()):
        raise DamagedError(OTHER_PIXELS)
    return pixels


def _decode_stream(
    network: ExactNetwork, shape: tuple[int, ...], stream: Stream, conditioning: Conditioning
) -> UInt8[Tensor, "n *a c"]:
    """The images [N, *A, C] = `shape` of a chunk's stream.

    Raises:
        DamagedError: the stream is of another length, or was not written with this model.
    """

    def choose(read: Callable[[NDArray[np.int64], Stream], None], sites: Tensor) -> Tensor:
        values = np.empty((shape[0], len(sites)), np.int64)
        read(values, stream)
        if stream.state[2] == NOT_FINITE:
            raise ValueError(NOT_FINITE_LOGITS)
        if stream.state[2] == TOO_SHORT:
            raise DamagedError("a stream ends before its last symbol, or was not written with this model")
        return torch.from_numpy(values)

    blank = torch.zeros(shape, dtype=torch.int64)
    with network.arithmetic.ieee_arithmetic():
        images = decode(network.model, choose, blank, conditioning, partial(reads_rows, network))
    if stream.state[1] != len(stream.words):
        raise DamagedError("a stream goes on after its last symbol, or was not written with this model")
    return images.to("cpu", torch.uint8)


def _first_state(pixels: NDArray[np.uint8]) -> int:
    """The encoder's first state: 2^31 and the lower 31 bits of the checksum of all pixels of the chunk."""
    return LEAST_STATE | checksum_of(pixels) & (LEAST_STATE - 1)
