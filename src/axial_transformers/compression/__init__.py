"""Lossless compression of images by a model, into archives of about -log2 p(images) bits."""

from axial_transformers.compression.archive import ArchiveReader, compress, decompress, fingerprint, open_archive
from axial_transformers.compression.container import (
    ArchiveError,
    DamagedError,
    OtherVersionError,
    TruncatedError,
    WrongConditionsError,
    WrongModelError,
)
from axial_transformers.compression.files.file_archive import (
    Written,
    compress_files,
    decompress_files,
)

__all__ = [
    "ArchiveError",
    "ArchiveReader",
    "DamagedError",
    "OtherVersionError",
    "TruncatedError",
    "Written",
    "WrongConditionsError",
    "WrongModelError",
    "compress",
    "compress_files",
    "decompress",
    "decompress_files",
    "fingerprint",
    "open_archive",
]
