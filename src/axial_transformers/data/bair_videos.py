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


def read_videos(path: Path) -> Iterator[list[Image.Image]]:
    """Yield the frames of each video, RGB 64x64; other features are left out."""
    for number, record in enumerate(read_records(path)):
        yield _frames(record, f"{path}: record {number}")


def _frames(record: bytes, where: str) -> list[Image.Image]:
    frames: dict[int, Image.Image] = {}
    # Example.features (1) . feature (1): a map of key (1) and value (2)
    for entry in _nested(_nested([record], where), where):
        _, parts = parse(entry, where)
        name, feature = (parts.get(number, [b""])[-1] for number in (1, 2))
        if match := _FRAME.fullmatch(name.decode(errors="backslashreplace")):
            frames[int(match[1])] = _frame(feature, f"{where}, feature {match[0]!r}")
    missing = next(i for i in range(len(frames) + 1) if i not in frames)
    if missing < len(frames) or not frames:
        raise FormatError(f"{where} lacks the feature '{missing}/image_aux1/encoded' of BAIR robot pushing")
    return [frames[i] for i in range(len(frames))]


def _frame(feature: bytes, where: str) -> Image.Image:
    """Return the one value of Feature.bytes_list (1) . value (1)."""
    values = _nested(_nested([feature], where), where)
    if [len(value) for value in values] != [_SIDE * _SIDE * 3]:
        sizes = [len(value) for value in values[:8]]
        raise FormatError(f"{where} has {sizes} bytes, not the 12,288 of one 64x64 frame")
    return Image.frombytes("RGB", (_SIDE, _SIDE), values[0])


def _nested(messages: list[bytes], where: str) -> list[bytes]:
    """Return the messages of number 1 that lie in messages, of which several are one that is cut."""
    return parse(b"".join(messages), where)[1].get(1, [])
