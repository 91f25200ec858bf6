"""Descriptions of the files in an archive: JSON objects in compressed form, within bounds."""

import json
import zlib
from typing import Any

import numpy as np

from axial_transformers.compression.container import DamagedError

_KINDS = ({"pictures"}, {"videos"}, {"array", "dtype", "shape"})

_ALWAYS = 1 << 24
"""Number of bytes that a description may always unpack to."""
_MOST = 1 << 27
_RATIO = 64
"""Highest compression of a larger one: deflate reaches 1032."""
_MOST_VALUES = 1 << 23
_VALUES_PER_FILE = 8


def pack(description: dict[str, Any], contents: int) -> bytes:
    """The description's bytes.

    Args:
        contents: number of images and whole files that it is about.

    Raises:
        ValueError: it would be too large to be read again.
    """
    text = json.dumps(description, separators=(",", ":")).encode()
    for level in (9, 0):  # one that compresses too well is stored as it is
        packed = zlib.compress(text, level)
        try:
            if unpack(packed, contents) == description:
                return packed
        except DamagedError as error:
            reason = error
    raise ValueError(f"too many files for one archive, or names that are too long ({reason}): split the folder")


def unpack(packed: bytes, contents: int) -> dict[str, Any]:
    """The description whose `pack` gave these bytes, for as many images and files.

    Raises:
        DamagedError: there is none, or it is too large for its contents.
    """
    try:
        decompressor = zlib.decompressobj()
        text = decompressor.decompress(packed, min(_MOST, max(_ALWAYS, _RATIO * len(packed))))
        if decompressor.unconsumed_tail:
            raise DamagedError(f"the archive's description of files has more than {len(text):,} bytes")
        if _values(text) > min(_MOST_VALUES, _VALUES_PER_FILE * contents + 100):
            raise DamagedError(f"the archive's description is of more than its {contents:,} images and files")
        description = json.loads(text)
    except DamagedError:
        raise
    except (zlib.error, ValueError, RecursionError) as error:
        raise DamagedError("the archive holds images, but no description of files: use axial.decompress") from error
    if not isinstance(description, dict) or set(description) not in _KINDS:
        raise DamagedError("the archive's description of files is damaged")
    return description


def _values(text: bytes) -> int:
    """Upper bound on the number of values in a JSON text, objects counted four times for the memory that they take."""
    unescaped = np.frombuffer(text.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    within = np.bitwise_xor.accumulate((unescaped == ord('"')).view(np.uint8))  # 1 within strings
    outside = unescaped[within == 0].tobytes()
    return outside.count(b",") + outside.count(b"[") + 4 * outside.count(b"{")
