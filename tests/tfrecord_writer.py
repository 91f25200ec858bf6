"""Writes TFRecord files in the layout of BAIR robot pushing, for tests."""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from axial_transformers.storage.tensorflow import masked_crc32c
from tests.tensor_bundle_writer import nested


def write_records(path: Path, records: Iterable[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(framed, records)))
    return path


def framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + _checksum(length) + record + _checksum(record)


def video_record(frames: np.ndarray) -> bytes:
    """A record of frames uint8 [T, 64, 64, 3], with the other camera and the floats that the real ones have."""
    features = {}
    for i, frame in enumerate(frames):
        features[f"{i}/image_aux1/encoded"] = bytes_feature(frame.tobytes())
        features[f"{i}/image_main/encoded"] = bytes_feature((255 - frame).tobytes())
        features[f"{i}/action"] = floats_feature([0.1, 0.2, 0.3, 0.4])
        features[f"{i}/endeffector_pos"] = floats_feature([0.5, 0.6, 0.7])
    return example(features)


def example(features: Mapping[str, bytes]) -> bytes:
    """A tf.train.Example; its map has no order."""
    entries = [nested(1, nested(1, name.encode()) + nested(2, value)) for name, value in reversed(features.items())]
    return nested(1, b"".join(entries))


def bytes_feature(*values: bytes) -> bytes:
    return nested(1, b"".join(nested(1, value) for value in values))


def floats_feature(values: list[float]) -> bytes:
    return nested(2, nested(1, struct.pack(f"<{len(values)}f", *values)))


def _checksum(octets: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(octets))
