"""Lossless compression of images by a model: what it knows need not be stored."""

from axial_transformers.compression.archive import compress, decompress
from axial_transformers.compression.errors import (
    ArchiveError,
    DamagedError,
    OtherVersionError,
    TruncatedError,
    WrongModelError,
)
from axial_transformers.compression.fingerprint import fingerprint

__all__ = [
    "ArchiveError",
    "DamagedError",
    "OtherVersionError",
    "TruncatedError",
    "WrongModelError",
    "compress",
    "decompress",
    "fingerprint",
]
