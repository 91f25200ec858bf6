"""Images to an archive and back, a bounded number of chunks at a time."""

import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from axial_transformers.compression import container, embedded_model
from axial_transformers.compression.codec import (
    check_model,
    decode_chunk,
    dtype_of,
    encode_chunk,
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
from axial_transformers.compression.rounding import Rounded, rounded
from axial_transformers.decoding.exact_network import ExactNetwork
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import UNCONDITIONAL, AxialTransformer, AxialTransformerConfig, Conditioning
from axial_transformers.models.arguments import Images, accepts_arrays
from axial_transformers.progress import Progress
from axial_transformers.storage.byte_reader import ByteReader
from axial_transformers.storage.files import source_path

IMAGES_PER_CHUNK = 128
"""Images of a chunk at least, unless the archive has fewer; they are decoded together. Fewer make archives larger."""

File = Callable[[], bytes]
"""Returns the content of a file."""


class NoGainError(ValueError):
    """An archive would be larger than what it is made of."""

    exit_status = 1


class Limit(NamedTuple):
    """The bytes that an archive may take, to be of use."""

    size: int
    of: str
    """What takes as many."""
    stored: int = 0
    """Bytes of files that the archive stores as they are."""

    def check(self, size: float) -> None:
        """Raise NoGainError if `size` bytes and the files are too many."""
        if (size := size + self.stored) > self.size:
            sizes = f"the archive would take about {size:,.0f} bytes, {self.of} {self.size:,}"
            raise NoGainError(f"{sizes}: take more examples, or write it nevertheless, by force=True")


def by_zlib(config: AxialTransformerConfig, examples: Iterable[Any], stored: int = 0) -> Limit:
    """Return what zlib makes of the values of examples [*A, C], in the type of archives, and of `stored` bytes."""
    packer, dtype = zlib.compressobj(9), dtype_of(config)
    parts = (packer.compress((np.asarray(each, np.int64) - config.lowest).astype(dtype).tobytes()) for each in examples)
    return Limit(stored + sum(map(len, parts)) + len(packer.flush()), "its values by zlib", stored)


@accepts_arrays("images", "label", "cond")
def compress(  # noqa: PLR0913
    model: AxialTransformer,
    images: Int[Tensor, "n *a c"],
    label: Int[Tensor, " n"] | None = None,
    cond: Float[Tensor, "n *a d"] | None = None,
    *,
    embed: bool = False,
    force: bool = False,
    verify: bool = True,
    metadata: bytes = b"",
    files: Sequence[bytes] = (),
    progress: Progress = iter,
) -> bytes:
    """Return the archive of images [N, *A, C] of any integer dtype: about -log2 p(images) bits under the model.

    Images that lossless WebP makes smaller are stored as WebP. Inputs may be tensors, arrays or nested lists. The CPU
    computes in float32 with the same bits on every machine, about as slowly as sampling.

    Args:
        label: int64 [N], for models with num_classes. Without `embed` not stored: `decompress` needs it again.
        cond: [N, *A, D], never stored.
        embed: store the model and the labels, too. Its weights are rounded, so that weights and images together take
            few bytes and the model stays good; `open_archive` then needs nothing else. No image is stored as WebP.
        force: embed a model even if it makes the archive larger than zlib makes the values.
        verify: decode each chunk and compare.
        metadata: bytes for the header.
        files: contents to store after the images.
        progress: wraps the loop over chunks and, with `embed`, those that round.

    Raises:
        ValueError: images, label or cond do not fit the model, or it cannot compress.
        NoGainError: with `embed`, model and images take more bytes than zlib of the values; a ValueError.
        DamagedError: verification failed: the machine computes wrongly.
    """
    file, conditioning = io.BytesIO(), Conditioning(label, cond)
    contents = [partial(bytes, content) for content in files]
    embedded = to_embed(model, images, conditioning, progress) if embed else None
    if embedded and not force:
        by_zlib(model.config, images.cpu()).check(embedded.expected)
    write_archive(model, file, images, conditioning, verify, metadata, contents, progress, embedded)
    return file.getvalue()


def to_embed(
    model: AxialTransformer, images: Images, conditioning: Conditioning = UNCONDITIONAL, progress: Progress = iter
) -> Rounded:
    """Return a model with rounded weights, for an archive of images [N, *A, C] that carries it; see `compress`."""
    check_model(model)
    if conditioning.cond is not None:
        raise ValueError("an archive that carries its model holds no cond: leave out cond, or embed")
    if not len(images):
        raise ValueError("there are no images, for which a model could be rounded: leave out embed")
    model.embed_conditioning(len(images), conditioning)  # checks all labels, of which `rounded` takes a sample
    return rounded(model, images, conditioning, progress)


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
    reader = ArchiveReader(file, model, label, cond, most_values)
    entries = reader.header.chunks
    chosen = list(range(len(entries)) if chunks is None else chunks)
    if any(not 0 <= i < len(entries) for i in chosen):
        raise ValueError(f"chunks must be in 0..{len(entries) - 1}, not {chosen}")
    return reader.read([i for i in chosen if entries[i].images], progress)


def open_archive(
    archive: str | Path | bytes | bytearray | memoryview | BinaryIO, *, most_values: int | None = None
) -> "ArchiveReader":
    """Open an archive that carries its model. Its parts are read when they are asked for.

    Args:
        archive: a path, the bytes, or an open binary file.
        most_values: as for `decompress`.

    Returns:
        What has `values` [N, *A, C], the `model`, the `labels` [N] or None, and the `metadata`. Of a path, it is a
        context manager that closes the file.

    Raises:
        FileNotFoundError: no such file.
        ArchiveError: see `container`; also an archive without its model.
    """
    if isinstance(archive, bytes | bytearray | memoryview):
        return ArchiveReader(io.BytesIO(archive), most_values=most_values)
    if not isinstance(archive, str | Path):
        return ArchiveReader(archive, most_values=most_values)
    file = source_path(archive).open("rb")
    try:
        return ArchiveReader(file, most_values=most_values)
    except ValueError:
        file.close()
        raise


class Packed(NamedTuple):
    """Result of `write_archive`."""

    header: Header
    webp: list[int]
    """Sizes in bytes of the images stored as WebP."""


def write_archive(  # noqa: PLR0913
    model: AxialTransformer, file: BinaryIO, images: Images, conditioning: Conditioning, verify: bool,
    metadata: bytes = b"", files: Sequence[File] = (), progress: Progress = iter, embedded: Rounded | None = None,
) -> Packed:  # fmt: skip
    """Write the result of `compress` to an empty file.

    Args:
        embedded: the model for the archive to carry.
    """
    model = embedded.model if embedded else model
    check_model(model)
    for name, given in conditioning._asdict().items():
        if given is not None and len(given) != len(images):
            raise ValueError(f"{name} is of {len(given)} images, but {len(images)} are to be compressed")
    network, entries, webp = ExactNetwork(model), list[ChunkEntry](), list[int]()

    def encode(item: tuple[Tensor, Conditioning]) -> tuple[ChunkEntry, bytes, list[int]]:
        images, own = item
        chunk = encode_chunk(network, images, own, by_model=embedded is not None)
        content = chunk.pack()
        if verify:
            again = decode_chunk(network, len(images), content, own)
            if not torch.equal(again, images.to("cpu", again.dtype)):
                raise DamagedError("a chunk does not decode to the images it was made of: do not use this model")
        return container.entry(len(images), content), content, [len(file) for file in chunk.webp.values()]

    chunks, label = _even_ranges(len(images), IMAGES_PER_CHUNK), conditioning.label
    of_model = [embedded.content] if embedded else []
    if embedded and label is not None:
        of_model.append(b"".join(map(container.varint, label.tolist())))
    header = Header(
        fingerprint=fingerprint(model), shape=model.config.shape, channels=model.config.channels,
        num_values=model.config.num_values, labels=label is not None, cond=conditioning.cond is not None,
        carries_model=embedded is not None, metadata=metadata,
        chunks=(ChunkEntry(0, 0, 0),) * (len(of_model) + len(chunks) + len(files)),
    )  # fmt: skip
    file.write(header.pack())  # of the size that it will have
    for content in of_model:
        entries.append(container.entry(0, content))
        file.write(content)
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

    Args:
        model: None: the one that the archive carries.

    Raises:
        ArchiveError: see `container`.
        ValueError: no open binary file that can seek, or a model that cannot compress.
    """

    def __init__(
        self, file: BinaryIO, model: AxialTransformer | None = None, label: Tensor | None = None,
        cond: Tensor | None = None, most_values: int | None = None,
    ):  # fmt: skip
        if model is not None:
            check_model(model)
        _check_file(file)
        self.header, self._file = container.read_header(file), file
        _check_number(self.header, most_values)
        self._given = Conditioning(label, cond)
        if model is not None:
            _check_header(self.header, model)
            self.model = model  # in place of reading it
        elif not self.header.carries_model:
            name = self.header.fingerprint.hex()[:16]
            raise WrongModelError(f"the archive does not carry its model, {name}: give the model it was written with")
        _check_conditioning(self.header, self._given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @cached_property
    def model(self) -> AxialTransformer:
        """The model in the archive, on the CPU; DamagedError if it cannot be read."""
        model = embedded_model.unpack(self.content(0))
        try:
            check_model(model)
        except ValueError as error:
            raise DamagedError(f"the model in the archive makes no archives: {error}") from error
        if self.header.fingerprint != fingerprint(model):
            raise DamagedError("the model in the archive is not the one that wrote it")
        _check_header(self.header, model)
        return model

    @property
    def config(self) -> AxialTransformerConfig:
        return self.model.config

    @cached_property
    def labels(self) -> Int[Tensor, " n"] | None:
        """Labels [N] of the images, int64; None without any. The number of classes stands for no label."""
        if not (self.header.carries_model and self.header.labels):
            return self._given.label
        content, count = self.content(1), self.header.images
        if len(content) < count:
            raise DamagedError(f"the archive has fewer labels than its {count} images")
        reader = ByteReader(content, "the labels of the archive", truncated=DamagedError, malformed=DamagedError)
        labels, classes = [reader.varint() for _ in range(count)], self.config.num_classes
        if reader.left or classes is None or max(labels, default=0) > classes:
            raise DamagedError("the labels of the archive are not those of its images")
        return torch.tensor(labels, dtype=torch.int64)

    @property
    def metadata(self) -> bytes:
        """The bytes that `compress` was given."""
        return self.header.metadata

    @property
    def values(self) -> Integer[Tensor, "n *a c"]:
        """All images [N, *A, C], as `decompress` returns them, decoded anew."""
        return self.read([i for i, entry in enumerate(self.header.chunks) if entry.images])

    def read(self, chunks: Sequence[int], progress: Progress = iter) -> Integer[Tensor, "n *a c"]:
        """Return the images [n, *A, C] of chunks; see `decompress`."""
        for i in chunks:
            self.content(i)  # before the long work, to find damage early
        images = [some for _, some in zip(progress(chunks), self.images(chunks), strict=True) if some is not None]
        config = self.config
        dtype = torch.uint8 if config.of_bytes else torch.int64
        return torch.cat([torch.zeros(0, *config.shape, config.channels, dtype=dtype), *images])

    @cached_property
    def _network(self) -> ExactNetwork:
        return ExactNetwork(self.model)

    def content(self, chunk: int) -> bytes:
        """Return the bytes of a chunk."""
        _check_file(self._file)
        return container.read_chunk(self._file, self.header, chunk)

    def images(self, chunks: Sequence[int], salvage: bool = False) -> Iterator[Integer[Tensor, "n *a c"] | None]:
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

        if not chunks:
            return  # the network may be large
        _ = self._network, self.labels  # once, not in each thread
        with without_dropout(self.model):
            yield from work_on_chunks(decode, contents())

    def _decoded(self, chunk: int, content: bytes) -> Tensor:
        entry, first = self.header.chunks[chunk], self.header.first_image(chunk)
        conditioning = Conditioning(self.labels, self._given.cond).of(slice(first, first + entry.images))
        try:
            if self.header.carries_model and content[:1] != b"\0":
                raise DamagedError("an archive that carries its model holds no image as WebP")
            images, config = decode_chunk(self._network, entry.images, content, conditioning), self.config
            return images + config.lowest if config.of_bytes else images.long() + config.lowest
        except DamagedError as error:
            raise DamagedError(f"chunk {chunk} of {len(self.header.chunks)}: {error}") from error


def _check_header(header: Header, model: AxialTransformer) -> None:
    config = model.config
    if header.fingerprint != fingerprint(model):
        hint = "give the model folder it was written with"
        if header.carries_model:
            hint = "the archive holds its model, so leave this one out"
        raise WrongModelError(
            f"the archive was written with the model {header.fingerprint.hex()[:16]}, not with this one,"
            f" {fingerprint(model).hex()[:16]}: {hint}"
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
    needed = {"label": header.labels and not header.carries_model, "cond": header.cond}
    for name, value in conditioning._asdict().items():
        stored = needed[name]
        if stored != (value is not None) or (value is not None and len(value) != header.images):
            was = f"with {name} of its {header.images} images" if stored else f"without {name}"
            raise WrongConditionsError(f"the archive was written {was}: give the same again")


def fingerprint(model: AxialTransformer) -> bytes:
    """Return the SHA-256 of the model's configuration and its tensors: 32 bytes.

    Raises:
        ValueError: the model is on the meta device.
    """
    model.require_values()
    digest = hashlib.sha256(embedded_model.text_of(model))
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()
