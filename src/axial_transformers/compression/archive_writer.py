"""An archive, written a bounded number of chunks at a time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import BinaryIO, NamedTuple

import torch
from torch import Tensor

from axial_transformers.compression import container
from axial_transformers.compression.codec import (
    check_model,
    decode_chunk,
    encode_chunk,
    exact_network,
    work_on_chunks,
)
from axial_transformers.compression.container import Entry, Header
from axial_transformers.compression.errors import DamagedError
from axial_transformers.compression.fingerprint import fingerprint
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.likelihood.evaluation import Images
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.progress import Progress

LEAST_IMAGES = 64
"""Smallest number of images in a chunk, unless the archive has fewer: each chunk adds some 20 bytes."""


File = Callable[[], bytes]
"""A way to read the content of a file."""


class Packing(NamedTuple):
    """The way in which images are packed; see `compress`."""

    verify: bool = True
    plain_codec: bool = True
    chunk_images: int = 128


class Packed(NamedTuple):
    """Result of `write_archive`."""

    header: Header
    webp: list[int]
    """Sizes in bytes of the images that are stored as WebP."""


def write_archive(
    model: AxialTransformer, file: BinaryIO, images: Images, conditioning: Conditioning, packing: Packing,
    metadata: bytes, files: Sequence[File], progress: Progress,
) -> Packed:  # fmt: skip
    """Writes what `compress` returns to an empty file.

    As many chunks as torch has threads are in memory, or one file.

    Raises:
        ValueError: the packing, the model, or the number of labels or conditionings, cannot be.
    """
    check_model(model)
    for name, given in conditioning._asdict().items():
        if given is not None and len(given) != len(images):
            raise ValueError(f"{name} is of {len(given)} images, but {len(images)} are to be compressed")
    least, most = LEAST_IMAGES, container.MOST_IMAGES // 2
    if not least <= packing.chunk_images <= most:
        raise ValueError(f"chunk_images must be in {least}..{most}, not {packing.chunk_images}")
    network, entries, webp = exact_network(model), list[Entry](), list[int]()

    def encode(item: tuple[Tensor, Conditioning]) -> tuple[Entry, bytes, list[int]]:
        images, own = item
        chunk = encode_chunk(network, images, own, packing.plain_codec)
        content = chunk.pack()
        if packing.verify:
            again = decode_chunk(network, len(images), content, own)
            if not torch.equal(again, images.to("cpu", torch.uint8)):
                raise DamagedError("a chunk does not decode to the images it was made of: do not use this model")
        return container.entry(len(images), content), content, [len(file) for file in chunk.webp.values()]

    chunks = _even_ranges(len(images), packing.chunk_images)
    header = Header(
        fingerprint=fingerprint(model), shape=model.config.shape, channels=model.config.channels,
        num_values=model.config.num_values, conditions=conditioning.kinds, metadata=metadata,
        chunks=(Entry(0, 0, 0),) * (len(chunks) + len(files)),
    )  # fmt: skip
    file.write(header.pack())  # of the size that it will have
    items = ((model.check(torch.as_tensor(images[some])), conditioning.of(some)) for some in chunks)
    with without_dropout(model):
        encoded = work_on_chunks(encode, items)
        for _, (entry, content, webp_of_chunk) in zip(progress(chunks), encoded, strict=True):
            entries.append(entry)
            webp += webp_of_chunk
            file.write(content)
    for read in files:
        content = read()
        entries.append(container.entry(0, content))
        file.write(content)
    file.seek(0)
    header = replace(header, chunks=tuple(entries))
    file.write(header.pack())
    return Packed(header, webp)


def _even_ranges(count: int, size: int) -> list[slice]:
    """Splits 0..count evenly into as many parts of at least `size` as possible; into one if count is smaller."""
    parts = max(1, count // size) if count else 0
    return [slice(count * i // parts, count * (i + 1) // parts) for i in range(parts)]
