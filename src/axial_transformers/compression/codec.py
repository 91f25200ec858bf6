"""Turn the images of one chunk into bytes and back: likely images take few bytes.

You need not read this file to compress: call `compress` and `decompress` (`archive`), which divide an archive into
chunks and call this. Read it to change what a chunk holds. docs/reference/archive_format.md has the format.

    network = ExactNetwork(model, integers=True)           # the same bits on every CPU
    content = encode_chunk(network, images, UNCONDITIONAL) # images [N, *A, C], values from 0; bytes
    same = decode_chunk(network, len(images), content, UNCONDITIONAL)

Both directions compute the same network, and so find the same interval of integers for each value:

    encoder    images ---> logits of all positions at once ---> intervals ---> a stream, its last symbol written first
    decoder    stream ---> value 1 ---> logits of position 2 ---> value 2 ---> ...

The encoder knows all values, so it needs one parallel pass; the decoder needs the loop of `decoding`. In ordinary
arithmetic the two would differ in the last bits, and one wrong interval would make the rest of the stream unreadable.

A value of probability p has an interval of about 2^PRECISION p integers, and costs -log2 p bits. The images of a chunk
share one stream. It goes row by row; in each row, GROUP images after GROUP images; of these, position after position;
at a position, value after value (layout `pixels` has several):

    row 0    images 0 .. 23:   value 0 of image 0, of image 1, .. of image 23, value 1 of image 0, ..
             images 24 .. 47:  ..
    row 1    images 0 .. 23:   ..

The decoder computes the logits of GROUP images together, so they must be next to each other.

An entropy coder ends its decoding in the state in which encoding began. So encoding begins in a state made of a
checksum of all pixels (`_first_state`). The stream starts with the last state. A decoder that
does not end in the checksum of its pixels has read damage, or has other conditioning.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.compression.container import DamagedError
from axial_transformers.decoding.decoding_loop import decode_by
from axial_transformers.decoding.exact_backend import exact_backend
from axial_transformers.engine import GROUP, MIN_STATE, TOO_SHORT, WORD, Array, Stream, parallel_map
from axial_transformers.exact.network import ExactNetwork, obstacle
from axial_transformers.exact.row_predictions import RowPredictions
from axial_transformers.models import AxialTransformer, Conditioning

WORDS = np.dtype("<u4")

Item = TypeVar("Item")
Result = TypeVar("Result")


def check_model(model: AxialTransformer) -> None:
    """Raise ValueError for a model that makes no archives: known channels, or no exact network."""
    model.require_values()
    if model.config.known_channels:
        raise ValueError("the model conditions on known channels, which an archive does not hold")
    if reason := obstacle(model):
        raise ValueError(f"{reason}, so this model makes no archives")


def work_on_chunks(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the results in order. Each of torch's threads works on one item at a time.

    Decoding one chunk has one thread (`engine.network`), so several chunks are decoded side by side.
    """
    left = iter(items)
    while side_by_side := list(islice(left, torch.get_num_threads())):
        yield from parallel_map(work, side_by_side)


def encode_chunk(network: ExactNetwork, images: Int[Tensor, "n *a c"], conditioning: Conditioning) -> bytes:
    """Return the stream of images [N, *A, C] int64, from `model.check`; `conditioning` is of these images."""
    intervals = in_order(network.intervals(images, conditioning))
    words = network.arithmetic.write_stream(intervals, _first_state(network, images))
    return words.astype(WORDS).tobytes()


def in_order(intervals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return intervals [N, rows, L P, 2] in the order of a stream, [N rows L P, 2]."""
    ordered = []
    for row in range(intervals.shape[1]):
        for first in range(0, len(intervals), GROUP):
            group = intervals[first : first + GROUP, row]
            ordered.append(group.swapaxes(0, 1).reshape(-1, 2))
    return np.concatenate(ordered)


def decode_chunk(
    network: ExactNetwork, count: int, content: bytes, conditioning: Conditioning
) -> Int64[Tensor, "n *a c"]:
    """Return the images of a chunk of `count`, values from 0, [N, *A, C].

    Raises:
        DamagedError: the bytes do not decode to the images from which they were made.
        ValueError: the model's logits are not finite.
    """
    stream = opened(content)

    def row(context: Array, positions: Tensor, predictions: RowPredictions | None) -> Tensor:
        codes = network.read_row(context, predictions, stream)
        if stream.state[2] == TOO_SHORT:
            raise DamagedError("a stream ends before its last symbol, or was not written with this model")
        return codes

    config = network.model.config
    blank = torch.tensor(0, device="cpu").expand(count, *config.shape, config.channels)
    with network.arithmetic.ieee_arithmetic():
        images = decode_by(exact_backend(network, row), network.model, blank, conditioning).cpu()
    if stream.state[1] != len(stream.words):
        raise DamagedError("a stream goes on after its last symbol, or was not written with this model")
    if stream.state[0] != _first_state(network, images):
        raise DamagedError("the decoded images have another checksum: damage, or label of other images")
    return images


def opened(content: bytes) -> Stream:
    """Return a stream at its first symbol; DamagedError for what no encoder writes."""
    words_left, odd = divmod(len(content), WORDS.itemsize)
    if odd or words_left < 2:
        raise DamagedError(f"there is no stream in {len(content)} bytes")
    words = np.frombuffer(content, WORDS).astype(np.uint32)
    state = int(words[0]) << WORD | int(words[1])
    if not MIN_STATE <= state < MIN_STATE << WORD:
        raise DamagedError("a stream starts with a state that no encoder leaves")
    return Stream(words, np.array([state, 2, 0], np.int64))


def _first_state(network: ExactNetwork, images: Int64[Tensor, "n *a c"]) -> int:
    """Return the state in which encoding begins: 2^31, and the lower 31 bits of the CRC-32 of all pixels.

    Pixels are bytes if they have at most 256 values, else little-endian uint16.
    """
    pixels = images.cpu().numpy().astype("u1" if network.model.config.num_values <= 256 else "<u2")
    return MIN_STATE | zlib.crc32(np.ascontiguousarray(pixels).data) & (MIN_STATE - 1)
