"""The bounds-checked reader: bytes and files alike, never beyond the end."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axial_transformers.storage.byte_reader import ByteReader
from tests.tensor_bundle_writer import varint


class Truncated(ValueError):
    pass


class Malformed(ValueError):
    pass


def reader(octets: bytes, as_file: bool = False) -> ByteReader:
    return ByteReader(io.BytesIO(octets) if as_file else octets, "the thing", Truncated, Malformed)


@pytest.mark.parametrize("as_file", [False, True])
def test_parts_are_read_in_order_and_nothing_beyond_the_end(as_file):
    source = reader(b"abcdef", as_file)
    assert (source.take(2), source.position, source.left) == (b"ab", 2, 4)
    with pytest.raises(Truncated, match="the thing ends early: of 5 bytes wanted at byte 2, 4 remain"):
        source.take(5)
    assert source.rest() == b"cdef"
    assert source.take(0) == source.rest() == b""


def test_a_file_is_read_from_its_position():
    file = io.BytesIO(b"abcdef")
    file.seek(4)
    assert ByteReader(file, "", Truncated, Malformed).rest() == b"ef"


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_integers_are_read_as_they_were_written(numbers):
    source = reader(b"".join(map(varint, numbers)))
    assert [source.varint() for _ in numbers] == numbers
    assert not source.left


@pytest.mark.parametrize("octets", [b"\x80\x00", b"\xff" * 10, b"\xff" * 11])
def test_integers_that_are_longer_than_need_be_are_malformed(octets):
    with pytest.raises(Malformed, match="the thing has a malformed integer"):
        reader(octets).varint()


def test_an_integer_that_is_cut_off_is_truncated():
    with pytest.raises(Truncated):
        reader(b"\xff").varint()
