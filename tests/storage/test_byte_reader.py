"""The bounds-checked reader: bytes and files alike, never beyond the end."""

import io

import pytest

from axial_transformers.storage.byte_reader import ByteReader
from tests.tensor_bundle_writer import varint


def reader(source: bytes | io.BytesIO) -> ByteReader:
    return ByteReader(source, "the thing", truncated=EOFError, malformed=ArithmeticError)


@pytest.mark.parametrize("as_file", [False, True])
def test_parts_are_read_in_order_and_nothing_beyond_the_end(as_file):
    source = io.BytesIO(b"-abcdef")
    source.seek(1)
    found = reader(source if as_file else b"abcdef")
    start = found.position
    assert (found.take(2), found.position, found.left) == (b"ab", start + 2, 4)
    with pytest.raises(EOFError, match="the thing"):
        found.take(5)
    assert found.rest() == b"cdef"
    assert found.take(0) == found.rest() == b""


def test_integers_are_read_as_they_were_written_and_malformed_or_cut_off_ones_refused():
    numbers = [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1]
    source = reader(b"".join(map(varint, numbers)))
    assert [source.varint() for _ in numbers] == numbers
    assert not source.left
    for octets in (b"\x80\x00", b"\xff" * 10, b"\xff" * 11):
        with pytest.raises(ArithmeticError, match="integer"):
            reader(octets).varint()
    with pytest.raises(EOFError):
        reader(b"\xff").varint()
