"""What a parser is to the fuzzer; mutations of bytes, of fields in them, of numbers in text, and of JSON."""

import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

LONGEST = 1 << 18  # bytes of an input

INTEGERS = (
    0, 1, 2, 3, 127, 128, 255, 256, 1024, 32767, 32768, 65535, 65536, (1 << 24) - 1, 1 << 24, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip

TEXTS = (
    "0", "-1", "1", "2", "007", "255", "1024", "65536", "1048576", "2147483647", "2147483648", "4294967295",
    "9223372036854775807", "18446744073709551616", "1e999", "-1e999", "1e-400", "0x10", "1_0", "nan", "inf", "-0",
    "1" + "0" * 400, "9" * 5000, "\u0663", "\u00b2", "", "1.5",
)  # fmt: skip

JSON_TEXTS = (
    "null", "true", "false", "0", "-1", "1", "2", "3", "8", "1022", "1024", "1048576", "1048577", "2147483647",
    "4294967296", "9223372036854775808", "1.5", "-0.0", "1e308", "1e999", "-1e999", "NaN", "Infinity", "-Infinity",
    "1" + "0" * 400, "9" * 5000, '""', '"0"', '"' + "x" * 5000 + '"', r'"\ud800"', r'"\u0000"', r'"a\nb"', '"../../x"',
    '"/etc/passwd"', '"[red]"', "[]", "{}", "[[]]", "[null]", "[1,2]", "[0]", "[-1]", "[1e999]", '[""]', '{"":{}}',
    "[" + ",".join(["1"] * 2000) + "]", "[" * 900 + "]" * 900, "[" * 50_000, '{"a":' * 900 + "1" + "}" * 900,
    '{"a":' * 20_000,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Parser:
    """A parser of files, each with a name by which `parse` knows what it is."""

    seeds: list[tuple[str, bytes]]
    """Names and bytes of sound files."""
    parse: Callable[[str, bytes], object]
    """Parses a file as the product does; what it returns is given to `right`."""
    right: Callable[[str, Any], bool] | None = None
    """Tests the result of a file whose checksums were not mended: True if it is what was written."""
    right_if_mended: Callable[[str, Any], bool] | None = None
    """Tests the result of a file whose checksums were mended, where it says more than that it could be parsed."""
    mend: Callable[[str, bytes], bytes] | None = None
    """The file with its checksums made right, as far as they can be found."""
    structured: Callable[[str, bytes, Random], bytes] | None = None
    """A mutation within the structure of the file."""
    generate: Callable[[Random], tuple[str, bytes]] | None = None
    """A file that no mutation would give: well-formed, of extreme content."""
    generated: float = 0.02
    """Share of the inputs that are generated."""


_NUMBER = re.compile(rb"\d+")
_PLACEHOLDER = "@@placeholder@@"


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; the top bit is set in all bytes but the last (LEB128)."""
    octets = b""
    while value >= 0x80:
        octets += bytes([value & 0x7F | 0x80])
        value >>= 7
    return octets + bytes([value])


def _place(content: bytes, draw: Random, size: int = 1) -> int:
    """A position with `size` bytes behind it; every second one among the first 512 bytes, where headers are."""
    last = max(0, len(content) - size)
    return draw.randint(0, min(last, 512) if draw.random() < 0.5 else last)


def _span(content: bytes, draw: Random) -> tuple[int, int]:
    start = _place(content, draw)
    length = draw.choice((1, 2, 4, 8, 16, 64, 512, len(content)))
    return start, min(len(content), start + draw.randint(1, max(1, length)))


def flip(content: bytes, other: bytes, draw: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        changed[_place(content, draw)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def overwrite(content: bytes, other: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    fill = draw.choice((None, 0, 255))
    return (
        content[:start]
        + (draw.randbytes(end - start) if fill is None else bytes([fill]) * (end - start))
        + content[end:]
    )


def truncate(content: bytes, other: bytes, draw: Random) -> bytes:
    return content[: _place(content, draw)]


def remove(content: bytes, other: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    return content[:start] + content[end:]


def repeat(content: bytes, other: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    times = draw.choice((1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 8, 32, 100, 1 << 16))
    return content[:end] + content[start:end] * min(times, (LONGEST // 4) // (end - start) + 1) + content[end:]


def move(content: bytes, other: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    rest, place = content[:start] + content[end:], _place(content, draw)
    return rest[:place] + content[start:end] + rest[place:]


def splice(content: bytes, other: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    if draw.random() < 0.3:
        return content[:start] + other[_place(other, draw) :]
    begin, stop = _span(other, draw)
    return content[:start] + other[begin:stop] + content[start if draw.random() < 0.5 else end :]


def field(content: bytes, other: bytes, draw: Random) -> bytes:
    """A field of 8 to 64 bits overwritten by an extreme."""
    size = draw.choice((1, 2, 4, 4, 8))
    start = _place(content, draw, size)
    value = draw.choice(INTEGERS) + draw.choice((-1, 0, 0, 1))
    packed = struct.pack(draw.choice("<>") + "Q", value & ((1 << 64) - 1))
    near = packed[:size] if packed[-1] == 0 or size == 8 else packed[-size:]
    return content[:start] + near + content[start + size :]


def integer(content: bytes, other: bytes, draw: Random) -> bytes:
    """A byte, often that of a varint, replaced by the varint of an extreme."""
    start = _place(content, draw)
    return content[:start] + varint(draw.choice(INTEGERS)) + content[start + 1 :]


def number(content: bytes, other: bytes, draw: Random) -> bytes:
    """A number in text replaced by an extreme; every second time in as many bytes."""
    found = list(_NUMBER.finditer(content[:LONGEST]))
    if not found:
        return field(content, other, draw)
    match = draw.choice(found[: draw.choice((8, len(found)))])
    text = draw.choice(TEXTS).encode()
    if draw.random() < 0.5:
        text = text[: len(match[0])].rjust(len(match[0]), b"0")
    return content[: match.start()] + text + content[match.end() :]


_BYTES: tuple[Callable[[bytes, bytes, Random], bytes], ...] = (
    flip, flip, overwrite, truncate, remove, repeat, move, splice, field, field, integer, number,
)  # fmt: skip


def mutate(content: bytes, other: bytes, draw: Random, times: int = 1) -> bytes:
    """Some random mutations of `content`, parts of `other` among them."""
    for _ in range(times):
        content = draw.choice(_BYTES)(content, other, draw)[:LONGEST] if content else draw.randbytes(8)
    return content


def mutate_json(text: bytes, draw: Random, times: int = 1) -> bytes:
    """JSON with values replaced by others of any type, fields removed, added, repeated or renamed."""
    root = [json.loads(text)]
    chosen = []
    for _ in range(times):
        parent, key = _somewhere(root, draw)
        kind = draw.randrange(8)
        if kind == 0 and parent is not root:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            parent[draw.choice(("", "more", "\u0663", key.upper(), "x" * 5000))] = parent.pop(key)
        elif kind == 2 and isinstance(parent, list) and parent is not root:
            parent[key:key] = [parent[key]] * draw.choice((1, 2, 8, 100))
        else:
            parent[key] = f"{_PLACEHOLDER}{len(chosen)}@"
            chosen.append(draw.choice(JSON_TEXTS))
    result = json.dumps(root[0])
    for i, replacement in enumerate(chosen):
        result = result.replace(f'"{_PLACEHOLDER}{i}@"', replacement)
    return result.encode()[:LONGEST]


def _somewhere(root: list[Any], draw: Random) -> tuple[Any, Any]:
    """A container and a key of it; each level is entered with some probability."""
    parent, key = root, 0
    while isinstance(parent[key], (dict, list)) and parent[key] and draw.random() < 0.9:
        parent = parent[key]
        key = draw.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    return parent, key
