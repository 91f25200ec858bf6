"""Lossless compression of images by a model, into archives of about -log2 p(images) bits."""

from axial_transformers.compression.archive import compress, decompress
from axial_transformers.compression.archive_reader import ArchiveReader
from axial_transformers.compression.errors import (
    ArchiveError,
    DamagedError,
    OtherVersionError,
    TruncatedError,
    WrongConditionsError,
    WrongModelError,
)
from axial_transformers.compression.files import Written, compress_files, decompress_files
from axial_transformers.compression.fingerprint import fingerprint

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
]
