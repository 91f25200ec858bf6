"""The structures of C that Python fills; `library` compares their sizes with those that C has."""

from ctypes import Structure, c_float, c_int, c_int64, c_uint64, c_void_p
from typing import Any


def _structure(name: str, **fields: Any) -> Any:
    """Return the structure of this name in `linear.h`, `layers.h`, `coder.h`, `rows.h`, `sampling.h` or `network.c`."""
    return type(name, (Structure,), {"_fields_": [*fields.items()]})


Linear = _structure(
    "Linear", inputs=c_uint64, outputs=c_uint64, weight=c_void_p, bias=c_void_p, integers=c_void_p, steps=c_void_p,
    totals=c_void_p,
)  # fmt: skip
Norm = _structure("Norm", gain=c_void_p, bias=c_void_p)
Layer = _structure(
    "Layer", dim=c_uint64, heads=c_uint64, slabs=c_uint64, norm=Norm, first=Linear, last=Linear, rotations=c_void_p
)
Line = _structure("Line", length=c_uint64, stride=c_uint64, causal=c_uint64)
Slabs = _structure(
    "Slabs", layers=c_void_p, lines=c_void_p, count=c_uint64, neighbours=c_void_p, positions=c_uint64, near=c_uint64
)
Embedding = _structure(
    "Embedding",
    dim=c_uint64,
    count=c_uint64,
    channels=c_uint64,
    centred=c_uint64,
    table=c_void_p,
    of_features=Linear,
    activity=c_uint64,
)
Head = _structure("Head", expand=Linear, contract=Linear)
Lstm = _structure("Lstm", norm=Norm, of_input=Linear, of_hidden=Linear)
Mixture = _structure(
    "Mixture", count=c_int64, mixtures=c_uint64, unit=c_float, max_log_precision=c_float, activity=c_uint64,
    table=c_void_p, scale=c_float, log_scale=c_float, centre=c_int64, means=c_void_p, precisions=c_void_p,
    shares=c_void_p,
)  # fmt: skip
Rows = _structure(
    "Rows", embedding=Embedding, layers=c_void_p, count=c_uint64, lstm=Lstm, head_norm=Norm, heads=c_void_p,
    mixture=Mixture,
)  # fmt: skip
Stream = _structure("Stream", words=c_void_p, count=c_uint64, at=c_uint64, state=c_uint64, status=c_int)
Centring = _structure(
    "Centring", values=c_void_p, size=c_uint64, positions=c_void_p, neighbours=c_void_p, coefficients=c_void_p,
    count=c_uint64, sizes=c_void_p, size_neighbours=c_void_p, size_coefficients=c_void_p, size_count=c_uint64,
)  # fmt: skip
Sampling = _structure(
    "Sampling", noise=c_void_p, uniforms=c_void_p, known=c_void_p, temperature=c_float, top_p=c_float, top_k=c_uint64
)

STRUCTURES = [
    *(Linear, Norm, Layer, Line, Slabs, Embedding, Head, Lstm, Mixture, Rows, Stream, Centring, Sampling),
]
