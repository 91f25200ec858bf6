"""Videos in TFRecord files, as those of BAIR robot pushing, read without TensorFlow (Ebert et al. 2017, softmotion30).

    [length: 8 bytes, its masked CRC-32C: 4, a tf.train.Example: length, its masked CRC-32C: 4]...

Example i/image_aux1/encoded holds frame i, 64x64x3 raw bytes; i/image_main/encoded another camera's, i/action and
i/endeffector_pos what the robot did, which are left aside.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from axial_transformers.storage.tensorflow.crc32c import crc32c, masked
from axial_transformers.storage.tensorflow.protobuf import ChecksumError, FormatError, TruncatedError, parse

SUFFIXES = (".tfrecord", ".tfrecords")

_SIDE = 64
_FRAME = re.compile(r"(0|[1-9]\d*)/image_aux1/encoded")
_LEFT_ASIDE = re.compile(r"(0|[1-9]\d*)/(image_main/encoded|action|endeffector_pos)")
_LARGEST = 64 << 20  # bytes of a record: those of BAIR take 0.7 MB


class FeatureError(FormatError):
    """A record's features are not those of BAIR robot pushing; the message names file, record and feature."""


def read_records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file, one at a time, checksums compared.

    Raises:
        TruncatedError: the file ends within a record.
        ChecksumError: a length or a record is not what was written.
        FormatError: a record is larger than any video.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        number = 0
        while stream.tell() < size:
            where = f"{path}: record {number}"
            head = _take(stream.read(12), 12, where)
            if masked(crc32c(head[:8])) != int.from_bytes(head[8:], "little"):
                raise ChecksumError(f"{where}: the checksum of its length disagrees: damaged, or no TFRecord file")
            length = int.from_bytes(head[:8], "little")
            if length > _LARGEST:
                raise FormatError(f"{where} has {length:,} bytes, above {_LARGEST:,}: no video of this format")
            record = _take(stream.read(length), length, where)
            if masked(crc32c(record)) != int.from_bytes(_take(stream.read(4), 4, where), "little"):
                raise ChecksumError(f"{where}: the checksum of its bytes disagrees: copy the file again")
            yield record
            number += 1


def _take(octets: bytes, wanted: int, where: str) -> bytes:
    if len(octets) < wanted:
        raise TruncatedError(f"{where} ends after {len(octets):,} of {wanted:,} bytes: copy the file again")
    return octets


def read_videos(path: Path) -> Iterator[list[Image.Image]]:
    """The frames of each video of a file, RGB 64x64.

    Raises:
        FeatureError: a feature is unknown, missing or of another kind or size.
        FormatError: as `read_records`, or a record is no tf.train.Example.
    """
    for number, record in enumerate(read_records(path)):
        yield _frames(record, f"{path}: record {number}")


def _frames(record: bytes, where: str) -> list[Image.Image]:
    frames: dict[int, Image.Image] = {}
    for name, feature in _features(record, where):
        if match := _FRAME.fullmatch(name):
            frames[int(match[1])] = _frame(feature, f"{where}, feature {name!r}")
        elif not _LEFT_ASIDE.fullmatch(name):
            raise FeatureError(f"{where} has the unknown feature {name!r}: videos of BAIR robot pushing can be read")
    missing = next(i for i in range(len(frames) + 1) if i not in frames)
    if missing < len(frames) or not frames:
        raise FeatureError(f"{where} lacks the feature '{missing}/image_aux1/encoded'")
    return [frames[i] for i in range(len(frames))]


def _features(record: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """Names and encoded values: Example.features (1) . feature (1), a map of key (1) and value (2)."""
    for features in _nested(record, 1, where):
        for entry in _nested(features, 1, where):
            (*_, name), (*_, value) = _nested(entry, 1, where) or [b""], _nested(entry, 2, where) or [b""]
            yield name.decode(errors="backslashreplace"), value


def _frame(feature: bytes, where: str) -> Image.Image:
    """Feature.bytes_list (1) . value (1), exactly one."""
    values = [value for octets in _nested(feature, 1, where) for value in _nested(octets, 1, where)]
    if [len(value) for value in values] != [_SIDE * _SIDE * 3]:
        found = ", ".join(f"{len(value):,}" for value in values) or "no"
        raise FeatureError(f"{where} has {found} bytes, not the {_SIDE * _SIDE * 3:,} of one {_SIDE}x{_SIDE} frame")
    return Image.frombytes("RGB", (_SIDE, _SIDE), values[0])


def _nested(message: bytes, number: int, where: str) -> list[bytes]:
    return parse(message, where)[1].get(number, [])
