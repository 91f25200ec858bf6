"""A model in an archive: its configuration, and its weights as entropy-coded integers.

docs/reference/archive_format.md has the format. `rounding` chooses the steps, of which weights are multiples.

    steps = {name: codes [rows]}             of each trained tensor, a row along its first axis
    rounded, content = pack(model, steps)    weight = float32(q) * step of its row; bytes
    same = unpack(content)                   the rounded weights, to the last bit

With a model `base` that readers have, the bytes hold changes only: weight = float32(base weight + q * step of its row).
All else is as it is in the base.

`KINDS` says how each kind of tensor lies in the stream.

The stream has two kinds of symbols. A number is an integer q of a logistic distribution around 0, as narrow as a code
says. A word is 16 bits without a distribution. Steps and precisions are powers of two times 8 to 15:

    size(j) = (8 + j mod 8) 2^floor(j / 8)        step(j) = size(j) 2^-43        precision(j) = size(j) 2^-17
"""

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.compression.codec import WORDS, opened
from axial_transformers.compression.container import DamagedError, varint
from axial_transformers.engine import MIN_STATE, PRECISION, arithmetic, reference
from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.storage.byte_reader import ByteReader
from axial_transformers.storage.typed_json import from_json, to_json

Codes = NDArray[np.int64]
Steps = Mapping[str, Codes]

STEP_CODES, PRECISION_CODES = 512, 128
PRECISION_CODES_OF_CHANGES = 192
"""Changes are mostly 0. With the last precision, a 0 takes 0.0004 bits."""
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


def sizes(codes: Any) -> NDArray[np.float64]:
    """Return the sizes that codes stand for."""
    return (8.0 + np.asarray(codes) % 8) * 2.0 ** (np.asarray(codes) // 8)


def nearest_codes(sizes: Any) -> Codes:
    """Return the codes of the nearest sizes."""
    fraction, exponent = np.frexp(sizes)  # from 1/2 to 1
    return 8 * (exponent.astype(np.int64) - 4) + np.rint(16 * fraction).astype(np.int64) - 8


def step_sizes(codes: Any) -> NDArray[np.float64]:
    """Return the steps that codes stand for."""
    return sizes(codes) * 2.0**-43


def config_text(model: AxialTransformer) -> bytes:
    """Return name and configuration of a model as JSON.

    Fields at their defaults are left out, so that new fields change nothing.
    """
    defaults = {field.name: field.default for field in fields(model.config)}
    config = {name: value for name, value in to_json(model.config).items() if value != defaults[name]}
    return json.dumps({"model": model.name, **config}, sort_keys=True).encode()


def fingerprint(model: AxialTransformer) -> bytes:
    """Return the SHA-256 of the model's configuration and its tensors: 32 bytes.

    Raises:
        ValueError: the model is on the meta device.
    """
    model.require_values()
    digest = hashlib.sha256(config_text(model))
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()


class Packed(NamedTuple):
    """A model as an archive holds it."""

    model: AxialTransformer
    """Float32, on the CPU: its weights are multiples of their steps, and its constants are as stored."""
    content: bytes


def pack(model: AxialTransformer, steps: Steps, base: AxialTransformer | None = None) -> Packed:
    """Return a model, rounded to these steps, and its bytes.

    Args:
        base: the bytes hold the changes of this model. It differs in trained weights only (`differs_in_weights`).
    """
    rounded = copy.deepcopy(model).cpu().float().eval()
    arrays = _arrays(rounded)
    writer = _Writer(PRECISION_CODES_OF_CHANGES if base else PRECISION_CODES)
    if base is None:
        for name, values in sorted(arrays.items()):
            kind(name).transfer(values, steps.get(name), writer)
        text = config_text(model)
    else:
        _transfer_changes(arrays, _arrays(base), steps, writer)
        text = b""
    rounded.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return Packed(rounded, varint(len(text)) + text + writer.content())


def unpack(content: bytes, base: AxialTransformer | None = None) -> AxialTransformer:
    """Return the model of `pack`, in evaluation mode.

    Raises:
        DamagedError: no such bytes, or more weights than they can hold.
    """
    if base:
        return _unpack_changes(content, base)
    model, weights = without_weights(content)
    reader = _Reader(weights, PRECISION_CODES)
    arrays: dict[str, NDArray[Any]] = {}
    for name, tensor in sorted(model.state_dict().items()):
        values = np.zeros(tensor.shape, np.float32 if tensor.is_floating_point() else np.int64)
        kind(name).transfer(values, None, reader)
        if not np.isfinite(values).all():
            raise DamagedError(f"the model in the archive is damaged: {name} is not finite")
        arrays[name] = values
    reader.close()
    model.load_state_dict({name: torch.from_numpy(values) for name, values in arrays.items()}, assign=True)
    return model.requires_grad_().eval()


def differs_in_weights(model: AxialTransformer, base: AxialTransformer) -> bool:
    """Return True for a model that differs from `base` in trained weights only."""
    if config_text(model) != config_text(base):
        return False
    before = base.state_dict()
    trained = {name for name, _ in model.named_parameters() if kind(name) == WEIGHTS}
    others = {name: tensor for name, tensor in model.state_dict().items() if name not in trained}
    return all(torch.equal(tensor.cpu(), before[name].cpu()) for name, tensor in others.items())


def _unpack_changes(content: bytes, base: AxialTransformer) -> AxialTransformer:
    reader = ByteReader(content, "the model in the archive", truncated=DamagedError, malformed=DamagedError)
    if reader.varint():
        raise DamagedError("the model in the archive is damaged: changes of a model have no configuration")
    model = copy.deepcopy(base).cpu().float().eval()
    arrays = _arrays(model)
    stream = _Reader(reader.rest(), PRECISION_CODES_OF_CHANGES)
    _transfer_changes(arrays, _arrays(base), {}, stream)
    stream.close()
    model.load_state_dict({name: torch.from_numpy(values) for name, values in arrays.items()})
    return model


def _arrays(model: AxialTransformer) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in model.state_dict().items()}


def _transfer_changes(
    arrays: dict[str, NDArray[Any]], base: Mapping[str, NDArray[Any]], steps: Steps, stream: "_Stream"
) -> None:
    """Transfer the changes of all tensors of weights; a flag says which have any."""
    for name, values in sorted(arrays.items()):
        if kind(name) != WEIGHTS:
            continue
        before = base[name].astype(np.float64)
        changes = values - before
        codes = steps.get(name)
        has_changes = codes is not None and bool(_multiples(in_rows(changes), codes).any())
        if stream.number(has_changes):
            _transfer_weights(changes, codes, stream)
            values[:] = before + changes
        else:
            values[:] = before


def without_weights(content: bytes) -> tuple[AxialTransformer, bytes]:
    """Return the model of `pack` on the meta device, and the stream of its weights; errors as of `unpack`."""
    reader = ByteReader(content, "the model in the archive", truncated=DamagedError, malformed=DamagedError)
    text = reader.take(min(reader.varint(), MAX_TEXT + 1))
    try:
        described = json.loads(text) if len(text) <= MAX_TEXT else None
        if not isinstance(described, dict) or described.pop("model", None) != AxialTransformer.name:
            raise ValueError("it names no model")
        config = from_json(AxialTransformerConfig, described, "the model in the archive")
        model = _model_within(config, len(content))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"the model in the archive is damaged: {error}") from error
    return model, reader.rest()


def _model_within(config: AxialTransformerConfig, size: int) -> AxialTransformer:
    """Return a model on the meta device; ValueError if so many bytes cannot hold its weights."""
    most = NUMBERS_OF_A_BYTE * size
    # Building many layers takes seconds.
    if config.layers * 4 * config.dim**2 <= most and config.layers * BYTES_OF_A_LAYER <= size:
        with torch.device("meta"):
            model = AxialTransformer(config)
        if sum(tensor.numel() // kind(name).repeats for name, tensor in model.state_dict().items()) <= most:
            return model
    raise ValueError("its configuration needs more weights than it holds")


def in_rows(values: Any) -> Any:
    """Return an array or a tensor as rows along its first axis; a vector is one row."""
    return values[None] if values.ndim == 1 else values.reshape(len(values), -1)


def _multiples(rows: NDArray[Any], codes: Codes) -> NDArray[np.int64]:
    """Return the numbers of steps in the weights of rows."""
    multiples = np.rint(rows / step_sizes(codes)[:, None])
    return np.clip(multiples, -NUMBERS // 2, NUMBERS // 2 - 1).astype(np.int64)


def _transfer_weights(values: NDArray[np.floating], codes: Codes | None, stream: "_Stream") -> None:
    rows = in_rows(values)
    codes = np.zeros(len(rows), np.int64) if codes is None else codes.copy()
    numbers = _multiples(rows, codes)
    for i, row in enumerate(numbers):
        codes[i] = stream.step(int(codes[i]))
        stream.row(row)
    rows[:] = numbers * step_sizes(codes)[:, None]


def _transfer_rotations(values: NDArray[np.float32], _: Codes | None, stream: "_Stream") -> None:
    """Transfer the second row of a table of rotary positions, or the only one: others follow from it."""
    angles = values[min(1, len(values) - 1)].copy()
    stream.words(angles)
    values[:] = _rotations(angles, len(values))


def _transfer_words(values: NDArray[Any], _: Codes | None, stream: "_Stream") -> None:
    stream.words(values)


def _transfer_coefficients(values: Codes, _: Codes | None, stream: "_Stream") -> None:
    for row in values.reshape(-1, values.shape[-1]):
        q = np.rint(row / COEFFICIENT).astype(np.int64)
        row[:] = q * COEFFICIENT
        q[np.abs(q) >= NUMBERS // 2] = ESCAPE
        stream.row(q)
        is_large = q == ESCAPE
        too_large = row[is_large]
        stream.words(too_large)
        row[:] = q * COEFFICIENT
        row[is_large] = too_large


class Kind(NamedTuple):
    """A kind of tensors."""

    transfer: Callable[[NDArray[Any], Codes | None, "_Stream"], None]
    """Write values, with these codes of steps, into a stream; or, without, set zeros to what the stream has.

    Either way, the values become those that are stored.
    """
    repeats: int = 1
    """Numbers of a tensor for each that bounds a reader's memory: most rotations follow from others."""


WEIGHTS = Kind(_transfer_weights)
KINDS = {
    "coefficients": Kind(_transfer_coefficients),
    "rotations": Kind(_transfer_rotations, repeats=NUMBERS_OF_A_BYTE),
    "spread": Kind(_transfer_words),
}
"""Kinds of tensors by the last word of their names. All others are weights."""


def kind(name: str) -> Kind:
    """Return the kind of the tensor of this name."""
    return KINDS.get(name.rpartition(".")[2], WEIGHTS)


def _rotations(angles: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """Return a table of rotary positions [L, K] from the cosines and sines of its second row [K], by doubling it."""
    turn_c, turn_s = np.split(angles.astype(np.float64), 2)
    c = np.ones((1, len(turn_c)))
    s = np.zeros((1, len(turn_s)))
    with np.errstate(over="ignore", invalid="ignore"):  # damaged angles may grow
        while len(c) < length:
            c, s = np.concatenate([c, c * turn_c - s * turn_s]), np.concatenate([s, s * turn_c + c * turn_s])
            turn_c, turn_s = turn_c * turn_c - turn_s * turn_s, turn_s * turn_c + turn_c * turn_s
        return np.concatenate([c[:length], s[:length]], axis=1).astype(np.float32)


@lru_cache(PRECISION_CODES_OF_CHANGES)
def _number_starts(code: int) -> NDArray[np.int32]:
    """Return the starts of the intervals of numbers, as `_Reader.numbers` reads them, and 2^PRECISION."""
    precision = np.float32(sizes(code) * 2.0**-17)
    z = (np.arange(NUMBERS + 1, dtype=np.float32) - np.float32(NUMBERS // 2 + 0.5)) * precision
    shares = ((1 << PRECISION) - NUMBERS) * reference.integer_logistic(z) >> 30
    starts = np.arange(NUMBERS + 1) + shares
    starts[0] = 0
    starts[-1] = 1 << PRECISION
    return starts.astype(np.int32)


@lru_cache(PRECISION_CODES_OF_CHANGES)
def _number_bits(code: int) -> NDArray[np.float32]:
    return (PRECISION - np.log2(np.diff(_number_starts(code)))).astype(np.float32)


_WORD_STARTS = (np.arange(NUMBERS + 1) << PRECISION - 16).astype(np.int32)


class _Stream(Protocol):
    """A stream of numbers and words, which is written or read. What is read replaces what is given."""

    _step: int = FIRST_STEP
    _precision: int = FIRST_PRECISION
    _precision_codes: int

    def number(self, number: int) -> int:
        """Transfer one number of the first precision, and return it."""

    def words(self, values: NDArray[Any]) -> None:
        """Transfer values as they lie in memory, lowest byte first."""

    def row(self, q: NDArray[np.int64]) -> None:
        """Transfer the numbers of a row, and their precision."""

    def step(self, code: int) -> int:
        """Transfer the code of a step, and return it."""
        self._step = _checked(self._step + self.number(code - self._step), STEP_CODES)
        return self._step

    def precision(self, code: int) -> int:
        """Transfer the code of a precision, and return it."""
        self._precision = _checked(self._precision + self.number(code - self._precision), self._precision_codes)
        return self._precision


class _Writer(_Stream):
    def __init__(self, precision_codes: int) -> None:
        self._precision_codes = precision_codes
        self._intervals: list[NDArray[np.int64]] = []

    def _add(self, starts: NDArray[np.int32], values: NDArray[np.int64]) -> None:
        self._intervals.append(np.stack([starts[values], starts[values + 1] - starts[values]], axis=-1))

    def number(self, number: int) -> int:
        self._add(_number_starts(FIRST_PRECISION), np.array([number + NUMBERS // 2]))
        return number

    def words(self, values: NDArray[Any]) -> None:
        self._add(_WORD_STARTS, np.frombuffer(values.tobytes(), "<u2").astype(np.int64))

    def row(self, q: NDArray[np.int64]) -> None:
        """Write the numbers of a row, with the precision that takes the fewest bits."""
        values = q + NUMBERS // 2
        near = self._precisions_near(float(np.abs(q).mean()))

        def bits(code: int) -> float:
            own = _number_bits(FIRST_PRECISION)[code - self._precision + NUMBERS // 2]
            return float(_number_bits(code)[values].sum() + own)

        code = self.precision(min(near, key=bits))
        self._add(_number_starts(code), values)

    def _precisions_near(self, mean: float) -> range:
        """Return codes of precisions, among them the best for numbers of a mean size.

        For large numbers the mean of a logistic distribution is 1.4 / precision. For small ones, it is about twice what
        lies beyond 1/2.
        """
        precision = 1.4 / mean if mean > 0.3 else 2 * np.log(2 / max(mean, 1e-300))
        count = self._precision_codes
        middle = min(count - 1, int(nearest_codes(precision * 2.0**17)))
        return range(max(0, middle - 8), min(count, middle + 9))

    def content(self) -> bytes:
        words = arithmetic().write_stream(np.concatenate(self._intervals).astype(np.int64), MIN_STATE)
        return bytes(words.astype(WORDS))


class _Reader(_Stream):
    def __init__(self, content: bytes, precision_codes: int) -> None:
        self._precision_codes = precision_codes
        self._stream = opened(content)
        self._read = arithmetic().read_from

    def _values(self, starts: NDArray[np.int32], count: int) -> NDArray[np.int64]:
        values = np.empty(count, np.int64)
        self._read(starts, self._stream, values)
        if self._stream.state[2]:
            raise DamagedError("the model in the archive ends early")
        return values

    def number(self, number: int) -> int:
        return int(self._values(_number_starts(FIRST_PRECISION), 1)[0]) - NUMBERS // 2

    def words(self, values: NDArray[Any]) -> None:
        content = self._values(_WORD_STARTS, values.nbytes // 2).astype("<u2").tobytes()
        values[...] = np.frombuffer(content, values.dtype.newbyteorder("<")).reshape(values.shape)

    def row(self, q: NDArray[np.int64]) -> None:
        q[:] = self._values(_number_starts(self.precision(0)), len(q)) - NUMBERS // 2

    def close(self) -> None:
        if self._stream.state[1] != len(self._stream.words) or self._stream.state[0] != MIN_STATE:
            raise DamagedError("the model in the archive goes on after its last number, or is damaged")


def _checked(code: int, count: int) -> int:
    if not 0 <= code < count:
        raise DamagedError("the model in the archive is damaged: it has a step or a precision out of range")
    return code
