"""Lossless compression of images by a model, into archives of about -log2 p(images) bits."""

from axial_transformers.compression.archive import (
    NoGainError,
    Written,
    compress,
    compress_files,
    decompress,
    open_archive,
)
from axial_transformers.compression.container import (
    ArchiveError,
    DamagedError,
    OtherVersionError,
    TruncatedError,
    WrongConditionsError,
    WrongModelError,
)
from axial_transformers.compression.embedded_model import fingerprint
from axial_transformers.compression.reader import ArchiveReader
from axial_transformers.compression.restoring import decompress_files

__all__ = [
    "ArchiveError",
    "ArchiveReader",
    "DamagedError",
    "NoGainError",
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
