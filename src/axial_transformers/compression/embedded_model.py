"""A model in an archive: its configuration, and its weights as entropy-coded integers.

docs/reference/archive_format.md has the format. `rounding` chooses the steps, of which weights are multiples.

    steps = {name: codes [rows]}             of each trained tensor, a row along its first axis
    model = round_weights(model, steps)      weight = float32(q) * step of its row
    content = pack(model, steps)             bytes
    same = unpack(content)                   the same weights, to the last bit

The stream has two kinds of symbols. A number is an integer q of a logistic distribution around 0, as narrow as a code
says. A word is 16 bits without a distribution. Steps and precisions are powers of two times 8 to 15:

    size(j) = (8 + j mod 8) 2^floor(j / 8)        step(j) = size(j) 2^-43        precision(j) = size(j) 2^-17
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axial_transformers.compression.codec import WORDS, opened
from axial_transformers.compression.container import DamagedError, varint
from axial_transformers.engine import MIN_STATE, PRECISION, arithmetic, reference
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.storage.byte_reader import ByteReader
from axial_transformers.storage.typed_json import from_json, to_json

Codes = NDArray[np.int64]
Steps = Mapping[str, Codes]

STEP_CODES, PRECISION_CODES = 512, 128
FIRST_STEP, FIRST_PRECISION = 240, 112
"""Codes of 2^-10 and 1. The first row's code is stored as its difference from these."""
NUMBERS = 1 << 16
"""Numbers are from -2^15 to 2^15 - 1."""
ESCAPE = -NUMBERS // 2
"""In place of a coefficient that is too large: it follows as four words."""
COEFFICIENT = 1 << 12
"""Coefficients of a prediction are rounded to multiples of it, that is of 2^-12."""
MAX_TEXT = 1 << 16
"""Bytes of the configuration."""
NUMBERS_OF_A_BYTE = 32
"""Numbers in a stream for each of its bytes, at most. A number takes 0.39 bits or more."""
BYTES_OF_A_LAYER = 6
"""Bytes of a layer, at least: it has 12 tensors, each of which has a row, and two codes of a row take 4 bits."""


def size_of(codes: Any) -> NDArray[np.float64]:
    """Return the sizes that codes stand for."""
    return (8.0 + np.asarray(codes) % 8) * 2.0 ** (np.asarray(codes) // 8)


def code_of(sizes: Any) -> Codes:
    """Return the codes of the nearest sizes."""
    fraction, exponent = np.frexp(sizes)  # from 1/2 to 1
    return 8 * (exponent.astype(np.int64) - 4) + np.rint(16 * fraction).astype(np.int64) - 8


def step_of(codes: Any) -> NDArray[np.float64]:
    """Return the steps that codes stand for."""
    return size_of(codes) * 2.0**-43


def text_of(model: AxialTransformer) -> bytes:
    """Return name and configuration of a model as JSON.

    Fields at their defaults are left out, so that new fields change nothing.
    """
    defaults = {field.name: field.default for field in fields(model.config) if field.default is not MISSING}
    config = {name: value for name, value in to_json(model.config).items() if value != defaults.get(name, MISSING)}
    return json.dumps({"model": model.name, **config}, sort_keys=True).encode()


def fingerprint(model: AxialTransformer) -> bytes:
    """Return the SHA-256 of the model's configuration and its tensors: 32 bytes.

    Raises:
        ValueError: the model is on the meta device.
    """
    model.require_values()
    digest = hashlib.sha256(text_of(model))
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()


def round_weights(model: AxialTransformer, steps: Steps) -> AxialTransformer:
    """Return a float32 model on the CPU whose weights are multiples of the steps, and whose constants are as stored."""
    rounded = copy.deepcopy(model).cpu().float().eval()
    found = {}
    for name, tensor in rounded.state_dict().items():
        values = tensor.detach().numpy()
        if name in steps:
            q = _multiples(values, steps[name])
            values = (q * step_of(steps[name])[:, None]).astype(np.float32).reshape(values.shape)
        elif name.endswith(".rotations"):
            values = _rotations(_angles(values), len(values))
        elif name.endswith(".coefficients"):
            values = np.rint(values / COEFFICIENT).astype(np.int64) * COEFFICIENT
        found[name] = torch.from_numpy(np.array(values))
    rounded.load_state_dict(found)
    return rounded


def pack(model: AxialTransformer, steps: Steps) -> bytes:
    """Return a model of `round_weights` as bytes."""
    text = text_of(model)
    writer = _Writer()
    _transfer({name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}, steps, writer)
    return varint(len(text)) + text + writer.content()


def unpack(content: bytes) -> AxialTransformer:
    """Return the model of `pack`, in evaluation mode.

    Raises:
        DamagedError: no such bytes, or more weights than they can hold.
    """
    model, weights = without_weights(content)
    reader = _Reader(weights)
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        dtype = torch.float32 if tensor.is_floating_point() else torch.int64
        tensors[name] = torch.zeros(tensor.shape, dtype=dtype, device="cpu")
    _transfer({name: tensor.numpy() for name, tensor in tensors.items()}, {}, reader)
    reader.close()
    model.load_state_dict(tensors, assign=True)
    return model.requires_grad_().eval()


def _transfer(arrays: Mapping[str, NDArray[Any]], steps: Steps, stream: "_Writer | _Reader") -> None:
    """Write arrays, with these steps, into a stream; or set arrays of zeros to what a stream has."""
    step = FIRST_STEP
    for name, values in sorted(arrays.items()):
        if name.endswith(".rotations"):
            angles = _angles(values)
            stream.words(angles)
            values[:] = _rotations(angles, len(values))
        elif name.endswith(".spread"):
            stream.words(values)
        elif name.endswith(".coefficients"):
            for row in values.reshape(-1, values.shape[-1]):
                _transfer_coefficients(row, stream)
        else:
            rows = values.reshape(_row_shape(values.shape))
            codes = np.array(steps.get(name, np.zeros(len(rows), np.int64)))
            numbers = _multiples(rows, codes)
            for i, row in enumerate(numbers):
                step = _checked(step + stream.number(int(codes[i]) - step), STEP_CODES)
                codes[i] = step
                stream.row(row)
            rows[:] = numbers * step_of(codes)[:, None]
        if isinstance(stream, _Reader) and not np.isfinite(values).all():
            raise DamagedError(f"the model in the archive is damaged: {name} is not finite")


def _transfer_coefficients(row: Codes, stream: "_Writer | _Reader") -> None:
    q = row // COEFFICIENT
    q[np.abs(q) >= NUMBERS // 2] = ESCAPE
    stream.row(q)
    too_large = row[q == ESCAPE]
    stream.words(too_large)
    row[:] = q * COEFFICIENT
    row[q == ESCAPE] = too_large


def without_weights(content: bytes) -> tuple[AxialTransformer, bytes]:
    """Return the model of `pack` on the meta device, and the stream of its weights; errors as of `unpack`."""
    reader = ByteReader(content, "the model in the archive", truncated=DamagedError, malformed=DamagedError)
    text = reader.take(min(reader.varint(), MAX_TEXT + 1))
    most = NUMBERS_OF_A_BYTE * len(content)
    try:
        described = json.loads(text) if len(text) <= MAX_TEXT else None
        if not isinstance(described, dict) or described.pop("model", None) != AxialTransformer.name:
            raise ValueError("it names no model")
        config = from_json(AxialTransformerConfig, described, "the model in the archive")
        # Building many layers takes seconds.
        if config.layers * 4 * config.dim**2 <= most and config.layers * BYTES_OF_A_LAYER <= len(content):
            with torch.device("meta"):
                model = AxialTransformer(config)
            if sum(_stored(name, tensor) for name, tensor in model.state_dict().items()) <= most:
                return model, reader.rest()
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"the model in the archive is damaged: {error}") from error
    raise DamagedError("the model in the archive is damaged: its configuration needs more weights than it holds")


def _stored(name: str, tensor: Tensor) -> int:
    """Return the numbers of a tensor, by which a model is bounded. Of rotations, one row is stored."""
    return tensor.numel() // (NUMBERS_OF_A_BYTE if name.endswith(".rotations") else 1)


def _multiples(values: NDArray[np.float32], codes: Codes) -> NDArray[np.int64]:
    """Return the nearest multiples [rows, n] of the steps of rows."""
    multiples = np.rint(values.reshape(_row_shape(values.shape)) / step_of(codes)[:, None])
    return np.clip(multiples, -NUMBERS // 2, NUMBERS // 2 - 1).astype(np.int64)


def _row_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    return (1, shape[0]) if len(shape) == 1 else (shape[0], int(np.prod(shape[1:])))


def _angles(table: NDArray[np.float32]) -> NDArray[np.float32]:
    return table[min(1, len(table) - 1)]


def _rotations(angles: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """Return a table of rotary positions [L, K] from the cosines and sines of its second row [K], by doubling it."""
    turn_c, turn_s = np.split(angles.astype(np.float64), 2)
    c = np.ones((1, len(turn_c)))
    s = np.zeros((1, len(turn_s)))
    with np.errstate(over="ignore", invalid="ignore"):  # of damaged angles
        while len(c) < length:
            c, s = np.concatenate([c, c * turn_c - s * turn_s]), np.concatenate([s, s * turn_c + c * turn_s])
            turn_c, turn_s = turn_c * turn_c - turn_s * turn_s, turn_s * turn_c + turn_c * turn_s
        return np.concatenate([c[:length], s[:length]], axis=1).astype(np.float32)


@lru_cache(PRECISION_CODES)
def _starts_of_numbers(code: int) -> NDArray[np.int32]:
    """Return the starts of the intervals of numbers, as `_Reader.numbers` reads them, and 2^PRECISION."""
    z = (np.arange(NUMBERS + 1, dtype=np.float32) - np.float32(NUMBERS // 2 + 0.5)) * np.float32(
        size_of(code) * 2.0**-17
    )
    shares = ((1 << PRECISION) - NUMBERS) * reference.integer_logistic(z) >> 30
    starts = np.arange(NUMBERS + 1) + shares
    starts[0] = 0
    starts[-1] = 1 << PRECISION
    return starts.astype(np.int32)


_STARTS_OF_WORDS = (np.arange(NUMBERS + 1) << PRECISION - 16).astype(np.int32)


class _Writer:
    def __init__(self) -> None:
        self._intervals: list[NDArray[np.int64]] = []
        self._before = FIRST_PRECISION

    def _add(self, starts: NDArray[np.int32], values: NDArray[np.int64]) -> None:
        self._intervals.append(np.stack([starts[values], starts[values + 1] - starts[values]], axis=-1))

    def number(self, number: int) -> int:
        self._add(_starts_of_numbers(FIRST_PRECISION), np.array([number + NUMBERS // 2]))
        return number

    def words(self, values: NDArray[Any]) -> None:
        self._add(_STARTS_OF_WORDS, np.frombuffer(values.tobytes(), "<u2").astype(np.int64))

    def row(self, q: NDArray[np.int64]) -> None:
        """Write the numbers of a row, with the precision that takes the fewest bits."""
        values = q + NUMBERS // 2
        middle = int(code_of(1.4 / max(np.abs(q).mean(), 0.3) * 2.0**17))  # 1.4: of a logistic distribution
        near = range(max(0, middle - 8), min(PRECISION_CODES, middle + 9))

        def bits(code: int) -> float:
            return float(_bits(code)[values].sum() + _bits(FIRST_PRECISION)[code - self._before + NUMBERS // 2])

        code = min(near, key=bits)
        self.number(code - self._before)
        self._add(_starts_of_numbers(code), values)
        self._before = code

    def content(self) -> bytes:
        words = arithmetic().write_stream(np.concatenate(self._intervals).astype(np.int64), MIN_STATE)
        return bytes(words.astype(WORDS))


@lru_cache(PRECISION_CODES)
def _bits(code: int) -> NDArray[np.float32]:
    return (PRECISION - np.log2(np.diff(_starts_of_numbers(code)))).astype(np.float32)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._stream = opened(content)
        self._precision = FIRST_PRECISION
        self._read = arithmetic().read_from

    def _values(self, starts: NDArray[np.int32], count: int) -> NDArray[np.int64]:
        values = np.empty(count, np.int64)
        self._read(starts, self._stream, values)
        if self._stream.state[2]:
            raise DamagedError("the model in the archive ends early")
        return values

    def number(self, _: int = 0) -> int:
        return int(self._values(_starts_of_numbers(FIRST_PRECISION), 1)[0]) - NUMBERS // 2

    def words(self, values: NDArray[Any]) -> None:
        content = self._values(_STARTS_OF_WORDS, values.nbytes // 2).astype("<u2").tobytes()
        values[...] = np.frombuffer(content, values.dtype.newbyteorder("<")).reshape(values.shape)

    def row(self, q: NDArray[np.int64]) -> None:
        self._precision = _checked(self._precision + self.number(), PRECISION_CODES)
        q[:] = self._values(_starts_of_numbers(self._precision), len(q)) - NUMBERS // 2

    def close(self) -> None:
        if self._stream.state[1] != len(self._stream.words) or self._stream.state[0] != MIN_STATE:
            raise DamagedError("the model in the archive goes on after its last number, or is damaged")


def _checked(code: int, count: int) -> int:
    if not 0 <= code < count:
        raise DamagedError("the model in the archive is damaged: it has a step or a precision out of range")
    return code
