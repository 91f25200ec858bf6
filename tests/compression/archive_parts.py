"""Archives taken apart, and put together again from other contents; forged ones, for the readers in Python and in C."""

import copy
import io
import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from axial_transformers.compression import container
from axial_transformers.compression.archive import write_archive
from axial_transformers.compression.container import Header
from axial_transformers.compression.embedded_model import pack
from axial_transformers.compression.rounding import Rounded
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


HOSTILE: list[dict[str, Any]] = [
    {"model": "other"}, {"dim": "8"}, {"dim": 1 << 19}, {"more": 1}, {"shape": [1 << 20] * 8}, {"heads": None},
    {"shape": [1 << 20, 1 << 20]}, {"inner_layers": 1024, "outer_layers": [1024]}, {"num_values": 65536},
    {"mlp_ratio": 1e300}, {"channels": 1 << 20}, {"layout": "raster"}, {"num_classes": 1 << 30},
    {"shape": [1] * 8, "outer_layers": 1000, "dim": 1, "heads": 1}, {"values": "ordinal", "mixtures": 1 << 20},
    {"rotary": 1e-300}, {"channels": 1 << 20, "centred": True}, {"gated_convolutions": 4096},
    {"inner_layers": 1000, "dim": 1, "heads": 1}, {"shape": [3] * 8, "centred": True, "outer_layers": 0},
    {"shape": [1 << 20], "outer_layers": [], "rotary": 9.0, "dim": 2, "heads": 1}, {"more": "x" * 70_000},
    {"outer_layers": [1] * 20_000}, {"shape": [1] * 20_000}, {"convolution": 1},
    {"more": [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]}, {"gated_convolutions": 9}, {"layout": "pixels", "channels": 2},
    {"layout": "pixels", "values": "ordinal"}, {"layout": "pixels", "values": "ordinal", "channels": 9},
    {"layout": "pixels", "values": "ordinal", "channels": 1 << 20}, {"gated_convolutions": -1},
    {"layout": "pixels", "values": "ordinal", "channels": 2, "encoder_layers": 2},
    {"gated_convolutions": 8, "inner_layers": 1000, "dim": 1, "heads": 1},
    {"gated_convolutions": 1, "shape": [1] * 8, "outer_layers": 0}, {"gated_convolutions": 1, "mlp_ratio": 64},
    {"gated_convolutions": 1, "shape": [2, 4, 4, 4, 4, 4, 4], "outer_layers": [7, 0, 0, 0, 0, 0], "dim": 1, "heads": 1},
]  # fmt: skip
"""Fields of configurations that would take much time or memory, or that no model of the package has."""


def hostile(archive: bytes, fields: dict[str, Any]) -> bytes:
    """Return an archive whose model has these fields."""
    header, (first, *rest) = parts(archive)
    config, stream = model_parts(first)
    return joined(header, [model_joined({**config, **fields}, stream), *rest])


def forged(archive: bytes) -> dict[str, bytes]:
    """Return archives that are no longer right, from one with its model and labels; keys say what is wrong."""
    header, (model, labels, images) = parts(archive)
    contents = {
        "an image": [model, labels, images[:20] + bytes([images[20] ^ 4]) + images[21:]],
        "images behind": [model, labels, b"\1" + images], "model cut": [model[:-4], labels, images],
        "labels cut": [model, labels[:-1], images], "labels behind": [model, labels + b"0", images],
        "labels that are none": [model, b"\x63" * len(labels), images], "other labels": [model, labels[::-1], images],
        "another order": [labels, model, images],
    }  # fmt: skip
    fields = [
        {"fingerprint": bytes(32)}, {"shape": (3, 2)}, {"channels": 1}, {"num_values": 6},
        {"labels": False},
    ]  # fmt: skip
    return {
        "end": archive[:-3], "checksum": archive[:-1] + b"?", "first bytes": b"PK" + archive[2:],
        "version": archive.replace(b"format 8", b"format 9", 1),
        **{what: joined(header, wrong) for what, wrong in contents.items()},
        **{str(field): joined(header, [model, labels, images], **field) for field in fields},
        "no labels": joined(header, [model]), "no model": joined(header, []),
    }  # fmt: skip


def changed(model, share=1.0):
    """Return the model with other weights, in a share of its tensors."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for number, weight in enumerate(other.parameters()):
            if number % 10 < 10 * share:
                weight += 0.1 * torch.randn_like(weight)
    return other


def steps_for(model, code):
    """Return steps whose codes differ from row to row."""
    return {
        name: code + np.arange(len(weight) if weight.ndim > 1 else 1) % 9 for name, weight in model.named_parameters()
    }


def archive_of_changes(model, base, x, code=236, **sizes):
    """Return the archive of values by a model that is stored as changes of a base."""

    def rounded(model, *_):
        once, content = pack(model, steps_for(model, code), base)
        return Rounded(once, content, **{"expected": 0.0, "by_base": 1.0} | sizes)

    file = io.BytesIO()
    with patch("axial_transformers.compression.archive.rounded", rounded):
        written = write_archive(model, file, x, None, True, embed=True, base=base)
    return file.getvalue(), written
