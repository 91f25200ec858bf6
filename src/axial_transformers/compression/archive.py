"""Images to an archive and back."""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, TypeVar

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from axial_transformers.compression import codec as float64_codec
from axial_transformers.compression import container, exact_codec
from axial_transformers.compression.chunk import Chunk
from axial_transformers.compression.container import Header
from axial_transformers.compression.errors import DamagedError, WrongConditionsError, WrongModelError
from axial_transformers.compression.fingerprint import fingerprint
from axial_transformers.compression.frequencies import PRECISION
from axial_transformers.kernels.threads import parallel_map
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.array_arguments import accepts_arrays
from axial_transformers.progress import Progress

CODECS: dict[int, Any] = {1: float64_codec, 2: exact_codec}
"""The functions of a format version: `prepared`, `encode_chunk`, `decode_chunk` and `symbols`."""
Item = TypeVar("Item")
Result = TypeVar("Result")

LEAST_IMAGES = 64
"""Smallest number of images in a chunk, unless the archive has fewer: each chunk adds some 30 bytes."""


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
    micro_batch: int = 16,
    metadata: bytes = b"",
    files: Sequence[bytes] = (),
    progress: Progress = iter,
    version: int = 1,
) -> bytes:
    """The archive of images [N, *A, C] of any integer dtype: about -log2 p(images) bits under the model.

    Images, label and cond may be tensors, arrays or nested lists.

    Version 1 computes in float64 whatever the model's dtype, on its device. The model is not changed.

    Args:
        label: int64 [N], for models with num_classes. Not stored: `decompress` needs the same again.
        cond: [N, *A, D], likewise.
        verify: decode the archive and compare before it is returned.
        plain_codec: store images as lossless WebP where that is smaller than what the model makes of them.
        chunk_images: 64..128; a chunk has this number of images or up to twice as many, decoded together. Large chunks
            take less space, but more memory: 16 D bytes per image, site and masked layer.
        micro_batch: number of images that the model computes at once; the archive does not depend on it.
        metadata: bytes that are stored in the header.
        files: contents that are stored after the images, each in a chunk of its own.
        progress: wraps the loops over chunks, of encoding and then of verification.
        version: of the format. 1 computes the model in float64. 2 computes it in float32 with equal bits everywhere,
            several chunks at a time, and takes about as long as sampling.

    Raises:
        ValueError: images, label or cond that are not the model's, or a model that cannot compress.
        DamagedError: verification failed: two ways to compute the model differ by more than `frequencies.GUARD` allows.
    """
    _check_model(model)
    if not LEAST_IMAGES <= chunk_images <= container.MOST_IMAGES // 2:
        raise ValueError(f"chunk_images must be in {LEAST_IMAGES}..{container.MOST_IMAGES // 2}, not {chunk_images}")
    _check_micro_batch(micro_batch)
    if version not in CODECS:
        raise ValueError(f"version must be {' or '.join(map(str, CODECS))}, not {version}")
    codec, conditioning = CODECS[version], Conditioning(label, cond)
    exact: Any = codec.prepared(model)

    def encode(some: slice) -> tuple[container.Entry, bytes]:
        checked = model.check(images[some])
        chunk = codec.encode_chunk(exact, checked, conditioning.of(some), micro_batch, plain_codec)
        content = chunk.pack()
        return container.entry(len(checked), codec.symbols(exact, len(checked), chunk), content), content

    encoded = _by_chunks(encode, _even_ranges(len(images), chunk_images), version, progress)
    entries, contents = [entry for entry, _ in encoded], [content for _, content in encoded]
    header = Header(
        version=version, fingerprint=fingerprint(model), shape=model.config.shape, channels=model.config.channels,
        num_values=model.config.num_values, precision=PRECISION, conditions=_kinds(conditioning), metadata=metadata,
        chunks=(*entries, *(container.entry(0, 0, file) for file in files)),
    )  # fmt: skip
    archive = container.write(header, [*contents, *files])
    if verify:
        again = decompress(model, archive, label, cond, progress=progress)
        if not torch.equal(again, images.to("cpu", torch.uint8)):
            raise DamagedError("the archive does not decode to the images it was made of: do not use this model")
    return archive


@accepts_arrays("label", "cond")
def decompress(
    model: AxialTransformer,
    archive: bytes | bytearray | memoryview | BinaryIO,
    label: Int[Tensor, " n"] | None = None,
    cond: Float[Tensor, "n *a d"] | None = None,
    *,
    chunks: Iterable[int] | None = None,
    micro_batch: int = container.MOST_IMAGES,
    progress: Progress = iter,
) -> UInt8[Tensor, "n *a c"]:
    """The images of an archive, bit for bit: uint8 [N, *A, C] on the CPU.

    Args:
        archive: bytes, or an open binary file that can seek.
        label, cond: those that `compress` was given, of all images of the archive.
        chunks: indices of the chunks to read, None for all; other chunks are not read and may be damaged.
        micro_batch: number of images that the model computes at once.
        progress: wraps the loop over chunks.

    Raises:
        WrongModelError: it was written with another model.
        WrongConditionsError: label or cond are missing, of another length, or were not given to `compress`.
        OtherVersionError, TruncatedError, DamagedError: see `errors`; the message names the chunk.
        ValueError: no such chunk.
    """
    file = io.BytesIO(archive) if isinstance(archive, bytes | bytearray | memoryview) else archive
    reader = ArchiveReader(model, file, label, cond, micro_batch)
    entries = reader.header.chunks
    chosen = list(range(len(entries)) if chunks is None else chunks)
    if any(not 0 <= i < len(entries) for i in chosen):
        raise ValueError(f"chunks must be in 0..{len(entries) - 1}, not {chosen}")
    contents = {i: reader.content(i) for i in chosen if entries[i].images}  # before the long work, to find damage early
    images = _by_chunks(lambda i: reader.images(i, contents[i]), list(contents), reader.header.version, progress)
    config = model.config
    return torch.cat([torch.zeros(0, *config.shape, config.channels, dtype=torch.uint8), *images])


class ArchiveReader:
    """Reader of an archive, chunk by chunk.

    Raises:
        ArchiveError: see `errors`.
        ValueError: a file that is closed, or no binary file that can seek; a model that cannot compress.
    """

    def __init__(
        self, model: AxialTransformer, file: BinaryIO, label: Tensor | None = None, cond: Tensor | None = None,
        micro_batch: int = container.MOST_IMAGES,
    ):  # fmt: skip
        _check_model(model)
        _check_micro_batch(micro_batch)
        _check_file(file)
        self.header, self._file = container.read_header(file), file
        self._conditioning = Conditioning(label, cond)
        _check_header(self.header, model)
        _check_conditioning(self.header, self._conditioning)
        self._codec = CODECS[self.header.version]
        self._exact: Any = self._codec.prepared(model)
        self._micro_batch = micro_batch

    def content(self, chunk: int) -> bytes:
        """Bytes of a chunk, of images or of a whole file; nothing else of the file is read."""
        _check_file(self._file)
        return container.read_chunk(self._file, self.header, chunk)

    def images(self, chunk: int, content: bytes) -> UInt8[Tensor, "n *a c"]:
        """Images of a chunk with that content: uint8 [n, *A, C]."""
        entries = self.header.chunks
        count, first = entries[chunk].images, self.header.first_image(chunk)
        try:
            parts = Chunk.unpack(content)
            if self._codec.symbols(self._exact, count, parts) != entries[chunk].symbols:
                raise DamagedError("its parts have another number of symbols than the index states")
            conditioning = self._conditioning.of(slice(first, first + count))
            return self._codec.decode_chunk(self._exact, count, parts, conditioning, self._micro_batch)
        except DamagedError as error:
            raise DamagedError(f"chunk {chunk} of {len(entries)}: {error}") from error


def _by_chunks(
    work: Callable[[Item], Result], chunks: Sequence[Item], version: int, progress: Progress
) -> list[Result]:
    """The results of all chunks; those of version 2 are worked on beside each other, one by each thread."""
    together = torch.get_num_threads() if version > 1 else 1
    parts = [chunks[first : first + together] for first in range(0, len(chunks), together)]
    return [result for part in progress(parts) for result in parallel_map(work, part)]


def _check_header(header: Header, model: AxialTransformer) -> None:
    config = model.config
    if header.fingerprint != fingerprint(model):
        raise WrongModelError(
            f"the archive was written with the model {header.fingerprint.hex()[:16]}, not with this one,"
            f" {fingerprint(model).hex()[:16]}: give the model folder it was written with"
        )
    found = (header.shape, header.channels, header.num_values, header.precision)
    if found != (config.shape, config.channels, config.num_values, PRECISION):
        raise DamagedError(f"the header states shape, channels, values and precision {found}: not those of its model")


def _check_model(model: AxialTransformer) -> None:
    if model.config.num_values > 256:
        raise ValueError(f"archives hold values of 8 bits; this model has {model.config.num_values} values")
    if model.config.known_channels:
        raise ValueError("the model conditions on known channels, which an archive does not hold")


def _check_micro_batch(size: int) -> None:
    if size < 1:
        raise ValueError(f"micro_batch must be at least 1, not {size}")


def _check_file(file: BinaryIO) -> None:
    if not isinstance(file, io.IOBase) and not hasattr(file, "seek"):
        raise ValueError(f"archive must be bytes or an open binary file, not {file!r:.100}: open what the path names")
    if getattr(file, "closed", False):
        raise ValueError("the archive's file is closed: keep it open while it is read")
    if isinstance(file, io.TextIOBase):
        raise ValueError('the archive is open as text: open it with mode "rb"')


def _kinds(conditioning: Conditioning) -> int:
    """1 if there is a label, plus 2 if there is an external conditioning."""
    return (conditioning.label is not None) + 2 * (conditioning.cond is not None)


def _check_conditioning(header: Header, conditioning: Conditioning) -> None:
    for bit, (name, value) in enumerate(conditioning._asdict().items()):
        stored = bool(header.conditions >> bit & 1)
        if stored != (value is not None) or (value is not None and len(value) != header.images):
            was = f"with {name} of its {header.images} images" if stored else f"without {name}"
            raise WrongConditionsError(f"the archive was written {was}: give the same again")


def _even_ranges(count: int, size: int) -> list[slice]:
    """Splits 0..count evenly into as many parts of at least `size` as possible; into one if count is smaller."""
    parts = max(1, count // size) if count else 0
    return [slice(count * i // parts, count * (i + 1) // parts) for i in range(parts)]
