"""Mutations of bytes, of fields in them, and of JSON."""

import json
from random import Random
from typing import Any

from axial_transformers.compression.container import varint

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
    """One to four parts of `content` removed, repeated, flipped, or replaced by those of `other` or by extremes."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        size = draw.choice((1, 1, 2, 4, 8, 16, 64, 512, len(content)))
        last = max(0, len(content) - size)
        start = draw.randint(0, min(last, 512) if draw.random() < 0.5 else last)  # every second one in the headers
        part, begin = content[start : start + size], draw.randint(0, len(other))
        integer = draw.choice(INTEGERS) + draw.choice((0, 0, 1))
        new = draw.choice((
            b"", part * draw.choice((2, 4, 8, 100, MAX_BYTES // max(1, size))), other[begin : begin + size],
            bytes(octet ^ 1 << draw.randrange(8) for octet in part), varint(integer),
            integer.to_bytes(9, "little")[:size], integer.to_bytes(9, "big")[-size:],
        ))  # fmt: skip
        rest = content[start + size :] if draw.random() < 0.9 else b""
        content = (content[:start] + new + rest)[:MAX_BYTES]
    return content


def mutated_json(text: bytes, draw: Random) -> bytes:
    """JSON with values replaced by others of any type, fields removed, repeated or renamed."""
    root, chosen = [json.loads(text)], list[str]()
    for _ in range(draw.choice((1, 1, 2, 4))):
        parent: Any = root
        key: Any = 0
        while isinstance(parent[key], (dict, list)) and parent[key] and draw.random() < 0.9:
            parent = parent[key]
            key = draw.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
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
