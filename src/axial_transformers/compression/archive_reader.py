"""An archive, read a bounded number of chunks at a time."""

import io
from collections.abc import Iterable, Iterator
from math import prod
from typing import BinaryIO

from jaxtyping import UInt8
from torch import Tensor

from axial_transformers.compression import container
from axial_transformers.compression.codec import check_model, decode_chunk, exact_network, work_on_chunks
from axial_transformers.compression.container import Header
from axial_transformers.compression.errors import ArchiveError, DamagedError, WrongConditionsError, WrongModelError
from axial_transformers.compression.fingerprint import fingerprint
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import AxialTransformer, Conditioning


class ArchiveReader:
    """Reader of an archive, chunk by chunk.

    Args:
        label, cond, most_values: as of `decompress`.

    Raises:
        ArchiveError: see `errors`.
        ValueError: a file that is closed, or no binary file that can seek; a model that cannot compress.
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
        self._model, self._network = model, exact_network(model)

    def content(self, chunk: int) -> bytes:
        """Bytes of a chunk, of images or of a whole file; nothing else of the file is read."""
        _check_file(self._file)
        return container.read_chunk(self._file, self.header, chunk)

    def images(self, chunks: Iterable[int], salvage: bool = False) -> Iterator[UInt8[Tensor, "n *a c"] | None]:
        """Images of each of these chunks, uint8 [n, *A, C]; as many chunks as torch has threads are in memory.

        Args:
            salvage: None for a damaged chunk, in place of an error.
        """

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
            return decode_chunk(self._network, entry.images, content, conditioning)
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
    """Raises ArchiveError for more values than the caller allows."""
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
