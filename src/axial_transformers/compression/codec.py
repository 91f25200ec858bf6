"""Images of one chunk to its bytes and back: encoded by a parallel pass, decoded by the loop of `decoding`.

images -> logits in float64 -> an interval of integers for each value -> one stream, in the order of decoding
                               values whose interval is ambiguous     -> escapes
images that lossless WebP makes smaller than the model does           -> WebP files
"""

import struct
import zlib
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.compression import coder, webp
from axial_transformers.compression.chunk import Chunk
from axial_transformers.compression.container import Entry
from axial_transformers.compression.errors import DamagedError
from axial_transformers.compression.exact import in_float64
from axial_transformers.compression.frequencies import PRECISION, frequencies, intervals
from axial_transformers.decoding import decode
from axial_transformers.decoding.backend import BackendFactory
from axial_transformers.decoding.micro_batch_backend import micro_batches
from axial_transformers.models import AxialTransformer, Conditioning

_CHECKSUM = struct.Struct("<I")
OTHER_PIXELS = "the decoded images have another checksum: damage, or label or cond of other images"


def prepared(model: AxialTransformer) -> AxialTransformer:
    """The model as the other functions take it: a copy in float64."""
    return in_float64(model)


def encode_chunk(
    exact: AxialTransformer,
    images: Int[Tensor, "n *a c"],
    conditioning: Conditioning,
    micro_batch: int,
    fallback: bool,
) -> tuple[bytes, int]:
    """The bytes of the chunk of images [N, *A, C], and the number of symbols in its stream.

    Args:
        exact: the model in float64.
        micro_batch: number of images that the model computes at once.
        fallback: whether images may be stored as WebP files.
    """
    rows = [slice(first, first + micro_batch) for first in range(0, len(images), micro_batch)]
    device = exact.device
    parts = [_intervals(exact, images[some].to(device), conditioning.of(some).double()) for some in rows]
    values, lower, frequency, ambiguous = (torch.cat(part) for part in zip(*parts))  # [N, sites] each

    bits = (PRECISION - frequency.double().log2()).sum(1)
    pixels = images.to("cpu", torch.uint8).numpy()
    files = smaller_files(pixels, (bits / 8).tolist()) if fallback else {}
    modelled = [i for i in range(len(images)) if i not in files]

    values, lower, frequency, ambiguous = (part[modelled].T.flatten() for part in (values, lower, frequency, ambiguous))
    indices = ambiguous.nonzero().flatten()
    escapes = dict(zip(indices.tolist(), values[indices].tolist()))
    chunk = Chunk(files, escapes, coder.encode(lower[~ambiguous], frequency[~ambiguous]))
    return _CHECKSUM.pack(checksum_of(pixels)) + chunk.pack(), len(values) - len(escapes)


@torch.no_grad()
def _intervals(exact: AxialTransformer, x: Tensor, conditioning: Conditioning) -> list[Tensor]:
    """Values and the fields of their `Intervals`: [N, sites] each, sites in `model.order`."""
    slices = []
    for c in exact.slices:
        channel = torch.full((len(x),), c, device=x.device)
        values = exact.slice_values(x, channel).flatten(1).cpu()
        logits = exact.slice_logits(x, channel, *conditioning).flatten(1, -2).cpu()
        slices.append((values, *intervals(logits, values)))
    return [torch.cat(parts, dim=1) for parts in zip(*slices)]


def smaller_files(pixels: NDArray[np.uint8], sizes: list[float]) -> dict[int, bytes]:
    """WebP files that are smaller than `sizes` in bytes, by index of the image."""
    files = ((i, webp.encode(image)) for i, image in enumerate(pixels))
    return {i: file for i, file in files if file is not None and len(file) < sizes[i]}


def decode_chunk(
    exact: AxialTransformer, entry: Entry, content: bytes, conditioning: Conditioning, micro_batch: int
) -> UInt8[Tensor, "n *a c"]:
    """The images of a chunk: uint8 [N, *A, C]. The model sees `micro_batch` of them at once.

    Raises:
        DamagedError: the chunk does not decode to the images it was made of.
    """
    if len(content) < _CHECKSUM.size:
        raise DamagedError("it ends within its checksum")
    (checksum,), chunk = _CHECKSUM.unpack_from(content), Chunk.unpack(content[_CHECKSUM.size :])
    if (entry.images - len(chunk.webp)) * len(exact.order) - len(chunk.escapes) != entry.symbols:
        raise DamagedError("its parts have another number of symbols than the index states")
    shape = (*exact.config.shape, exact.config.channels)

    def decode_stream(modelled: list[int]) -> Tensor:
        some = conditioning.of(modelled).double()
        return _decode_stream(exact, (len(modelled), *shape), chunk, some, micro_batches(micro_batch))

    pixels = whole_chunk(entry.images, shape, chunk, decode_stream)
    if checksum_of(pixels.numpy()) != checksum:
        raise DamagedError(OTHER_PIXELS)
    return pixels


def whole_chunk(
    images: int, shape: tuple[int, ...], chunk: Chunk, decode_stream: Callable[[list[int]], Tensor]
) -> UInt8[Tensor, "n *a c"]:
    """The images of a chunk, each of shape [*A, C]; `decode_stream` gives those of its stream from their numbers.

    Raises:
        DamagedError: an image stored as WebP is damaged.
    """
    pixels = torch.zeros(images, *shape, dtype=torch.uint8)
    if any(i >= images for i in chunk.webp):
        raise DamagedError(f"an image stored as WebP has an index beyond the last of {images} images")
    for i, file in chunk.webp.items():
        pixels[i] = torch.from_numpy(webp.decode(file, shape))
    modelled = [i for i in range(images) if i not in chunk.webp]
    if modelled:
        pixels[modelled] = decode_stream(modelled)
    return pixels


def _decode_stream(
    exact: AxialTransformer, shape: tuple[int, ...], chunk: Chunk, conditioning: Conditioning, backend: BackendFactory
) -> Tensor:
    """The images [N, *A, C] = `shape` that the model coded: their next site is read for all of them at once."""
    count, sites = shape[0], len(exact.order)
    escapes = torch.full((sites * count,), -1, dtype=torch.int16)
    if any(index >= len(escapes) or value >= exact.config.num_values for index, value in chunk.escapes.items()):
        raise DamagedError(f"an escape is beyond the last of {len(escapes)} symbols, or no value of the model")
    escapes[list(chunk.escapes)] = torch.tensor(list(chunk.escapes.values()), dtype=torch.int16)
    known = iter(escapes.view(sites, count).long())
    stream = coder.Decoder(chunk.stream)

    def choose(logits: Tensor, site: tuple[int, ...]) -> Tensor:
        values = next(known)
        unknown = values < 0
        values[unknown] = stream.read(frequencies(logits.cpu()[unknown]))
        return values.to(logits.device)

    device = exact.device
    images = decode(exact, choose, torch.zeros(shape, dtype=torch.int64, device=device), conditioning, backend)
    stream.finish()
    return images.to("cpu", torch.uint8)


def checksum_of(pixels: NDArray[np.uint8]) -> int:
    """CRC-32 of the pixels."""
    return zlib.crc32(np.ascontiguousarray(pixels).data)
