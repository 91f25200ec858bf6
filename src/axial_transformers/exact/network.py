"""A model's float32 network on the engine: the same bits on every CPU.

The results of an example depend on it and on the weights, not on the batch or on threads. Arrays are NumPy's.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axial_transformers.engine import (
    MASKED,
    NOT_FINITE,
    AnyLinear,
    Arithmetic,
    Array,
    Attention,
    Categorical,
    Centring,
    Convolution,
    Feedforward,
    Head,
    Known,
    Layer,
    Line,
    Linear,
    Lstm,
    Norm,
    Ordinal,
    Output,
    RowSampling,
    Stream,
    arithmetic,
    library,
    rounded_linear,
)
from axial_transformers.exact.row_predictions import RowPredictions
from axial_transformers.layers.blocks import (
    AttentionBlock,
    FeedforwardBlock,
    GatedConvolution,
    ModuleListOf,
    TransformerBlock,
)
from axial_transformers.layers.embeddings import Positions
from axial_transformers.layers.lines import LineAttention
from axial_transformers.models import UNCONDITIONAL, AxialTransformer, Conditioning
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.heads import ChainedHead
from axial_transformers.models.stacks import ChannelEncoder, InnerLSTM, OuterDecoder
from axial_transformers.ops.torch_private import is_bare, is_wrapper

Values = NDArray[np.int64]

ENCODED_AT_ONCE = 1 << 14
NOT_FINITE_LOGITS = "the model's logits are not finite: its weights cannot be used to compress"


def obstacle(model: AxialTransformer) -> str | None:
    """Return why a model has no exact network, or None."""
    if type(model) is not AxialTransformer:
        return f"{type(model).__name__} has no exact network"
    for name, module in model.named_modules():
        if not is_bare(module, type(module)):
            return f"{name or 'the model'} has hooks or a forward of its own, which the exact network does not call"
    for name, weight in model.named_parameters():
        if is_wrapper(weight):
            return f"{name} is a {type(weight).__name__}, without memory of its own"
    parts = _parts(model)
    expected = _expected_parts(model.config)
    for name in sorted(parts | expected):
        if parts.get(name) != expected.get(name):
            return f"{name} is not as the model's configuration has it"
    return None


def _parts(model: AxialTransformer) -> dict[str, object]:
    """Return class and settings of each module, and the shape of each tensor."""
    parts: dict[str, object] = {
        # A list of parameters would name their device.
        name: (type(module), None if isinstance(module, nn.ParameterList) else module.extra_repr())
        for name, module in model.named_modules()
    }
    return parts | {name: tensor.shape for name, tensor in model.state_dict().items()}


@lru_cache(16)  # a deep model has megabytes of parts
def _expected_parts(config: AxialTransformerConfig) -> dict[str, object]:
    with torch.device("meta"):
        return _parts(AxialTransformer(config))


def exact_network(model: AxialTransformer) -> "ExactNetwork | str":
    """Return the exact network of a float32 model on a CPU, outside autocast; or why there is none."""
    if torch.is_autocast_enabled("cpu"):
        return "on CPU nothing is compiled in bfloat16 or under autocast"
    if {(weight.device.type, weight.dtype) for weight in model.parameters()} != {("cpu", torch.float32)}:
        return "the exact network computes float32 models on a CPU"
    if torch.compiler.is_compiling():
        return "torch.compile does not trace the exact network"
    if not library():
        return "the engine is not compiled"
    return obstacle(model) or ExactNetwork(model)


class ExactNetwork:
    """The network of a model without an `obstacle`, in the arithmetic of the engine.

    Steps must run within `arithmetic.ieee_arithmetic`, in each thread.

    Args:
        integers: round linear layers to integers, as archives have them; what embeds values stays as it is.
    """

    def __init__(self, model: AxialTransformer, exact: Arithmetic | None = None, integers: bool = False):
        self.model = model
        self._weights = _Weights(integers)
        self.dim = model.config.dim
        self.arithmetic = exact or arithmetic()
        self.shape = model.layout.shape
        self.depth = model.layout.depth
        self._output = self._weights.output(model)
        inner = model.inner_decoder
        heads = 0 if isinstance(inner, InnerLSTM) else model.config.heads
        weights = self._weights.lstm(inner) if isinstance(inner, InnerLSTM) else self._weights.layers(inner.blocks, ())
        self._positions = self.positions(model.position)
        self.rows = self.arithmetic.Rows(weights, heads, self._output)
        self.embed_value = self.embedding(model.embed_value)
        self.outer_decoders = [_Outer(self, outer) for outer in model.outer_decoders]
        self._encoder = _Encoder(self, model.encoder) if model.encoder else None

    def nats(self, x: Tensor, conditioning: Conditioning = UNCONDITIONAL) -> Array:
        """Return nats of each value: [B, *A', slices, P], in model coordinates; x is from `AxialTransformer.check`."""
        rows = len(x) * prod(self.shape[:-1])
        nats = np.empty((len(self.model.slices), rows, self.shape[-1], self.depth), np.float32)
        with self.arithmetic.ieee_arithmetic():
            for (context, codes), written in zip(self._slices(x, conditioning), nats, strict=True):
                self.rows.take_known(context, Known(codes, nats=written))
        return np.moveaxis(nats.reshape(-1, len(x), *self.shape, self.depth), 0, -2)

    def intervals(self, x: Tensor, conditioning: Conditioning = UNCONDITIONAL) -> Values:
        """Return start and frequency of each value: [B, rows, L P, 2]; x as for `nats`, logits must be finite."""
        by_slice: list[Values] = []
        with self.arithmetic.ieee_arithmetic():
            for context, codes in self._slices(x, conditioning):
                written = np.empty((*codes.shape, 2), np.int64)
                self.rows.take_known(context, Known(codes, intervals=written))
                by_slice.append(written.reshape(len(x), -1, self.model.layout.row, 2))
        intervals = np.concatenate(by_slice, axis=1)
        if not intervals[..., 1].all():
            raise ValueError(NOT_FINITE_LOGITS)
        return intervals

    def _slices(self, x: Tensor, conditioning: Conditioning) -> Iterator[tuple[Array, Values]]:
        model = self.model
        length = self.shape[-1]
        y = model.layout.to_model(model.values.codes(x)).cpu()
        embedded = self.embed_conditioning(len(y), conditioning)
        for c in model.slices:
            context = np.array(self.context(y, c, embedded), order="C")
            for outer in self.outer_decoders:
                outer.add_upper(context, y[..., c, :], self._output.values)
            yield context.reshape(-1, length, self.dim), y[..., c, :].reshape(-1, length, self.depth).numpy()

    def read_row(self, context: Array, predictions: RowPredictions | None, stream: Stream) -> Tensor:
        """Return the codes [B, L, P] of a row with context [B, L, D], read from a stream; see `engine.Rows.read`.

        Raises:
            ValueError: the logits are not finite.
        """
        codes = np.empty((*context.shape[:2], self.depth), np.int64)
        self.rows.read(context, _centring(predictions), codes, stream)
        if stream.state[2] == NOT_FINITE:
            raise ValueError(NOT_FINITE_LOGITS)
        return torch.from_numpy(codes)

    def sample_row(self, context: Array, predictions: RowPredictions | None, sampling: RowSampling) -> Tensor:
        """Return the codes [B, L, P] of a row with context [B, L, D], sampled; see `engine.Rows.sample`."""
        codes = np.empty((*context.shape[:2], self.depth), np.int64)
        self.rows.sample(context, _centring(predictions), codes, sampling)
        return torch.from_numpy(codes)

    def dense(self, layer: nn.Module) -> Callable[[Array], Array]:
        """Return a linear layer of [.., inputs]."""
        linear = self.arithmetic.Dense(self._weights.linear(layer))
        return lambda x: linear(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)

    def embedding(self, embedding: nn.Module) -> Callable[[Tensor], Array]:
        """Return what embeds codes [.., P] as [.., D]."""
        embed = self.arithmetic.Embedding(self.model.values.in_engine(embedding))
        return lambda codes: embed(codes.flatten(0, -2).numpy()).reshape(*codes.shape[:-1], -1)

    def slabs(self, blocks: ModuleListOf[TransformerBlock], slab: Sequence[int]) -> Any:
        return self.arithmetic.Slabs(self._weights.layers(blocks, slab), self.model.config.heads, _neighbours(slab))

    def positions(self, module: Positions) -> Array:
        """Return [*A', D], added from the outermost axis inward."""
        total, *tables = (_array(table) for table in module.tables)
        with self.arithmetic.ieee_arithmetic():
            for table in tables:
                total = total[..., None, :] + table
        return total

    def embed_conditioning(self, batch: int, conditioning: Conditioning) -> Array | None:
        embedded = self.model.embed_conditioning(batch, conditioning)
        return None if isinstance(embedded, float) else _array(embedded)

    def context(self, y: Tensor, c: int, embedded: Array | None) -> Array:
        context = self._positions
        if self._encoder:
            same = c == 0 and embedded is None
            context = context + self._encoder(y[: 1 if same else None].squeeze(-1), c, embedded)
        elif embedded is not None:
            context = context + embedded
        return np.broadcast_to(context, (*y.shape[:-2], self.dim))


class _Outer:
    """See `OuterDecoder`."""

    def __init__(self, network: ExactNetwork, outer: OuterDecoder):
        self._length = outer.length
        self._positions = prod(outer.slab)
        self._slabs = network.slabs(outer.blocks, outer.slab) if len(outer.blocks) else None

    def start(self, batch: int) -> Any:
        return self._slabs and self._slabs.start(batch * self._positions, self._length, self._positions)

    def step(self, u: Array, i: int, state: Any) -> Array:
        if not self._slabs:
            return np.zeros_like(u)
        flat: Array = self._slabs.step(u.reshape(-1, u.shape[-1]), i, state)
        return flat.reshape(u.shape)

    def add_upper(self, context: Array, codes: Tensor, kind: Categorical | Ordinal) -> None:
        if self._slabs:
            rows = context.reshape(-1, context.shape[-1])
            flat = codes.numpy().reshape(len(rows), -1)
            self._slabs.add_upper(rows, flat, kind, self._length, self._positions)


class _Encoder:
    """See `ChannelEncoder`."""

    def __init__(self, network: ExactNetwork, encoder: ChannelEncoder):
        self._shape = network.shape
        self._windows = encoder.windows
        self._convolution = network.dense(encoder.convolution)
        self._blocks = network.slabs(encoder.blocks, network.shape)
        self._positions = network.positions(encoder.position)

    def __call__(self, values: Tensor, c: int, embedded: Array | None) -> Array:
        size = max(1, ENCODED_AT_ONCE // prod(self._shape))
        encoded = []
        for first in range(0, len(values), size):
            some = slice(first, first + size)
            encoded.append(self._encode(values[some], c, None if embedded is None else embedded[some]))
        return np.concatenate(encoded)

    def _encode(self, values: Tensor, c: int, embedded: Array | None) -> Array:
        windows = self._windows(values, torch.full((len(values),), c, device="cpu"), torch.float32)
        h = self._convolution(windows.numpy()) + self._positions
        if embedded is not None:
            h = h + embedded
        rows = h.reshape(-1, h.shape[-1])
        return self._blocks.step(rows, 0, self._blocks.start(len(rows), 1, prod(self._shape))).reshape(h.shape)


class _Weights:
    """The weights of modules, as the engine takes them."""

    def __init__(self, integers: bool):
        self._rounded = rounded_linear if integers else _unchanged

    def linear(self, layer: nn.Module) -> AnyLinear:
        weight = _array(layer.get_parameter("weight"))
        bias = np.zeros(len(weight), np.float32) if layer.bias is None else _array(layer.get_parameter("bias"))
        return self._rounded(Linear(weight.T, bias))

    def output(self, model: AxialTransformer) -> Output:
        values = model.values.in_engine(model.embed_value)
        head = model.head
        if isinstance(head, ChainedHead):
            heads = [Head(self.linear(own.expand), self.linear(own.contract)) for own in head.heads]
            return Output(_norm(head.norm), heads, values)
        return Output(_norm(head[0]), [Head(None, self.linear(head[1]))], values)

    def layers(self, blocks: ModuleListOf[TransformerBlock], slab: Sequence[int]) -> list[Layer]:
        """Return the layers of blocks, in a slab of this shape."""
        return [self._layer(part, slab) for block in blocks for part in block.parts]

    def _layer(self, part: AttentionBlock | FeedforwardBlock | GatedConvolution, slab: Sequence[int]) -> Layer:
        norm = _norm(part.norm)
        if isinstance(part, GatedConvolution):
            return Convolution(norm, self.linear(part.near), self.linear(part.out))
        if isinstance(part, FeedforwardBlock):
            return Feedforward(norm, self.linear(part.expand), self.linear(part.contract))
        attention = part.attention
        rotations = np.zeros((0, attention.widths[0] // attention.heads), np.float32)
        if attention.rotations is not None:
            rotations = _array(attention.rotations)
        return Attention(
            norm, self.linear(attention.qkv), rotations, self.linear(attention.out), _line(attention, slab)
        )

    def lstm(self, inner: InnerLSTM) -> Lstm:
        of_input, of_hidden, input_bias, hidden_bias = map(_array, inner.lstm.all_weights[0])
        linear = Linear(of_input.T, input_bias), Linear(of_hidden.T, hidden_bias)
        return Lstm(_norm(inner.norm), *map(self._rounded, linear))


def _unchanged(layer: Linear) -> AnyLinear:
    return layer


def _centring(predictions: RowPredictions | None) -> Centring | None:
    """Return predictions as the engine takes them, in the same memory: it writes into it."""
    return Centring(*(tensor.numpy() for tensor in predictions[:-1])) if predictions else None


def _neighbours(slab: Sequence[int]) -> NDArray[np.int64]:
    """Return where the window of a gated convolution lies in a slab: numbers of positions [P, 3^axes], or -1."""
    numbers = np.pad(np.arange(prod(slab)).reshape(slab), 1, constant_values=-1)
    corners = product(range(3), repeat=len(slab))
    copies = [numbers[tuple(map(slice, corner, np.add(corner, slab)))].ravel() for corner in corners]
    return np.stack(copies, axis=-1)


def _line(attention: LineAttention, slab: Sequence[int]) -> Line:
    if attention.causal:
        return MASKED
    axis = len(slab) + attention.axis + 1
    return Line(slab[axis], prod(slab[axis + 1 :]))


def _norm(norm: nn.Module) -> Norm:
    return Norm(_array(norm.get_parameter("weight")), _array(norm.get_parameter("bias")))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().to("cpu", torch.float32).contiguous().numpy()
