"""Archives taken apart, and put together again from other contents."""

import io
import json
from dataclasses import replace
from typing import Any

from axial_transformers.compression import container
from axial_transformers.compression.container import Header
from axial_transformers.storage.byte_reader import ByteReader


def parts(archive: bytes) -> tuple[Header, list[bytes]]:
    """Return the header and the contents of the chunks."""
    file = io.BytesIO(archive)
    header = container.read_header(file)
    return header, [container.read_chunk(file, header, i) for i in range(len(header.chunks))]


def joined(header: Header, contents: list[bytes], **fields: Any) -> bytes:
    """Return the archive of these contents, with right checksums and with other fields of the header."""
    entries = [container.entry(old.images, content) for old, content in zip(header.chunks, contents)]
    return replace(header, **{"chunks": tuple(entries), **fields}).pack() + b"".join(contents)


def model_parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the configuration and the stream of an embedded model."""
    reader = ByteReader(content, "", ValueError, ValueError)
    return json.loads(reader.take(reader.varint())), reader.rest()


def model_joined(config: bytes | dict[str, Any], stream: bytes) -> bytes:
    """Return an embedded model of a configuration and a stream."""
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    return container.varint(len(text)) + text + stream
