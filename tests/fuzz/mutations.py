"""Mutations of bytes, of fields in them, and of JSON."""

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from tests.tensor_bundle_writer import varint

MAX_BYTES = 1 << 18
"""Bytes of an input."""
INTEGERS = (
    0, 1, 2, 127, 128, 255, 256, 32767, 65535, 65536, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
    (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
JSON_TEXTS = (
    *("null", "true", "1.5", "-0.0", "1e308", "1e999", "NaN", "-Infinity", '""', '"0"', '"' + "x" * 5000 + '"'),
    *(r'"\ud800"', r'"\u0000"', r'"a\nb"', '"../../x"', '"/etc/passwd"', '"[red]"', "[]", "{}", "[[]]", "[null]"),
    *("[1,2]", "[-1]", "[1e999]", '{"":{}}', "[" + ",".join(["1"] * 2000) + "]", "[" * 900 + "]" * 900),
    *("[" * 50_000, '{"a":' * 900 + "1" + "}" * 900, *(str(number) for number in INTEGERS), "-1", "9" * 5000),
)
_PLACEHOLDER = "@@placeholder@@"


def mutated(content: bytes, other: bytes, draw: Random) -> bytes:
    """One to four random mutations of `content`, parts of `other` among them."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = draw.choice(_MUTATIONS)(content, other, draw)[:MAX_BYTES] if content else draw.randbytes(8)
    return content


def mutated_json(text: bytes, draw: Random) -> bytes:
    """JSON with values replaced by others of any type, fields removed, repeated or renamed."""
    root, chosen = [json.loads(text)], list[str]()
    for _ in range(draw.choice((1, 1, 2, 4))):
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
    return result.encode()[:MAX_BYTES]


def _somewhere(root: list[Any], draw: Random) -> tuple[Any, Any]:
    """A container and a key of it; each level is entered with some probability."""
    parent, key = root, 0
    while isinstance(parent[key], (dict, list)) and parent[key] and draw.random() < 0.9:
        parent = parent[key]
        key = draw.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    return parent, key


def _place(content: bytes, draw: Random, size: int = 1) -> int:
    """A position with `size` bytes behind it; every second one among the first 512 bytes, where headers are."""
    last = max(0, len(content) - size)
    return draw.randint(0, min(last, 512) if draw.random() < 0.5 else last)


def _span(content: bytes, draw: Random) -> tuple[int, int]:
    start = _place(content, draw)
    length = draw.choice((1, 2, 4, 8, 16, 64, 512, len(content)))
    return start, min(len(content), start + draw.randint(1, max(1, length)))


def _flip(content: bytes, other: bytes, draw: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        changed[_place(content, draw)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _truncate(content: bytes, other: bytes, draw: Random) -> bytes:
    return content[: _place(content, draw)]


def _remove(content: bytes, other: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    return content[:start] + content[end:]


def _repeat(content: bytes, other: bytes, draw: Random) -> bytes:
    start, end = _span(content, draw)
    times = draw.choice((1, 1, 2, 4, 8, 100, 1 << 16))
    return content[:end] + content[start:end] * min(times, (MAX_BYTES // 4) // (end - start) + 1) + content[end:]


def _splice(content: bytes, other: bytes, draw: Random) -> bytes:
    (start, end), (begin, stop) = _span(content, draw), _span(other, draw)
    return content[:start] + other[begin:stop] + content[draw.choice((start, end, len(content))) :]


def _field(content: bytes, other: bytes, draw: Random) -> bytes:
    """A field of 8 to 64 bits, or a varint, replaced by an extreme."""
    value, size = draw.choice(INTEGERS) + draw.choice((-1, 0, 0, 1)), draw.choice((0, 1, 2, 4, 4, 8))
    start = _place(content, draw, size)
    if not size:
        return content[:start] + varint(abs(value)) + content[start + 1 :]
    packed = struct.pack(draw.choice("<>") + "Q", value & ((1 << 64) - 1))
    near = packed[:size] if packed[-1] == 0 or size == 8 else packed[-size:]
    return content[:start] + near + content[start + size :]


_MUTATIONS: tuple[Callable[[bytes, bytes, Random], bytes], ...] = (
    *(_flip, _flip, _truncate, _remove, _repeat, _splice, _field, _field),
)
