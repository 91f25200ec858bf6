"""The reader of TensorFlow V2 checkpoints: what is written is read, what is damaged or unknown is refused by name."""

from pathlib import Path

import numpy as np
import pytest

from axial_transformers.storage.tensorflow import FormatError, TensorBundle, find_prefix, masked_crc32c
from tests.tensor_bundle_writer import entry, header, nested, write_bundle, write_index

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


def part_of(prefix: Path, suffix: str = "data-00000-of-00001") -> Path:
    return prefix.with_name(f"model.ckpt.{suffix}")


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


def test_damage_of_an_index_is_an_error_or_of_bytes_that_are_not_used(prefix: Path) -> None:
    index, sound, said = part_of(prefix, "index"), TensorBundle(prefix).entries, []
    good = index.read_bytes()
    damaged = [good[:length] for length in range(len(good))]
    damaged += [good[:i] + bytes([good[i] ^ 0x80]) + good[i + 1 :] for i in range(len(good))]
    for bad in damaged:
        index.write_bytes(bad)
        try:
            assert TensorBundle(prefix).entries == sound
        except FormatError as error:
            said.append(str(error))
    assert all("model.ckpt.index" in line and "\n" not in line for line in said)
    assert len(said) > 0.85 * len(damaged)  # the footer has 36 bytes of filling


def test_every_flipped_byte_of_the_data_is_found_by_verifying(prefix: Path) -> None:
    good = part_of(prefix).read_bytes()
    owners = [name for name, values in VALUES.items() for _ in range(values.nbytes)]
    for i, owner in enumerate(owners):
        part_of(prefix).write_bytes(good[:i] + bytes([good[i] ^ 0x10]) + good[i + 1 :])
        bundle = TensorBundle(prefix)
        bundle.read(owner)
        with pytest.raises(FormatError, match=f"'{owner}'"):
            bundle.read(owner, verify=True)


def test_a_missing_shard_and_one_cut_short_are_named(tmp_path: Path, prefix: Path) -> None:
    part_of(prefix).write_bytes(part_of(prefix).read_bytes()[:-1])
    with pytest.raises(FormatError, match="global_step"):
        TensorBundle(prefix)
    write_bundle(tmp_path / "model.ckpt", VALUES.items(), shards=2)
    (tmp_path / "model.ckpt.data-00001-of-00002").unlink()
    with pytest.raises(FileNotFoundError, match="data-00001-of-00002"):
        TensorBundle(tmp_path / "model.ckpt")


GOOD = entry(1, (15,), 0, 60, 0)


VARIABLES = [
    (GOOD + nested(7, b""), "'v' .*partitioned"),
    (entry(7, (15,), 0, 60, 0), "'v' .*type 7"),
    (entry(1, (14,), 0, 60, 0), "'v' .*60 bytes"),
    (entry(1, (1 << 40,), 0, 4 << 40, 0), "'v' .*beyond"),
    (entry(1, (15,), 1 << 63, 60, 0), "'v' .*beyond"),
    (entry(1, (15,), 0, 60, 0, shard=1), "'v' .*beyond"),
    (b"\x08", "'v' .*early"),
    (b"\x0b", "'v' .*wire type 3"),
    (b"\x08" + b"\xff" * 11, "'v' .*integer"),
]


def test_a_variable_or_an_index_that_cannot_be_read_is_refused(prefix: Path) -> None:
    variables = [({b"": header(1), b"v": variable}, 0, message) for variable, message in VARIABLES]
    indices = [
        ({b"": header(1, endianness=1)}, 0, "big-endian"), ({b"v": GOOD}, 0, "no header"),
        ({b"": header(1)}, 1, "compressed"),
    ]  # fmt: skip
    for table, compression, message in variables + indices:
        write_index(prefix, table, compression)
        with pytest.raises(FormatError, match=message):
            TensorBundle(prefix)


def test_the_checkpoint_file_names_the_newest_one_where_it_exists(prefix: Path) -> None:
    write_bundle(prefix.with_name("model.ckpt-9"), VALUES.items())
    for text, found in [
        ('model_checkpoint_path: "model.ckpt-9"\nall_model_checkpoint_paths: "x"\n', "model.ckpt-9"),
        ('model_checkpoint_path: "/cns/of/another/machine/model.ckpt-1"\n', "model.ckpt"),
        ("\0\xff", "model.ckpt"),
    ]:
        prefix.with_name("checkpoint").write_text(text)
        assert find_prefix(prefix.parent) == prefix.with_name(found)
    with pytest.raises(FileNotFoundError, match="absent"):
        find_prefix(prefix.parent / "absent")
