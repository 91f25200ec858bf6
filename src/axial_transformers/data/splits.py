"""Splits: the examples that train, validate and test."""

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

from axial_transformers.data.config import Split

Part = Literal["train", "validation", "test"]


class EmptySplitError(ValueError):
    """A source has no examples of a split."""


_PARTS: dict[str, Part] = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}


def part_of_folder(name: str) -> Part | None:
    """Return the split that a folder's name states, such as val or valid_32x32."""
    return _PARTS.get(re.sub(r"_\d+x\d+$", "", name.lower()))


def part_of_file(stem: str) -> Part | None:
    """Return the split that a file's name states, such as val_data."""
    parts = {_PARTS[word] for word in re.split(r"[^a-z]+", stem.lower()) if word in _PARTS}
    return parts.pop() if len(parts) == 1 else None


def hashed_parts(names: Sequence[str], seed: int, validation: float, test: float) -> list[Part]:
    """Return the splits of named examples, each by its own name and the seed; at least one validates."""
    shares: list[float] = []
    parts: list[Part] = []
    for name in names:
        digest = hashlib.sha256(f"{seed}\0{name}".encode(errors="surrogateescape")).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        shares.append(share)
        if share < test:
            parts.append("test")
        elif share < test + validation:
            parts.append("validation")
        else:
            parts.append("train")
    if validation > 0 and "validation" not in parts and parts.count("train") > 1:
        _, first = min((share, i) for i, share in enumerate(shares) if parts[i] == "train")
        parts[first] = "validation"
    return parts


def consecutive_part(count: int, split: Split, validation: float, test: float) -> slice:
    """Return the positions of a split: train, then validation, then test; if several, at least one validates."""
    test_start = count - round(count * test)
    validation_start = test_start - max(round(count * validation), int(validation > 0 and test_start > 1))
    return {
        "train": slice(0, validation_start),
        "validation": slice(validation_start, test_start),
        "test": slice(test_start, count),
    }[split]
