"""A model's float32 network, with equal bits on every CPU.

An example's results depend only on it and the weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axial_transformers.engine import (
    MASKED,
    Array,
    Block,
    Features,
    Known,
    Line,
    Linear,
    Lstm,
    Norm,
    Ordinal,
    Output,
    arithmetic,
    library,
)
from axial_transformers.layers.blocks import AttentionBlock, Dropout, FeedforwardBlock, ModuleListOf, TransformerBlock
from axial_transformers.layers.embeddings import Embedding, Labels, Positions
from axial_transformers.layers.initialisation import Dense
from axial_transformers.layers.lines import LineAttention
from axial_transformers.models import UNCONDITIONAL, AxialTransformer, Conditioning
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.models.convolution import CausalConvolution
from axial_transformers.models.linear_prediction import LinearPrediction
from axial_transformers.models.stacks import ChannelEncoder, InnerAttention, InnerLSTM, OuterDecoder
from axial_transformers.models.values import CategoricalValues, FeatureEmbedding, OrdinalValues
from axial_transformers.ops.elementwise import shifted_copies
from axial_transformers.ops.torch_private import is_bare

Values = NDArray[np.int64]

ENCODED_AT_ONCE = 1 << 14
MODULES = {
    *(AxialTransformer, ChannelEncoder, OuterDecoder, InnerAttention, InnerLSTM, ModuleListOf, TransformerBlock),
    *(AttentionBlock, LineAttention, FeedforwardBlock, Dense, Dropout, Embedding, Labels, Positions, CausalConvolution),
    *(CategoricalValues, OrdinalValues, FeatureEmbedding, LinearPrediction),
    *(nn.LayerNorm, nn.LSTM, nn.ParameterList, nn.Sequential),
}
"""No subclasses."""
NOT_FINITE_LOGITS = "the model's logits are not finite: its weights cannot be used to compress"


class NotExactError(ValueError):
    """The engine cannot compute a model's network."""


def obstacle(model: AxialTransformer) -> str | None:
    """Return why the engine cannot compute a model, or None."""
    for name, module in model.named_modules():
        if type(module) not in MODULES:
            return f"the engine has no {type(module).__name__}"
        if not is_bare(module, type(module)):
            return f"{name or 'the model'} has hooks or a forward of its own, which the engine does not call"
    found, expected = _parts(model), _parts_of(model.config)
    changed = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    return f"{changed[0]} is not as the model's configuration has it" if changed else None


def _parts(model: AxialTransformer) -> dict[str, object]:
    described = (each for each in model.named_modules() if not isinstance(each[1], nn.ParameterList))  # names a device
    settings: dict[str, object] = {name: module.extra_repr() for name, module in described}
    return settings | {name: tensor.shape for name, tensor in model.state_dict().items()}


@lru_cache(16)  # a deep model has megabytes of parts
def _parts_of(config: AxialTransformerConfig) -> dict[str, object]:
    with torch.device("meta"):
        return _parts(AxialTransformer(config))


def network_of(model: AxialTransformer) -> "ExactNetwork | None":
    """Return the network of a float32 model on a CPU, outside autocast, or None."""
    plain = (
        library() is not None
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and {(weight.device.type, weight.dtype) for weight in model.parameters()} == {("cpu", torch.float32)}
    )
    with suppress(NotExactError):
        return ExactNetwork(model) if plain else None
    return None


class ExactNetwork:
    """A model's network in the arithmetic of the engine.

    Steps must run within `arithmetic.ieee_arithmetic`, in each thread.
    """

    def __init__(self, model: AxialTransformer, exact: Any = None):
        if reason := obstacle(model):
            raise NotExactError(reason)
        self.model = model
        self.arithmetic = exact or arithmetic()
        self.shape = model.layout.shape
        self._output = _output(model)
        inner = model.inner_decoder
        heads = 0 if isinstance(inner, InnerLSTM) else model.config.heads
        weights = _lstm(inner) if isinstance(inner, InnerLSTM) else _blocks(inner.blocks)
        with self.arithmetic.ieee_arithmetic():
            self._positions = positions(model.position)
        self.rows = self.arithmetic.Rows(weights, heads, self._output)
        embedding = model.embed_value
        self._features = _FeatureEmbedding(self, embedding) if isinstance(embedding, FeatureEmbedding) else None
        self.outer_decoders = [_Outer(self, outer) for outer in model.outer_decoders]
        self._encoder = None if model.encoder is None else _Encoder(self, model.encoder)

    def nats(self, x: Tensor, conditioning: Conditioning = UNCONDITIONAL) -> Array:
        """Return nats of each value: [B, *A', slices], in model coordinates; x is from `AxialTransformer.check`."""
        found = np.empty((len(self.model.slices), len(x), *self.shape), np.float32)
        no_intervals = np.zeros((0, 0, 0), np.int64)
        with self.arithmetic.ieee_arithmetic():
            for nats, (context, values) in zip(found, self._slices(x, conditioning)):
                self.rows.take_known(context, Known(values, nats.reshape(values.shape), no_intervals))
        return np.moveaxis(found, 0, -1)

    def intervals(self, x: Tensor, conditioning: Conditioning = UNCONDITIONAL) -> Values:
        """Return start and frequency of each value: [B, rows, L, 2]; x as for `nats`, logits must be finite."""
        found, no_nats = list[Values](), np.zeros((0, 0), np.float32)
        with self.arithmetic.ieee_arithmetic():
            for context, values in self._slices(x, conditioning):
                found.append(np.empty((*values.shape, 2), np.int64))
                self.rows.take_known(context, Known(values, no_nats, found[-1]))
        together = np.concatenate([part.reshape(len(x), -1, *part.shape[1:]) for part in found], axis=1)
        if not together[..., 1].all():
            raise ValueError(NOT_FINITE_LOGITS)
        return together

    def _slices(self, x: Tensor, conditioning: Conditioning) -> Iterator[tuple[Array, Values]]:
        model, length = self.model, self.shape[-1]
        y = model.layout.to_model(model.values.codes(x))
        embedded = self.embed_conditioning(len(y), conditioning)
        for c in model.slices:
            context = np.array(self.context(y, c, embedded), order="C")
            of_slice = y[..., c].cpu()
            for outer in self.outer_decoders:
                outer.add_upper(context, of_slice, self._embedding)
            yield context.reshape(-1, length, self.dim), of_slice.reshape(-1, length).numpy()

    @property
    def dim(self) -> int:
        return self.model.config.dim

    @property
    def num_values(self) -> int:
        return self.model.config.num_values

    def embed_value(self, values: Tensor) -> Array:
        return self._output.table[values.cpu().numpy()] if self._features is None else self._features(values)

    @property
    def _embedding(self) -> Array | Features:
        return self._output.features or self._output.table

    def slabs(self, blocks: nn.ModuleList, slab: Sequence[int]) -> Any:
        return self.arithmetic.Slabs(
            _blocks(blocks), self.model.config.heads, [_line(_attention(block), slab) for block in blocks]
        )

    def embed_conditioning(self, batch: int, conditioning: Conditioning) -> Array | None:
        self.model.embed_conditioning(batch, conditioning)
        embedded = None
        if self.model.labels is not None:
            table, classes = _array(self.model.labels.embed.table), self.model.labels.classes
            label = conditioning.label
            chosen = np.full(batch, classes) if label is None else label.long().cpu().numpy()
            embedded = table[chosen].reshape(batch, *(1,) * len(self.shape), self.dim)
        if conditioning.cond is not None:
            cond = _array(self.model.layout.expand_cond(conditioning.cond))
            embedded = cond if embedded is None else embedded + cond
        return embedded

    def context(self, y: Tensor, c: int, embedded: Array | None) -> Array:
        values = y.cpu().numpy()
        context = self._positions
        if self._encoder is not None:
            same = c == 0 and embedded is None
            context = context + self._encoder(values[: 1 if same else None], c, embedded)
        elif embedded is not None:
            context = context + embedded
        return np.broadcast_to(context, (*values.shape[:-1], self.dim))


class _Outer:
    """See `OuterDecoder`."""

    def __init__(self, network: ExactNetwork, outer: OuterDecoder):
        self._length, self._positions, self._convolution = outer.length, prod(outer.slab), outer.convolution
        if outer.convolution is not None:
            self._linear = network.arithmetic.Dense(_linear(outer.convolution.linear))
            of_codes = outer.convolution.of_codes
            self._numbers = outer.convolution.numbers if of_codes is None else _FeatureEmbedding(network, of_codes)
        self._slabs = network.slabs(outer.blocks, outer.slab) if len(outer.blocks) else None

    def start(self, batch: int) -> Any:
        return self._slabs and self._slabs.start(batch * self._positions, self._length, self._positions)

    def step(self, u: Array, i: int, state: Any) -> Array:
        if self._slabs is None:
            return np.zeros_like(u)
        flat: Array = self._slabs.step(u.reshape(-1, u.shape[-1]), i, state)
        return flat.reshape(u.shape)

    def near(self, slabs: Sequence[Tensor]) -> Array | float:
        if self._convolution is None or not slabs:
            return 0.0
        last = torch.stack([*slabs[-self._convolution.reach :]], dim=1)
        return self._convolved(self._convolution, self._convolution.windows(self._read(last), 1))[:, 0]

    def _read(self, codes: Tensor) -> Tensor:
        return torch.as_tensor(self._numbers(codes))

    def _convolved(self, convolution: CausalConvolution, windows: Tensor) -> Array:
        found = self._linear(_array(windows).reshape(-1, windows.shape[-1]))
        return convolution.of_channels(torch.from_numpy(found).view(*windows.shape[:-1], -1)).numpy()

    def add_upper(self, context: Array, values: Tensor, table: Array | Features) -> None:
        if self._convolution is not None:
            context += self._convolved(self._convolution, self._convolution.windows_before(self._read(values)))
        if self._slabs is not None:
            rows = context.reshape(-1, context.shape[-1])
            self._slabs.add_upper(rows, values.numpy().reshape(-1), table, self._length, self._positions)


class _FeatureEmbedding:
    """See `FeatureEmbedding`."""

    def __init__(self, network: ExactNetwork, embedding: FeatureEmbedding):
        self._features, self._linear = embedding.features, network.arithmetic.Dense(_linear(embedding.linear))

    def __call__(self, codes: Tensor) -> Array:
        numbers = self._features(codes.cpu(), torch.float32).numpy()
        flat: Array = self._linear(numbers.reshape(-1, numbers.shape[-1]))
        return flat.reshape(*codes.shape, -1)


class _Encoder:
    """See `ChannelEncoder`."""

    def __init__(self, network: ExactNetwork, encoder: ChannelEncoder):
        self._shape, self._channels, self._planes = network.shape, encoder.channels, encoder.planes
        self._features = encoder.features
        self._convolution = network.arithmetic.Dense(_linear(encoder.convolution))
        self._blocks = network.slabs(encoder.blocks, network.shape)
        with network.arithmetic.ieee_arithmetic():
            self._positions = positions(encoder.position)

    def __call__(self, values: Values, c: int, embedded: Array | None) -> Array:
        size = max(1, ENCODED_AT_ONCE // prod(self._shape))
        parts = [slice(first, first + size) for first in range(0, len(values), size)]
        return np.concatenate(
            [self._encode(values[part], c, None if embedded is None else embedded[part]) for part in parts]
        )

    def _encode(self, values: Values, c: int, embedded: Array | None) -> Array:
        known = self._features(torch.from_numpy(values), torch.float32).numpy()
        known[..., c:, :] = 0
        known = known.reshape(*values.shape[:-1], -1)
        if self._planes == "one_hot":
            planes = np.zeros(values.shape, np.float32)
            planes[..., c] = 1
        else:
            planes = np.full((*values.shape[:-1], 1), np.float32(c) / np.float32(self._channels))
        copies = shifted_copies(torch.from_numpy(np.concatenate([known, planes], axis=-1))).numpy()
        h = self._convolution(copies.reshape(-1, copies.shape[-1])).reshape(*values.shape[:-1], -1)
        h = h + self._positions
        if embedded is not None:
            h = h + embedded
        rows = h.reshape(-1, h.shape[-1])
        return self._blocks.step(rows, 0, self._blocks.start(len(rows), 1, prod(self._shape))).reshape(h.shape)


def _output(model: AxialTransformer) -> Output:
    norm, head, embedding = _norm(model.head[0]), _linear(model.head[1]), model.embed_value
    if not isinstance(embedding, FeatureEmbedding):
        return Output(norm, head, _array(embedding.table))
    values, config = model.values, model.config
    assert isinstance(values, OrdinalValues)
    last = config.num_values - 1
    of_values = embedding.features.of_values(torch.arange(last + 1))
    of_differences = embedding.features.of_differences(torch.arange(-last, last + 1))
    features = Features(_array(of_values), _array(of_differences), _linear(embedding.linear))
    unit, most = np.float32(values.spread.item()), np.float32(config.max_log_precision)
    ordinal = Ordinal(config.num_values, config.mixtures, unit, most, config.centred)
    return Output(norm, head, np.zeros((0, config.dim), np.float32), features, ordinal)


def positions(module: Positions) -> Array:
    """Return [*A', D], added from the outermost axis inward."""
    total, *tables = (_array(table) for table in module.tables)
    for table in tables:
        total = total[..., None, :] + table
    return total


def _attention(block: nn.Module) -> LineAttention:
    assert isinstance(block, TransformerBlock)
    attention = block.attention.attention
    assert isinstance(attention, LineAttention)
    return attention


def _line(attention: LineAttention, slab: Sequence[int]) -> Line:
    if attention.causal:
        return MASKED
    axis = len(slab) + attention.axis + 1
    return Line(slab[axis], prod(slab[axis + 1 :]))


def _blocks(blocks: nn.ModuleList) -> list[Block]:
    weights = []
    for block in blocks:
        assert isinstance(block, TransformerBlock)
        attention, feedforward = _attention(block), block.feedforward
        weights.append(
            Block(
                attention_norm=_norm(block.attention.norm),
                qkv=_linear(attention.qkv),
                rotations=_rotations(attention),
                out=_linear(attention.out),
                feedforward_norm=_norm(feedforward.norm),
                expand=_linear(feedforward.expand),
                contract=_linear(feedforward.contract),
            )
        )
    return weights


def _rotations(attention: LineAttention) -> Array:
    if attention.rotations is None:
        return np.zeros((0, attention.widths[0] // attention.heads), np.float32)
    return _array(attention.rotations)


def _lstm(inner: InnerLSTM) -> Lstm:
    of_input, of_hidden, input_bias, hidden_bias = map(_array, inner.lstm.all_weights[0])
    return Lstm(_norm(inner.norm), Linear(of_input.T, input_bias), Linear(of_hidden.T, hidden_bias))


def _linear(layer: nn.Module) -> Linear:
    weight = _array(layer.get_parameter("weight"))
    bias = np.zeros(len(weight), np.float32) if layer.bias is None else _array(layer.get_parameter("bias"))
    return Linear(weight.T, bias)


def _norm(norm: nn.Module) -> Norm:
    return Norm(_array(norm.get_parameter("weight")), _array(norm.get_parameter("bias")))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().to("cpu", torch.float32).contiguous().numpy()
