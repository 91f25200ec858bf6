"""The reader of TensorFlow V2 checkpoints: what is written is read, what is damaged or unknown is refused by name."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from axial_transformers.storage.tensorflow import (
    MAX_BLOCKS,
    MAX_ENTRIES,
    MAX_KEY,
    FormatError,
    TensorBundle,
    find_prefix,
    masked_crc32c,
)
from tests.tensor_bundle_writer import (
    entry,
    header,
    joined,
    nested,
    placed,
    varint,
    write_bundle,
    write_index,
)

VALUES: dict[str, np.ndarray] = {
    "a/b": np.arange(15, dtype=np.float32).reshape(3, 5),
    "a/c": np.array(2.5, dtype=np.float64),
    "b": np.arange(4, dtype=np.int64),
    "empty": np.zeros((0, 3), dtype=np.float16),
    "global_step": np.array(7, dtype=np.int32),
}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    prefix = tmp_path / "model.ckpt"
    write_bundle(prefix, VALUES.items())
    return prefix


def index_of(prefix: Path) -> Path:
    return prefix.with_name("model.ckpt.index")


def data_of(prefix: Path) -> Path:
    return prefix.with_name("model.ckpt.data-00000-of-00001")


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(
        ValueError, match=r"^a TensorFlow file needs .* pip install 'axial-transformers\[tensorflow\]'$"
    ):
        masked_crc32c(b"123456789")


def test_a_checksum_is_the_published_one_masked() -> None:
    published = 0xE3069283  # RFC 3720, B.4
    assert masked_crc32c(b"123456789") == ((published >> 15 | published << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_written_is_read(tmp_path: Path, shards: int) -> None:
    many = {**VALUES, **{f"z{i:03d}": np.full((i,), i, np.float32) for i in range(200)}}
    write_bundle(tmp_path / "model.ckpt", many.items(), shards)
    bundle = TensorBundle(tmp_path / "model.ckpt")
    assert list(bundle.entries) == list(many)
    for name, values in many.items():
        found = bundle.read(name, verify=True)
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)


def test_every_flipped_byte_of_an_index_is_an_error(prefix: Path) -> None:
    good = index_of(prefix).read_bytes()
    for position in range(len(good)):
        for flip in (0x01, 0x80):
            bad = bytearray(good)
            bad[position] ^= flip
            index_of(prefix).write_bytes(bad)
            with pytest.raises(FormatError, match=r"model\.ckpt\.index"):
                TensorBundle(prefix)


def test_every_cut_of_an_index_is_an_error(prefix: Path) -> None:
    good = index_of(prefix).read_bytes()
    for length in range(len(good)):
        index_of(prefix).write_bytes(good[:length])
        with pytest.raises(FormatError, match=r"model\.ckpt\.index"):
            TensorBundle(prefix)


def test_every_flipped_byte_of_the_data_is_found_by_verifying(prefix: Path) -> None:
    good = data_of(prefix).read_bytes()
    owners = [name for name, values in VALUES.items() for _ in range(values.nbytes)]
    for position, owner in enumerate(owners):
        bad = bytearray(good)
        bad[position] ^= 0x10
        data_of(prefix).write_bytes(bad)
        bundle = TensorBundle(prefix)
        bundle.read(owner)
        with pytest.raises(FormatError, match=f"'{owner}'"):
            bundle.read(owner, verify=True)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_bundle(tmp_path / "model.ckpt", VALUES.items(), shards=2)
    (tmp_path / "model.ckpt.data-00001-of-00002").unlink()
    with pytest.raises(FileNotFoundError, match="data-00001-of-00002"):
        TensorBundle(tmp_path / "model.ckpt")


def test_a_shard_cut_short_names_the_variable_that_suffers(prefix: Path) -> None:
    data_of(prefix).write_bytes(data_of(prefix).read_bytes()[:-1])
    with pytest.raises(FormatError, match="'global_step' reaches beyond the end of data shard 0"):
        TensorBundle(prefix)


GOOD = entry(1, (15,), 0, 60, 0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({b"": header(1), b"v": GOOD + nested(7, b"")}, "'v' is partitioned"),
        ({b"": header(1), b"v": entry(7, (15,), 0, 60, 0)}, "'v' has the data type 7"),
        ({b"": header(1), b"v": entry(1, (14,), 0, 60, 0)}, "'v' has 60 bytes, but its shape"),
        ({b"": header(1), b"v": entry(1, (1 << 62, 4), 0, 60, 0)}, "'v' has 60 bytes, but its shape"),
        ({b"": header(1), b"v": entry(1, (1 << 40,), 0, 4 << 40, 0)}, "'v' reaches beyond"),
        ({b"": header(1), b"v": entry(1, (15,), 1 << 63, 60, 0)}, "'v' reaches beyond"),
        ({b"": header(1), b"v": entry(1, (15,), 0, 60, 0, shard=1)}, "'v' lies in shard 1 of 1"),
        ({b"": header(1), b"v": entry(1, (1,) * 9, 0, 4, 0)}, "'v' has 9 axes"),
        ({b"": header(1), b"v": b"\x08"}, "'v' ends early"),
        ({b"": header(1), b"v": b"\x0b"}, "'v' has a field of the unknown wire type 3"),
        ({b"": header(1), b"v": b"\x08" + b"\xff" * 11}, "'v' has a malformed integer"),
        ({b"": header(1), b"v": GOOD, b"w": GOOD}, "the variables have 120 bytes, the data shards only 104"),
        ({b"": header(1, endianness=1)}, "big-endian"),
        ({b"": header(0)}, "0 data shards"),
        ({b"": header(1 << 40)}, "1099511627776 data shards"),
        ({b"v": GOOD}, "no header"),
        ({b"v": GOOD, b"": header(1)}, "out of order"),
    ],
)
def test_what_is_not_known_is_refused_by_name(prefix: Path, table: dict[bytes, bytes], message: str) -> None:
    write_index(prefix, table)
    with pytest.raises(FormatError, match=message):
        TensorBundle(prefix)


def test_compressed_blocks_are_refused(prefix: Path) -> None:
    write_index(prefix, {b"": header(1)}, compression=1)
    with pytest.raises(FormatError, match=r"is compressed \(type 1\)"):
        TensorBundle(prefix)


def test_an_endless_index_is_not_read(prefix: Path) -> None:
    with index_of(prefix).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="larger than"):
        TensorBundle(prefix)


def test_the_checkpoint_file_names_the_newest_one(tmp_path: Path) -> None:
    for name in ("model.ckpt", "model.ckpt-9"):
        write_bundle(tmp_path / name, VALUES.items())
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\nall_model_checkpoint_paths: "x"\n')
    assert find_prefix(tmp_path) == tmp_path / "model.ckpt-9"


@pytest.mark.parametrize("text", ['model_checkpoint_path: "/cns/of/another/machine/model.ckpt-1"\n', "", "\0\xff"])
def test_a_checkpoint_file_that_names_an_absent_path_falls_back_to_model_ckpt(prefix: Path, text: str) -> None:
    prefix.with_name("checkpoint").write_text(text)
    assert find_prefix(prefix.parent) == prefix


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None, lambda path: path.write_text("")])
def test_a_folder_without_checkpoint_is_said_to_be_one(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="absent holds no TensorFlow V2 checkpoint"):
        find_prefix(tmp_path / "absent")


RESTARTS = (0).to_bytes(4, "little") + (1).to_bytes(4, "little")


def sharing(count: int, shared: int) -> bytes:
    """A block of keys that begin with the same bytes, the same number of which each takes from the key before."""
    entries = [varint(shared) + b"\x03\0" + i.to_bytes(3, "big") for i in range(1, count)]
    return varint(0) + varint(shared + 3) + varint(0) + bytes(shared + 3) + b"".join(entries) + RESTARTS


def one_block_often(count: int) -> bytes:
    out, handle = placed(b"", sharing(10_000, 50))
    keys = [b"\0\4" + varint(len(handle)) + i.to_bytes(4, "big") + handle for i in range(count)]
    return joined(out, b"".join(keys) + RESTARTS)


def in_blocks(*blocks: bytes) -> bytes:
    out, index = b"", b""
    for i, block in enumerate(blocks):
        out, handle = placed(out, block)
        index += b"\0\4" + varint(len(handle)) + i.to_bytes(4, "big") + handle
    return joined(out, index + RESTARTS)


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (in_blocks(sharing(200_000, MAX_KEY - 3)), f"more than {MAX_ENTRIES:,} keys"),
        (in_blocks(sharing(2, MAX_KEY)), f"a key of {MAX_KEY + 3} bytes, above {MAX_KEY}"),
        (in_blocks(sharing(3, 1 << 20)), "a key of 1,048,579 bytes"),
        (in_blocks(*[RESTARTS] * (MAX_BLOCKS + 1)), f"more than {MAX_BLOCKS:,} blocks"),
        (one_block_often(4000), "begins within or before another"),
    ],
    ids=["200,000 keys of 512 bytes", "long key", "very long key", "many blocks", "one block often"],
)
def test_a_small_index_cannot_ask_for_much_memory_or_time(prefix: Path, octets: bytes, says: str) -> None:
    assert len(octets) < 3 << 20
    index_of(prefix).write_bytes(octets)
    begun = time.process_time()
    with pytest.raises(FormatError, match=says):
        TensorBundle(prefix)
    assert time.process_time() - begun < 3


def test_a_name_of_several_lines_is_refused_in_one(prefix: Path) -> None:
    write_index(prefix, {b"": header(1), b"a\nb": entry(1, (0,), 0, 0, 0)})
    with pytest.raises(FormatError, match="cannot be the name of a variable") as caught:
        TensorBundle(prefix)
    assert "\n" not in str(caught.value)
