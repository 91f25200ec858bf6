"""What TensorFlow's files are made of: variable-length integers and protocol buffer fields, bounds checked."""


class FormatError(ValueError):
    """A file's bytes are damaged, or say what this reader does not know; the message names the file and the place."""


class TruncatedError(FormatError):
    """The bytes end before what they hold does."""


class ChecksumError(FormatError):
    """The bytes are not those of which the checksum was taken."""


class Cursor:
    """Reads forward through `octets`; `where` names them in errors."""

    def __init__(self, octets: bytes, where: str) -> None:
        self.octets = octets
        self.where = where
        self.position = 0

    @property
    def done(self) -> bool:
        """Whether everything has been read."""
        return self.position == len(self.octets)

    def take(self, count: int) -> bytes:
        """The next `count` bytes.

        Raises:
            TruncatedError: fewer are left.
        """
        if count > len(self.octets) - self.position:
            raise TruncatedError(f"{self.where} ends early: {count} bytes wanted at byte {self.position}")
        self.position += count
        return self.octets[self.position - count : self.position]

    def varint(self) -> int:
        """The next unsigned integer of at most 64 bits, seven bits a byte, lowest first.

        Raises:
            FormatError: it is not encoded in the shortest way, or needs more than ten bytes.
        """
        value = 0
        for shift in range(0, 70, 7):
            (octet,) = self.take(1)
            value |= (octet & 0x7F) << shift
            if octet == 0 and shift:
                break
            if octet < 0x80:
                return value
        raise FormatError(f"{self.where} has a malformed integer before byte {self.position}")


def parse(message: bytes, where: str) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """The fields of one protocol buffer message (https://protobuf.dev/programming-guides/encoding), by number.

    Returns:
        Its integers, the last of each number; and its strings and nested messages, all of each number.

    Raises:
        FormatError: the message ends early, or holds a wire type that is not in use any more.
    """
    integers: dict[int, int] = {}
    nested: dict[int, list[bytes]] = {}
    cursor = Cursor(message, where)
    while not cursor.done:
        tag = cursor.varint()
        number = tag >> 3
        match tag & 7:
            case 0:
                integers[number] = cursor.varint()
            case 1:
                integers[number] = int.from_bytes(cursor.take(8), "little")
            case 2:
                nested.setdefault(number, []).append(cursor.take(cursor.varint()))
            case 5:
                integers[number] = int.from_bytes(cursor.take(4), "little")
            case unknown:
                raise FormatError(f"{where} has a field of the unknown wire type {unknown}")
    return integers, nested
