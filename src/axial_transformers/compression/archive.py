"""Images and files to an archive and back, a bounded number of chunks at a time.

source --(contents)--> tiles, description, stored files --(codec)--> chunks --> archive
archive --> chunks --(codec)--> tiles, joined to examples --(restoring)--> files
"""

import io
import logging
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Integer
from torch import Tensor

from axial_transformers.compression import container
from axial_transformers.compression.codec import check_model, decode_chunk, encode_chunk, work_on_chunks
from axial_transformers.compression.container import ArchiveError, ChunkEntry, DamagedError, Header
from axial_transformers.compression.contents import Contents, read_contents
from axial_transformers.compression.embedded_model import differs_in_weights, fingerprint
from axial_transformers.compression.reader import ArchiveReader
from axial_transformers.compression.rounding import rounded
from axial_transformers.compression.shipped_models import needed
from axial_transformers.data import DataConfig, open_source, scans
from axial_transformers.data.value_range import ValueRange
from axial_transformers.exact.network import ExactNetwork
from axial_transformers.layers.blocks import without_dropout
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, Conditioning
from axial_transformers.models.arguments import Images, accepts_arrays
from axial_transformers.progress import Progress
from axial_transformers.storage.files import require_writable, source_path, written_whole

IMAGES_PER_CHUNK = 128
"""Images of a chunk at least, unless the archive has fewer; they are decoded together. Fewer make archives larger."""

log = logging.getLogger("axial_transformers")


class NoGainError(ValueError):
    """An archive would be larger than what it is made of."""

    exit_status = 1


class Limit(NamedTuple):
    """The bytes that an archive may take, to be of use."""

    size: float
    of: str = ""
    """What takes as many."""

    def check(self, size: float) -> None:
        """Raise NoGainError if an archive takes more bytes."""
        if size > self.size:
            raise NoGainError(
                f"the archive would take about {size:,.0f} bytes, {self.of} {self.size:,}: take more examples, or write"
                " it nevertheless, by force=True"
            )


UNLIMITED = Limit(inf)


def zlib_limit(config: AxialTransformerConfig, examples: Iterable[Any], stored: int = 0) -> Limit:
    """Return what zlib makes of the values of examples [*A, C], in the type of archives, and `stored` bytes."""
    packer = zlib.compressobj(9)
    dtype = ValueRange(0, config.highest - config.lowest).type
    size = stored
    for example in examples:
        values = (np.asarray(example, np.int64) - config.lowest).astype(dtype)
        size += len(packer.compress(values.tobytes()))
    return Limit(size + len(packer.flush()), "its values by zlib")


def input_limit(contents: Contents, config: AxialTransformerConfig) -> Limit:
    """Return the bytes of a source, or those of its values by zlib and of its stored files, if these are fewer."""
    values_limit = zlib_limit(config, contents.examples(), len(contents.stored))
    if not contents.input_size:  # data of the hub
        return values_limit
    return min(Limit(contents.input_size, "the input"), values_limit)


@accepts_arrays("images", "label")
def compress(
    model: AxialTransformer,
    images: Int[Tensor, "n *a c"],
    label: Int[Tensor, " n"] | None = None,
    *,
    embed: bool = False,
    force: bool = False,
    verify: bool = True,
    progress: Progress = iter,
) -> bytes:
    """Return the archive of images [N, *A, C] of any integer dtype: about -log2 p(images) bits under the model.

    Inputs may be tensors, arrays or nested lists. The CPU computes in float32 with the same bits on every machine,
    about as slowly as sampling.

    Args:
        label: int64 [N], for models with num_classes. Without `embed` not stored: `decompress` needs it again.
        embed: store the model and the labels, too. Its weights are rounded, so that weights and images together take
            few bytes and the model stays good; `open_archive` then needs nothing else.
        force: embed a model even if it makes the archive larger than zlib makes the values.
        verify: decode each chunk and compare.
        progress: wraps the loop over chunks and, with `embed`, those that round.

    Raises:
        ValueError: images or label do not fit the model, or it cannot compress.
        NoGainError: with `embed`, model and images take more bytes than zlib of the values; a ValueError.
        DamagedError: verification failed: the machine computes wrongly.
    """
    file = io.BytesIO()
    limit = zlib_limit(model.config, images.cpu()) if embed and not force else UNLIMITED
    write_archive(model, file, images, label, verify, embed=embed, limit=limit, progress=progress)
    return file.getvalue()


@accepts_arrays("label")
def decompress(
    model: AxialTransformer,
    archive: bytes | bytearray | memoryview | BinaryIO,
    label: Int[Tensor, " n"] | None = None,
    *,
    progress: Progress = iter,
) -> Integer[Tensor, "n *a c"]:
    """Return the images [N, *A, C] of an archive, on the CPU.

    They are uint8 if all values of the model are in 0..255, else int64.

    Args:
        archive: its bytes, or an open binary file.
        label: as for `compress`, for all images.
        progress: wraps the loop over chunks.

    Raises:
        WrongModelError: another model wrote it.
        WrongConditionsError: label does not match that of `compress`.
        OtherVersionError, TruncatedError, DamagedError: see `container`.
    """
    return ArchiveReader(archive, model, label).read(progress)


def open_archive(archive: str | Path | bytes | bytearray | memoryview | BinaryIO) -> ArchiveReader:
    """Open an archive that holds its model, or names one of the package. Its parts are read when they are asked for.

    Args:
        archive: a path, the bytes, or an open binary file.

    Returns:
        What has `values` [N, *A, C], the `model`, and the `labels` [N] or None. Of a path, it is a context manager that
        closes the file.

    Raises:
        FileNotFoundError: no such file.
        ArchiveError: see `container`; also an archive that needs another model.
    """
    if not isinstance(archive, str | Path):
        return ArchiveReader(archive)
    file = source_path(archive).open("rb")
    try:
        return ArchiveReader(file)
    except ArchiveError as error:
        file.close()
        raise type(error)(f"{archive}: {error}") from error


class Sizes(NamedTuple):
    """What an archive takes, in bytes."""

    size: int
    model_size: int
    """Of the model, or of changes of one; 0: the archive needs its model."""
    base: str
    """The model of the package that it needs; empty: none of them."""
    seconds: float
    """It takes about as long to decode the images."""


def write_archive(  # noqa: PLR0913
    model: AxialTransformer,
    file: BinaryIO,
    images: Images,
    label: Tensor | None,
    verify: bool,
    *,
    embed: bool = False,
    base: AxialTransformer | None = None,
    limit: Limit = UNLIMITED,
    metadata: bytes = b"",
    stored: bytes = b"",
    progress: Progress = iter,
) -> Sizes:
    """Write the result of `compress` to an empty file; return what it takes.

    Args:
        base: the file holds the changes of this model of the package, or names it if changes would not pay.
        limit: is checked before the long work, as far as a model is embedded, and after it.
        stored: the chunk of stored files.
    """
    check_model(model)
    if label is not None:
        model.embed_conditioning(len(images), Conditioning(label))  # checks all labels
    without_images: list[tuple[int, bytes]] = []
    if base and not differs_in_weights(model, base):
        base = None
    needs = None if embed else needed(model)
    if embed:
        result = rounded(model, images, Conditioning(label), progress, base)
        limit.check(min(result.expected, result.by_base) + len(stored))
        if base:
            needs = needed(base)
        if base and result.by_base <= result.expected:
            model = base
            embed = False
        else:
            model = result.model
            without_images.append((0, result.content))
    if embed and label is not None:
        without_images.append((0, b"".join(map(container.varint, label.tolist()))))
    ranges = _even_ranges(len(images))
    header = Header(
        fingerprint=fingerprint(model),
        shape=model.config.shape,
        channels=model.config.channels,
        num_values=model.config.num_values,
        labels=label is not None,
        carries_model=embed,
        needs=needs,
        metadata=metadata,
        chunks=(ChunkEntry(0, 0, 0),) * (len(without_images) + len(ranges) + bool(stored)),
    )
    file.write(header.pack())  # of the size that it will have
    entries: list[ChunkEntry] = []
    start = time.perf_counter()
    coded = _coded_chunks(model, images, Conditioning(label), ranges, verify, progress)
    for count, content in chain(without_images, coded, [(0, stored)] if stored else []):
        entries.append(container.entry(count, content))
        file.write(content)
    seconds = (time.perf_counter() - start) / (2 if verify else 1)
    size = file.tell()
    limit.check(size)
    file.seek(0)
    file.write(replace(header, chunks=tuple(entries)).pack())
    return Sizes(size, entries[0].size if embed else 0, needs.name if needs else "", seconds)


def _coded_chunks(
    model: AxialTransformer,
    images: Images,
    conditioning: Conditioning,
    ranges: Sequence[slice],
    verify: bool,
    progress: Progress,
) -> Iterator[tuple[int, bytes]]:
    """Yield the number of images of each range, and their stream."""
    network = ExactNetwork(model, integers=True)

    def encode(item: tuple[Tensor, Conditioning]) -> tuple[int, bytes]:
        images, own = item
        content = encode_chunk(network, images, own)
        if verify and not torch.equal(decode_chunk(network, len(images), content, own), images.cpu()):
            raise DamagedError("a chunk does not decode to the images it was made of: do not use this model")
        return len(images), content

    def read(chosen: slice) -> tuple[Tensor, Conditioning]:
        return model.check(torch.as_tensor(images[chosen], device="cpu")), conditioning.of(chosen)

    with without_dropout(model):
        for _, encoded in zip(progress(ranges), work_on_chunks(encode, map(read, ranges)), strict=True):
            yield encoded


def _even_ranges(count: int) -> list[slice]:
    parts = max(1, count // IMAGES_PER_CHUNK) if count else 0
    return [slice(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


@dataclass(frozen=True, kw_only=True)
class Written:
    """An archive that `compress_files` has written; sizes in bytes."""

    contents: Contents
    size: int
    model_size: int
    """Bytes of the model, or of changes of one, in the archive; 0: the archive needs its model."""
    base: str
    """The model of the package that the archive needs; empty: none of them."""
    seconds: float
    """It takes about as long to open the archive, on as many threads."""


def compress_files(  # noqa: PLR0913
    model: AxialTransformer,
    source: str | Path,
    target: str | Path,
    *,
    embed: bool | None = None,
    data: DataConfig | None = None,
    only_data: bool = False,
    force: bool = False,
    verify: bool = True,
    progress: Progress = iter,
) -> Written:
    """Write the archive of an image or a folder of images, of an array, of a scan, or of whatever else `load` reads.

    Examples of any lengths are cut into tiles of the model's size. Files return with equal values, types, shapes and
    names, and scans with their geometry, in the format in which they came or the nearest lossless one; the log says
    which. Other files of a folder are stored. The archive appears only when it is complete and, with `verify`, checked.

    Args:
        embed: True: store the model, too, with rounded weights. False: `decompress_files` needs the model again. None:
            store it unless it is one of the package, which the archive names.
        data: how the model's data are read, above all `axes` and `key` of arrays.
        only_data: leave out other files of a folder.
        force: replace a file at `target`, which must not be of the source; write an archive that is larger
            than the source, or than zlib of its values.
        verify, progress: as for `compress`.

    Raises:
        FileNotFoundError: no such source.
        FileExistsError: `target` exists.
        NoGainError: the archive would be too large; a ValueError.
        ValueError: no examples of this model.
    """
    target = Path(target)
    require_free(target, source, force)
    contents = read_contents(open_source(source, data), model.config, only_data)
    tell(contents)
    return write_contents(model, contents, target, embed=embed, force=force, verify=verify, progress=progress)


def write_contents(
    model: AxialTransformer,
    contents: Contents,
    target: Path,
    *,
    embed: bool | None = None,
    base: AxialTransformer | None = None,
    force: bool = False,
    verify: bool = True,
    progress: Progress = iter,
) -> Written:
    """Write the archive of what `read_contents` has read; see `compress_files` and `write_archive`."""
    if model.config.needs_label:
        raise ValueError(
            f"{target} holds images without labels, which this model needs: train one with training.label_dropout above"
            " 0, or without classes"
        )
    if embed is None:
        embed = base is not None or not needed(model).name
    limit = UNLIMITED if force else input_limit(contents, model.config)
    with written_whole(target, replace=force) as aside, aside.open("wb") as file:
        sizes = write_archive(
            model,
            file,
            contents.tiles,
            None,
            verify,
            embed=embed,
            base=base,
            limit=limit,
            metadata=contents.description.pack(),
            stored=contents.stored,
            progress=progress,
        )
    return Written(contents=contents, **sizes._asdict())


def tell(contents: Contents) -> None:
    """Say what the archive leaves out, and how files return."""
    for line in contents.said:
        log.info(line)


def require_free(target: Path, source: str | Path, force: bool) -> None:
    """Raise OSError if an archive must not be written to `target`."""
    require_writable(target)
    if os.path.lexists(target) and not force:
        raise FileExistsError(f"{target} exists already: give another name, or force=True to replace it")
    file, _ = scans.parted(source)
    files = [file, *file.rglob("*")] if target.exists() else []
    if any(path.exists() and path.samefile(target) for path in files):
        raise FileExistsError(f"{target} is, or is a link to, what is to be compressed: give another name")
