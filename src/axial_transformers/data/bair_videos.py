"""Videos of BAIR robot pushing (Ebert et al. 2017, softmotion30): TFRecord files, read without TensorFlow.

Feature i/image_aux1/encoded is frame i, 64x64x3 raw bytes.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from axial_transformers.storage.tensorflow import FormatError, parse, read_records

SUFFIXES = (".tfrecord", ".tfrecords")

_SIDE = 64
_FRAME = re.compile(r"(0|[1-9][0-9]{0,3})/image_aux1/encoded")
_IGNORED = re.compile(r"(0|[1-9][0-9]{0,3})/(image_main/encoded|action|endeffector_pos)")


class FeatureError(FormatError):
    """A record's features are not those of BAIR robot pushing."""


def read_videos(path: Path) -> Iterator[list[Image.Image]]:
    """Yield the frames of each video, RGB 64x64."""
    for number, record in enumerate(read_records(path)):
        yield _frames(record, f"{path}: record {number}")


def _frames(record: bytes, where: str) -> list[Image.Image]:
    frames: dict[int, Image.Image] = {}
    for name, feature in _features(record, where):
        if match := _FRAME.fullmatch(name):
            frames[int(match[1])] = _frame(feature, f"{where}, feature {name!r}")
        elif not _IGNORED.fullmatch(name):
            raise FeatureError(
                f"{where} has the unknown feature {name[:99]!r}: videos of BAIR robot pushing can be read"
            )
    missing = next(i for i in range(len(frames) + 1) if i not in frames)
    if missing < len(frames) or not frames:
        raise FeatureError(f"{where} lacks the feature '{missing}/image_aux1/encoded'")
    return [frames[i] for i in range(len(frames))]


def _features(record: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    # Example.features (1) . feature (1): a map of key (1) and value (2)
    for entry in _nested(_merged(record, 1, where), 1, where):
        _, parts = parse(entry, where)
        name, value = (parts.get(number, [b""])[-1] for number in (1, 2))
        yield name.decode(errors="backslashreplace"), value


def _frame(feature: bytes, where: str) -> Image.Image:
    """Return the one value of Feature.bytes_list (1) . value (1)."""
    values = _nested(_merged(feature, 1, where), 1, where)
    if [len(value) for value in values] != [_SIDE * _SIDE * 3]:
        found = ", ".join(f"{len(value):,}" for value in values[:8]) or "no"
        raise FeatureError(f"{where} has {found} bytes, not the {_SIDE * _SIDE * 3:,} of one {_SIDE}x{_SIDE} frame")
    return Image.frombytes("RGB", (_SIDE, _SIDE), values[0])


def _merged(message: bytes, number: int, where: str) -> bytes:
    return b"".join(_nested(message, number, where))


def _nested(message: bytes, number: int, where: str) -> list[bytes]:
    return parse(message, where)[1].get(number, [])
