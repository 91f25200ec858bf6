"""Images to an archive and back, a bounded number of chunks at a time."""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, replace
from functools import partial
from math import prod
from typing import BinaryIO, NamedTuple

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from axial_transformers.compression import container
from axial_transformers.compression.codec import (
    check_model,
    decode_chunk,
    encode_chunk,
    exact_network,
    work_on_chunks,
)
from axial_transformers.compression.container import (
    ArchiveError,
    ChunkEntry,
    DamagedError,
    Header,
    WrongConditionsError,
    WrongModelError,
)
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.models.arguments import Images, accepts_arrays
from axial_transformers.progress import Progress
from axial_transformers.storage.typed_json import to_json

IMAGES_PER_CHUNK = 128
"""Images of a chunk at least, unless the archive has fewer; they are decoded together. Fewer make archives larger."""

File = Callable[[], bytes]
"""Returns the content of a file."""


@accepts_arrays("images", "label", "cond")
def compress(
    model: AxialTransformer,
    images: Int[Tensor, "n *a c"],
    label: Int[Tensor, " n"] | None = None,
    cond: Float[Tensor, "n *a d"] | None = None,
    *,
    verify: bool = True,
    metadata: bytes = b"",
    files: Sequence[bytes] = (),
    progress: Progress = iter,
) -> bytes:
    """Return the archive of images [N, *A, C] of any integer dtype: about -log2 p(images) bits under the model.

    Images that lossless WebP makes smaller are stored as WebP. Inputs may be tensors, arrays or nested lists. The CPU
    computes in float32 with the same bits on every machine, about as slowly as sampling.

    Args:
        label: int64 [N], for models with num_classes. Not stored: `decompress` needs it again.
        cond: [N, *A, D], likewise.
        verify: decode each chunk and compare.
        metadata: bytes for the header.
        files: contents to store after the images.
        progress: wraps the loop over chunks.

    Raises:
        ValueError: images, label or cond do not fit the model, or it cannot compress.
        DamagedError: verification failed: the machine computes wrongly.
    """
    file = io.BytesIO()
    contents = [partial(bytes, content) for content in files]
    write_archive(model, file, images, Conditioning(label, cond), verify, metadata, contents, progress)
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
) -> Integer[Tensor, "n *a c"]:
    """Return the images [N, *A, C] of an archive, or of some of its chunks, on the CPU.

    They are uint8 if all values of the model are in 0..255, else int64.

    Args:
        archive: its bytes, or an open binary file.
        label, cond: as for `compress`, for all images.
        chunks: indices of the chunks to read; None: all.
        most_values: largest number of values in the header; bounds the time of a hostile archive.
        progress: wraps the loop over chunks.

    Raises:
        WrongModelError: another model wrote it.
        WrongConditionsError: label or cond do not match those of `compress`.
        OtherVersionError, TruncatedError, DamagedError: see `container`.
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
    dtype = torch.uint8 if config.of_bytes else torch.int64
    return torch.cat([torch.zeros(0, *config.shape, config.channels, dtype=dtype), *images])


class Packed(NamedTuple):
    """Result of `write_archive`."""

    header: Header
    webp: list[int]
    """Sizes in bytes of the images stored as WebP."""


def write_archive(
    model: AxialTransformer, file: BinaryIO, images: Images, conditioning: Conditioning, verify: bool,
    metadata: bytes = b"", files: Sequence[File] = (), progress: Progress = iter,
) -> Packed:  # fmt: skip
    """Write the result of `compress` to an empty file."""
    check_model(model)
    for name, given in conditioning._asdict().items():
        if given is not None and len(given) != len(images):
            raise ValueError(f"{name} is of {len(given)} images, but {len(images)} are to be compressed")
    network, entries, webp = exact_network(model), list[ChunkEntry](), list[int]()

    def encode(item: tuple[Tensor, Conditioning]) -> tuple[ChunkEntry, bytes, list[int]]:
        images, own = item
        chunk = encode_chunk(network, images, own)
        content = chunk.pack()
        if verify:
            again = decode_chunk(network, len(images), content, own)
            if not torch.equal(again, images.to("cpu", again.dtype)):
                raise DamagedError("a chunk does not decode to the images it was made of: do not use this model")
        return container.entry(len(images), content), content, [len(file) for file in chunk.webp.values()]

    chunks = _even_ranges(len(images), IMAGES_PER_CHUNK)
    header = Header(
        fingerprint=fingerprint(model), shape=model.config.shape, channels=model.config.channels,
        num_values=model.config.num_values, conditions=conditioning.kinds, metadata=metadata,
        chunks=(ChunkEntry(0, 0, 0),) * (len(chunks) + len(files)),
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
    parts = max(1, count // size) if count else 0
    return [slice(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


class ArchiveReader:
    """Reader of an archive, chunk by chunk; arguments as for `decompress`.

    Raises:
        ArchiveError: see `container`.
        ValueError: no open binary file that can seek, or a model that cannot compress.
    """

    def __init__(
        self, model: AxialTransformer, file: BinaryIO, label: Tensor | None = None, cond: Tensor | None = None,
        most_values: int | None = None,
    ):  # fmt: skip
        check_model(model)
        _check_file(file)
        self.header, self._file = container.read_header(file), file
        self._conditioning = Conditioning(label, cond)
        _check_header(self.header, model)
        _check_conditioning(self.header, self._conditioning)
        _check_number(self.header, most_values)
        self.config, self._model, self._network = model.config, model, exact_network(model)

    def content(self, chunk: int) -> bytes:
        """Return the bytes of a chunk."""
        _check_file(self._file)
        return container.read_chunk(self._file, self.header, chunk)

    def images(self, chunks: Iterable[int], salvage: bool = False) -> Iterator[Integer[Tensor, "n *a c"] | None]:
        """Yield the images [n, *A, C] of chunks; with `salvage`, None for damaged ones."""

        def contents() -> Iterator[tuple[int, bytes | None]]:
            for chunk in chunks:
                try:
                    yield chunk, self.content(chunk)
                except ArchiveError:
                    if not salvage:
                        raise
                    yield chunk, None

        def decode(item: tuple[int, bytes | None]) -> Tensor | None:
            chunk, content = item
            try:
                return None if content is None else self._decoded(chunk, content)
            except ArchiveError:
                if not salvage:
                    raise
                return None

        with without_dropout(self._model):
            yield from work_on_chunks(decode, contents())

    def _decoded(self, chunk: int, content: bytes) -> Tensor:
        entry, first = self.header.chunks[chunk], self.header.first_image(chunk)
        conditioning = self._conditioning.of(slice(first, first + entry.images))
        try:
            images, config = decode_chunk(self._network, entry.images, content, conditioning), self._model.config
            return images + config.lowest if config.of_bytes else images.long() + config.lowest
        except DamagedError as error:
            raise DamagedError(f"chunk {chunk} of {len(self.header.chunks)}: {error}") from error


def _check_header(header: Header, model: AxialTransformer) -> None:
    config = model.config
    if header.fingerprint != fingerprint(model):
        raise WrongModelError(
            f"the archive was written with the model {header.fingerprint.hex()[:16]}, not with this one,"
            f" {fingerprint(model).hex()[:16]}: give the model folder it was written with"
        )
    found = (header.shape, header.channels, header.num_values)
    if found != (config.shape, config.channels, config.num_values):
        raise DamagedError(f"the header states shape, channels and values {found}: not those of its model")


def _check_number(header: Header, most_values: int | None) -> None:
    values = sum(entry.images for entry in header.chunks) * header.channels * prod(header.shape)
    if most_values is not None and values > most_values:
        raise ArchiveError(
            f"the archive states {values:,} values, and at most {most_values:,} are allowed: allow more if it is honest"
        )


def _check_file(file: BinaryIO) -> None:
    if not isinstance(file, io.IOBase) and not hasattr(file, "seek"):
        raise ValueError(f"archive must be bytes or an open binary file, not {file!r:.100}: open what the path names")
    if getattr(file, "closed", False):
        raise ValueError("the archive's file is closed: keep it open while it is read")
    if isinstance(file, io.TextIOBase):
        raise ValueError('the archive is open as text: open it with mode "rb"')


def _check_conditioning(header: Header, conditioning: Conditioning) -> None:
    for bit, (name, value) in enumerate(conditioning._asdict().items()):
        stored = bool(header.conditions >> bit & 1)
        if stored != (value is not None) or (value is not None and len(value) != header.images):
            was = f"with {name} of its {header.images} images" if stored else f"without {name}"
            raise WrongConditionsError(f"the archive was written {was}: give the same again")


def fingerprint(model: AxialTransformer) -> bytes:
    """Return the SHA-256 of the model's configuration and its tensors: 32 bytes.

    Fields at their defaults do not count, so that new fields change nothing.

    Raises:
        ValueError: the model is on the meta device.
    """
    model.require_values()
    defaults = {field.name: field.default for field in fields(model.config) if field.default is not MISSING}
    config = {name: value for name, value in to_json(model.config).items() if value != defaults.get(name, MISSING)}
    digest = hashlib.sha256(json.dumps({"model": model.name, **config}, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()
