"""Reading of archives: the header first, the model when it is needed, images chunk by chunk."""

import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from math import prod
from threading import Lock
from typing import BinaryIO, Self

import numpy as np
import torch
from jaxtyping import Int, Integer
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.compression import container, embedded_model
from axial_transformers.compression.codec import check_model, decode_chunk, work_on_chunks
from axial_transformers.compression.container import (
    ArchiveError,
    DamagedError,
    Header,
    WrongConditionsError,
    WrongModelError,
)
from axial_transformers.compression.description import Description
from axial_transformers.compression.embedded_model import fingerprint
from axial_transformers.compression.shipped_models import open_needed
from axial_transformers.data.tiles import join_tiles, tile_grid
from axial_transformers.exact.network import ExactNetwork
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.progress import Progress
from axial_transformers.storage.byte_reader import ByteReader


class ArchiveReader:
    """Reader of an archive, chunk by chunk; arguments as for `decompress`.

    Args:
        model: for an archive that needs one that is not in the package.

    Raises:
        ArchiveError: see `container`.
        ValueError: neither bytes nor a binary file that can seek, or a model that cannot compress.
    """

    def __init__(
        self,
        file: bytes | bytearray | memoryview | BinaryIO,
        model: AxialTransformer | None = None,
        label: Tensor | None = None,
    ):
        if model:
            check_model(model)
        if isinstance(file, bytes | bytearray | memoryview):
            file = io.BytesIO(file)
        if isinstance(file, io.TextIOBase) or not hasattr(file, "seek"):
            raise ValueError(f'archive must be bytes or a binary file, not {file!r:.100}: open a path with mode "rb"')
        self.header = container.read_header(file)
        self._file = file
        self._given = label
        self._reading = Lock()
        if self.header.needs and not self.header.carries_model:
            model = model or open_needed(self.header.needs)
            _check_header(self.header, model)
            self.model = model  # in place of reading it
        needed = self.header.images if self.header.labels and not self.header.carries_model else None
        if needed != (None if label is None else len(label)):
            was = "without labels" if needed is None else f"with the labels of its {needed} images"
            raise WrongConditionsError(f"the archive was written {was}: give the same again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @cached_property
    def model(self) -> AxialTransformer:
        """The model in the archive, on the CPU; DamagedError if it cannot be read."""
        needs = self.header.needs
        model = embedded_model.unpack(self.content(0), open_needed(needs) if needs else None)
        try:
            check_model(model)
        except ValueError as error:
            raise DamagedError(f"the model in the archive makes no archives: {error}") from error
        _check_header(self.header, model)
        return model

    @cached_property
    def labels(self) -> Int[Tensor, " n"] | None:
        """Labels [N] of the images, int64; None without any. The number of classes stands for no label."""
        if not (self.header.carries_model and self.header.labels):
            return self._given
        content = self.content(1)
        reader = ByteReader(content, "the labels of the archive", truncated=DamagedError, malformed=DamagedError)
        labels = [reader.varint() for _ in range(self.header.images)]
        classes = self.model.config.num_classes
        if reader.left or classes is None or max(labels, default=0) > classes:
            raise DamagedError("the labels of the archive are not those of its images")
        return torch.tensor(labels, dtype=torch.int64, device="cpu")

    @property
    def values(self) -> Integer[Tensor, "n *a c"]:
        """All images [N, *A, C], as `decompress` returns them, decoded anew."""
        return self.read()

    def read(self, progress: Progress = iter) -> Integer[Tensor, "n *a c"]:
        """Return all images [N, *A, C]; see `decompress`."""
        for i in self.header.image_chunks:
            self.content(i)  # before the long work, to find damage early
        config = self.model.config
        images = [torch.zeros(0, *config.shape, config.channels, dtype=self._dtype, device="cpu")]
        for _, decoded in self._images_by_chunk(False, progress):
            assert decoded is not None, "only `salvage` leaves out chunks"
            images.append(decoded)
        return torch.cat(images)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.uint8 if self.model.config.of_bytes else torch.int64

    @cached_property
    def _network(self) -> ExactNetwork:
        return ExactNetwork(self.model, integers=True)

    def content(self, chunk: int) -> bytes:
        """Return the bytes of a chunk."""
        with self._reading:
            return container.read_chunk(self._file, self.header, chunk)

    def images(self, chunks: Sequence[int], salvage: bool = False) -> Iterator[Integer[Tensor, "n *a c"] | None]:
        """Yield the images [n, *A, C] of chunks; with `salvage`, None for damaged ones."""
        first_images = self.header.first_images

        def decode(chunk: int) -> Tensor | None:
            first, last = first_images[chunk : chunk + 2]
            conditioning = Conditioning(self.labels).of(slice(first, last))
            try:
                images = decode_chunk(self._network, last - first, self.content(chunk), conditioning)
                return self.model.to_data(images).to(self._dtype)
            except ArchiveError:
                if not salvage:
                    raise
                return None

        if not chunks:
            return  # the network may be large
        _ = self._network, self.labels  # once, not in each thread
        with without_dropout(self.model):
            yield from work_on_chunks(decode, chunks)

    def stored(self) -> bytes:
        """Return the chunk of stored files; DamagedError without one."""
        if self.header.stored_chunk is None:
            raise DamagedError("the archive does not hold the files that it describes")
        return self.content(self.header.stored_chunk)

    def description(self) -> Description:
        """Return what the examples are; DamagedError if they are not those of files."""
        description = Description.unpack(self.header.metadata)
        description.check(self.model.config, self.header.images)
        return description

    def examples(
        self, sizes: Sequence[tuple[int, ...]], salvage: bool = False, progress: Progress = iter
    ) -> Iterator[NDArray[np.integer] | None]:
        """Yield examples [*size, C] of these sizes, joined from all tiles; None for damaged ones."""
        tiles = self._tiles(salvage, progress)
        for size in sizes:
            of_example = [*islice(tiles, prod(tile_grid(size, self.model.config.shape)))]
            whole = [tile for tile in of_example if tile is not None]
            yield join_tiles(np.stack(whole), size) if len(whole) == len(of_example) else None

    def _tiles(self, salvage: bool, progress: Progress) -> Iterator[NDArray[np.integer] | None]:
        for i, images in self._images_by_chunk(salvage, progress):
            yield from [None] * self.header.chunks[i].images if images is None else images.numpy()

    def _images_by_chunk(self, salvage: bool, progress: Progress) -> Iterator[tuple[int, Tensor | None]]:
        chunks = self.header.image_chunks
        return zip(progress(chunks), self.images(chunks, salvage), strict=True)


def _check_header(header: Header, model: AxialTransformer) -> None:
    config = model.config
    wanted = header.fingerprint
    own = fingerprint(model)
    if wanted != own:
        if header.carries_model:
            raise DamagedError("the model in the archive is not the one that wrote it")
        raise WrongModelError(
            f"the archive was written with the model {wanted.hex()[:16]}, not with this one,"
            f" {own.hex()[:16]}: give the model folder it was written with"
        )
    stated = (header.shape, header.channels, header.num_values)
    if stated != (config.shape, config.channels, config.num_values):
        raise DamagedError(f"the header states shape, channels and values {stated}: not those of its model")
