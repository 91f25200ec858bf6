"""Images to an archive and back."""

import io
from collections.abc import Iterable, Sequence
from functools import partial
from typing import BinaryIO

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from axial_transformers.compression.archive_reader import ArchiveReader
from axial_transformers.compression.archive_writer import Packing, write_archive
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.array_arguments import accepts_arrays
from axial_transformers.progress import Progress


@accepts_arrays("images", "label", "cond")
def compress(  # noqa: PLR0913
    model: AxialTransformer,
    images: Int[Tensor, "n *a c"],
    label: Int[Tensor, " n"] | None = None,
    cond: Float[Tensor, "n *a d"] | None = None,
    *,
    verify: bool = True,
    plain_codec: bool = True,
    chunk_images: int = 128,
    metadata: bytes = b"",
    files: Sequence[bytes] = (),
    progress: Progress = iter,
) -> bytes:
    """The archive of images [N, *A, C] of any integer dtype: about -log2 p(images) bits under the model.

    Images, label and cond may be tensors, arrays or nested lists. The model may have any dtype and device and is not
    changed. The CPU computes it in float32 with the same bits on every machine. This takes about as long as sampling;
    each of torch's threads works on one chunk.

    Args:
        label: int64 [N], for models with num_classes. Not stored: `decompress` needs the same again.
        cond: [N, *A, D], likewise.
        verify: decode each chunk and compare before the archive is returned.
        plain_codec: store images as lossless WebP where that is smaller than what the model makes of them.
        chunk_images: 64..128; a chunk has this number of images or up to twice as many, decoded together. Large chunks
            take less space, but more memory: 8 D bytes per image, site and masked layer.
        metadata: bytes that are stored in the header.
        files: contents that are stored after the images, each in a chunk of its own.
        progress: wraps the loop over chunks.

    Raises:
        ValueError: images, label or cond that are not the model's, or a model that cannot compress.
        DamagedError: verification failed: the machine does not compute what it should.
    """
    file = io.BytesIO()
    packing = Packing(verify, plain_codec, chunk_images)
    contents = [partial(bytes, content) for content in files]
    write_archive(model, file, images, Conditioning(label, cond), packing, metadata, contents, progress)
    return file.getvalue()


@accepts_arrays("label", "cond")
def decompress(
    model: AxialTransformer,
    archive: bytes | bytearray | memoryview | BinaryIO,
    label: Int[Tensor, " n"] | None = None,
    cond: Float[Tensor, "n *a d"] | None = None,
    *,
    chunks: Iterable[int] | None = None,
    most_values: int | None = None,
    progress: Progress = iter,
) -> UInt8[Tensor, "n *a c"]:
    """The images [N, *A, C] of an archive, or of some of its chunks, exactly as they were: uint8, on the CPU.

    Label and cond may be tensors, arrays or nested lists.

    Args:
        archive: its bytes, or an open binary file.
        label, cond: as `compress` was given, of all images of the archive.
        chunks: indices of the chunks to read, None for all; other chunks are not read and may be damaged.
        most_values: largest number of values that the images may have, according to the header. A few bytes can stand
            for many values that are nearly certain, so that only this bounds the time that a hostile archive takes.
        progress: wraps the loop over chunks.

    Raises:
        WrongModelError: it was written with another model.
        WrongConditionsError: label or cond are missing, of another length, or were not given to `compress`.
        OtherVersionError, TruncatedError, DamagedError: see `errors`; the message names the chunk.
        ArchiveError: more than `most_values`.
        ValueError: no such chunk.
    """
    file = io.BytesIO(archive) if isinstance(archive, bytes | bytearray | memoryview) else archive
    reader = ArchiveReader(model, file, label, cond, most_values)
    entries = reader.header.chunks
    chosen = list(range(len(entries)) if chunks is None else chunks)
    if any(not 0 <= i < len(entries) for i in chosen):
        raise ValueError(f"chunks must be in 0..{len(entries) - 1}, not {chosen}")
    wanted = [i for i in chosen if entries[i].images]
    for i in wanted:
        reader.content(i)  # before the long work, to find damage early
    images = [some for _, some in zip(progress(wanted), reader.images(wanted), strict=True) if some is not None]
    config = model.config
    return torch.cat([torch.zeros(0, *config.shape, config.channels, dtype=torch.uint8), *images])
