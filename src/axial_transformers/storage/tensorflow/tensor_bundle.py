"""A TensorFlow V2 checkpoint ("tensor bundle"), read without TensorFlow, one tensor at a time.

PREFIX.index                  a LevelDB table: "" -> header, name of a variable -> place, type and shape of its values
PREFIX.data-00000-of-00001    the values, row-major and little-endian; one file a shard
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from axial_transformers.storage.tensorflow.crc32c import crc32c, masked
from axial_transformers.storage.tensorflow.leveldb_table import read_table
from axial_transformers.storage.tensorflow.protobuf import ChecksumError, FormatError, parse

_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
_MOST_SHARDS = 10_000
_MOST_AXES = 8


@dataclass(frozen=True)
class Entry:
    """Place, type and shape of a variable's values."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    """In bytes."""
    checksum: int
    """The masked CRC-32C of the bytes."""


class TensorBundle:
    """The variables of the checkpoint whose files begin with `prefix`.

    Opening reads and checks the index and the sizes of the shards; `read` then seeks to one variable.

    Raises:
        FormatError: the index is damaged, disagrees with itself or with the shards' sizes, or holds what this reader
            does not support: compressed blocks, partitioned variables, types other than float16/32/64 and int32/64.
        FileNotFoundError: the index or a shard is missing.
    """

    entries: dict[str, Entry]
    """By the variable's name."""

    def __init__(self, prefix: str | Path) -> None:
        prefix = Path(prefix)
        self.path = prefix.with_name(f"{prefix.name}.index")
        table = read_table(self.path)
        if b"" not in table:
            raise FormatError(f"{self.path} has no header: it is a LevelDB table, but not a checkpoint's")
        count = _shards(table.pop(b""), f"{self.path}: header")
        self.shards = [prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{count:05d}") for i in range(count)]
        sizes = [shard.stat().st_size for shard in self.shards]
        self.entries = {}
        for key, value in table.items():
            name = key.decode("utf-8", "backslashreplace")
            if not name.isprintable():
                raise FormatError(f"{self.path}: {name!r} cannot be the name of a variable; the file is damaged")
            self.entries[name] = _entry(value, f"{self.path}: variable {name!r}", sizes)
        # So that a small file cannot ask for a large model.
        if (claimed := sum(entry.size for entry in self.entries.values())) > sum(sizes):
            raise FormatError(f"{self.path}: the variables have {claimed} bytes, the data shards only {sum(sizes)}")

    def read(self, name: str, *, verify: bool = False) -> np.ndarray:
        """Values of the variable `name`; with `verify`, their checksum is compared (about a second a gigabyte).

        Raises:
            FormatError: the checksum disagrees.
            KeyError: there is no such variable.
        """
        entry = self.entries[name]
        values = np.empty(entry.shape, entry.dtype)
        octets = values.reshape(-1).view(np.uint8).data
        shard = self.shards[entry.shard]
        with shard.open("rb", buffering=0) as file:
            file.seek(entry.offset)
            done = 0
            while done < entry.size:
                step = file.readinto(octets[done:])
                if not step:
                    raise FormatError(f"{shard} ends inside the variable {name!r}")
                done += step
        if verify and masked(crc32c(octets)) != entry.checksum:
            raise ChecksumError(f"{shard}: the checksum of the variable {name!r} disagrees; the file is damaged")
        return values


def find_prefix(folder: str | Path) -> Path:
    """Prefix of the newest checkpoint in `folder`: the one that its `checkpoint` file names, otherwise model.ckpt.

    The name is ignored where no such checkpoint exists: often it is a path of another machine.

    Raises:
        FileNotFoundError: neither is there.
    """
    folder = Path(folder)
    candidates = [folder / "model.ckpt"]
    state = folder / "checkpoint"
    if state.is_file():
        with state.open("rb") as file:
            text = file.read(1 << 16).decode("utf-8", "replace")
        if named := re.search(r'^model_checkpoint_path: "([^"\0]+)"', text, re.MULTILINE):
            candidates.insert(0, folder / named[1])
    for prefix in candidates:
        if prefix.with_name(f"{prefix.name}.index").is_file():
            return prefix
    raise FileNotFoundError(f"{folder} holds no TensorFlow V2 checkpoint: there is no {candidates[-1].name}.index")


def _shards(header: bytes, where: str) -> int:
    integers, _ = parse(header, where)
    if integers.get(2, 0) != 0:
        raise FormatError(f"{where} says that the tensors are big-endian, which is not supported")
    count = integers.get(1, 0)
    if not 1 <= count <= _MOST_SHARDS:
        raise FormatError(f"{where} claims {count} data shards")
    return count


def _entry(message: bytes, where: str, shard_sizes: list[int]) -> Entry:
    integers, nested = parse(message, where)
    kind, shard, offset, size, checksum = (integers.get(number, 0) for number in (1, 3, 4, 5, 6))
    if 7 in nested:
        raise FormatError(f"{where} is partitioned into slices, which is not supported")
    if kind not in _DTYPES:
        raise FormatError(f"{where} has the data type {kind} (of TensorFlow's types.proto), which is not supported")
    dtype = np.dtype(_DTYPES[kind])
    _, axes = parse(b"".join(nested.get(2, [])), where)
    lengths = axes.get(2, [])
    if len(lengths) > _MOST_AXES:
        raise FormatError(f"{where} has {len(lengths)} axes")
    shape = tuple(parse(axis, where)[0].get(1, 0) for axis in lengths)
    if math.prod(shape) * dtype.itemsize != size:
        raise FormatError(f"{where} has {size} bytes, but its shape {list(shape)} of {dtype} needs another number")
    if shard >= len(shard_sizes):
        raise FormatError(f"{where} lies in shard {shard} of {len(shard_sizes)}")
    if offset + size > shard_sizes[shard]:
        raise FormatError(f"{where} reaches beyond the end of data shard {shard}; the shard is cut short")
    return Entry(dtype, shape, shard, offset, size, checksum)
