"""Whole rows of sites in one compiled call: the inner decoder, the head and the choice, for some examples.

What `InnerAttention.step`, `InnerLSTM.step`, the head and `RowChoice` compute, written for matrices so small that what
costs is not arithmetic but reading the weights and calling kernels. float32 throughout; [B, ..] are some examples, few
enough for what they carry to stay in a core's own cache.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import float32, int32, types
from numba.core import cgutils
from numpy.typing import NDArray

from axial_transformers.kernels.compilation import compiled
from axial_transformers.kernels.line_attention import (
    C2,
    C3,
    C4,
    C5,
    C6,
    LANES,
    LARGEST,
    LN_2,
    LOG2_E,
    ONE,
    PANEL,
    ROWS,
    Array,
    intrinsic,
)

EPSILON = np.float32(1e-5)
STEEPNESS = np.float32(1.702)


class Norm(NamedTuple):
    """A LayerNorm of each layer: [layers, D]."""

    gain: Array
    bias: Array


class Map(NamedTuple):
    """A linear map of each layer: [layers, panels, in, PANEL], its outputs padded with zeros, and [layers, out]."""

    panels: Array
    bias: Array


class Blocks(NamedTuple):
    """The transformer blocks of `InnerAttention`."""

    attention_norm: Norm
    qkv: Map
    out: Map
    feedforward_norm: Norm
    expand: Map
    contract: Map


class Lstm(NamedTuple):
    """The layer of `InnerLSTM`; gates in torch's order: input, forget, cell, output."""

    norm: Norm
    of_input: Map
    of_hidden: Map


class Ends(NamedTuple):
    """What stands around the inner decoder: the table [V, D] of values, the head."""

    table: Array
    norm: Norm
    head: Map


class Choice(NamedTuple):
    """`RowChoice` of some examples: noise [B, L, V], known [B, L]; top_k = V and top_p = 1 restrict nothing."""

    noise: Array
    known: NDArray[np.int64]
    temperature: np.float32
    top_k: int
    top_p: np.float32


@compiled
def attention_row(context: Array, blocks: Blocks, heads: int, ends: Ends, choice: Choice) -> NDArray[np.int64]:
    """Context [B, L, D] -> values [B, L], with masked attention over the row as the inner decoder."""
    batch, length, dim = context.shape
    layers, width = len(blocks.qkv.panels), dim // heads
    keys = np.zeros((layers, batch, heads, width, length), np.float32)
    cached = np.zeros((layers, batch, heads, length, width), np.float32)
    x = np.zeros((batch, dim), np.float32)
    normed, attended = np.empty_like(x), np.empty_like(x)
    qkv = np.empty((batch, 3 * dim), np.float32)
    hidden = np.empty((batch, blocks.expand.bias.shape[1]), np.float32)
    logits = np.empty((batch, len(ends.table)), np.float32)
    weights = np.empty(length, np.float32)
    values = np.empty((batch, length), np.int64)
    for i in range(length):
        add_context(context, i, x)
        for layer in range(layers):
            project(x, blocks, layer, normed, qkv)
            attend_step(qkv, keys[layer], cached[layer], i, weights, attended)
            add_map(attended, blocks.out, layer, x)
            feed_forward(x, blocks, layer, normed, hidden)
        choose(x, i, ends, choice, normed, logits, values)
    return values


@compiled
def slab(u: Array, blocks: Blocks, heads: int, lines: NDArray[np.int64], i: int, keys: Array, cached: Array) -> Array:
    """Transformer blocks over slabs u [B, S, D], those that are masked along an axis across the slabs at its place i.

    Args:
        lines: [layers, 2], length and stride of the lines that a layer attends along inside a slab; length 0: masked.
        keys: [masked layers, B, S, N, K, L], the cache; cached: [masked layers, B, S, N, L, K], its values.
    """
    batch, sites, dim = u.shape
    longest = max(keys.shape[-1], lines[:, 0].max())
    x, normed = np.empty((sites, dim), np.float32), np.empty((sites, dim), np.float32)
    attended = np.empty((sites, dim), np.float32)
    qkv = np.empty((sites, 3 * dim), np.float32)
    hidden = np.empty((sites, blocks.expand.bias.shape[1]), np.float32)
    weights = np.empty(longest, np.float32)
    result = np.empty_like(u)
    for b in range(batch):
        x[:] = u[b]
        masked = 0
        for layer in range(len(lines)):
            length, stride = lines[layer]
            project(x, blocks, layer, normed, qkv)
            if length == 0:
                attend_step(qkv, keys[masked, b], cached[masked, b], i, weights, attended)
                masked += 1
            else:
                attend_lines(qkv, heads, length, stride, weights, attended)
            add_map(attended, blocks.out, layer, x)
            feed_forward(x, blocks, layer, normed, hidden)
        result[b] = x
    return result


@compiled
def lstm_row(context: Array, lstm: Lstm, ends: Ends, choice: Choice) -> NDArray[np.int64]:
    """Context [B, L, D] -> values [B, L], with the LSTM as the inner decoder."""
    batch, length, dim = context.shape
    x = np.zeros((batch, dim), np.float32)
    normed, hidden, cell = np.empty_like(x), np.zeros_like(x), np.zeros_like(x)
    gates = np.empty((batch, 4 * dim), np.float32)
    logits = np.empty((batch, len(ends.table)), np.float32)
    values = np.empty((batch, length), np.int64)
    for i in range(length):
        add_context(context, i, x)
        normalise(x, lstm.norm, 0, normed)
        gates[:] = 0
        add_map(normed, lstm.of_input, 0, gates)
        add_map(hidden, lstm.of_hidden, 0, gates)
        for b in range(batch):
            for j in range(dim):
                new = sigmoid(gates[b, j]) * tanh(gates[b, 2 * dim + j])
                cell[b, j] = sigmoid(gates[b, dim + j]) * cell[b, j] + new
                hidden[b, j] = sigmoid(gates[b, 3 * dim + j]) * tanh(cell[b, j])
                x[b, j] += hidden[b, j]
        choose(x, i, ends, choice, normed, logits, values)
    return values


@compiled
def add_context(context: Array, i: int, x: Array) -> None:
    """x += context of site i."""
    for b in range(len(x)):
        for j in range(x.shape[1]):
            x[b, j] += context[b, i, j]


@compiled
def choose(
    x: Array, i: int, ends: Ends, choice: Choice, normed: Array, logits: Array, values: NDArray[np.int64]
) -> None:
    """The values of site i from the inner decoder's output x [B, D], which their embedding then replaces."""
    normalise(x, ends.norm, 0, normed)
    logits[:] = 0
    add_map(normed, ends.head, 0, logits)
    for b in range(len(x)):
        value = choice.known[b, i]
        if value < 0:
            value = draw(logits[b], choice.noise[b, i], choice.temperature, choice.top_k, choice.top_p)
        values[b, i] = value
        x[b] = ends.table[value]


@compiled
def draw(logits: Array, noise: Array, temperature: np.float32, top_k: int, top_p: np.float32) -> int:
    """argmax(logits + temperature * noise) of one site among the values that top_k and top_p allow."""
    least = -np.float32(np.inf)
    if top_k < len(logits):
        least = np.sort(logits)[len(logits) - top_k]
    if top_p < 1 and temperature > 0:
        least = max(least, nucleus(logits, temperature, top_p))
    best = -np.float32(np.inf)
    for j in range(len(logits)):
        logits[j] = logits[j] + temperature * noise[j] if logits[j] >= least else -np.float32(np.inf)
        best = max(best, logits[j])
    for j in range(len(logits)):
        if logits[j] == best:
            return j
    return 0


@compiled
def nucleus(logits: Array, temperature: np.float32, top_p: np.float32) -> np.float32:
    """The least logit among the most likely values that together reach probability top_p."""
    ordered = np.sort(logits)[::-1]
    odds = np.empty_like(logits)
    total = np.float32(0)
    for j in range(len(odds)):
        odds[j] = exp((ordered[j] - ordered[0]) / temperature)
        total += odds[j]
    reached = np.float32(0)
    for j in range(len(odds)):
        reached += odds[j]
        if reached >= top_p * total:
            return ordered[j]
    return ordered[-1]


@compiled
def project(x: Array, blocks: Blocks, layer: int, normed: Array, qkv: Array) -> None:
    """Queries, keys and values of all heads: [B, D] -> [B, 3 D]."""
    normalise(x, blocks.attention_norm, layer, normed)
    qkv[:] = 0
    add_map(normed, blocks.qkv, layer, qkv)


@compiled
def feed_forward(x: Array, blocks: Blocks, layer: int, normed: Array, hidden: Array) -> None:
    """x += W2 quick_gelu(W1 LayerNorm(x))."""
    normalise(x, blocks.feedforward_norm, layer, normed)
    hidden[:] = 0
    add_map(normed, blocks.expand, layer, hidden)
    for b in range(hidden.shape[0]):
        for j in range(hidden.shape[1]):
            hidden[b, j] *= sigmoid(STEEPNESS * hidden[b, j])
    add_map(hidden, blocks.contract, layer, x)


@compiled
def attend_step(qkv: Array, keys: Array, cached: Array, i: int, weights: Array, out: Array) -> None:
    """Place i of B lines [B, 3 D] -> [B, D]; its keys [B, N, K, L] and values [B, N, L, K] join the cache."""
    batch, heads, width, _ = keys.shape
    dim = heads * width
    for b in range(batch):
        for head in range(heads):
            first = head * width
            for j in range(width):
                keys[b, head, j, i] = qkv[b, dim + first + j]
                cached[b, head, i, j] = qkv[b, 2 * dim + first + j]
            attend(qkv[b, first : first + width], keys[b, head], cached[b, head], i + 1, weights, out[b, first:])


@compiled
def attend_lines(qkv: Array, heads: int, length: int, stride: int, weights: Array, out: Array) -> None:
    """Unmasked attention along the lines of a slab, [S, 3 D] -> [S, D]: places `stride` apart, `length` in a line."""
    sites, dim = out.shape
    width = dim // heads
    keys, values = np.empty((width, length), np.float32), np.empty((length, width), np.float32)
    for start in range(sites):
        if start // stride % length:
            continue  # not the first place of its line
        for first in range(0, dim, width):
            for i in range(length):
                for j in range(width):
                    keys[j, i] = qkv[start + i * stride, dim + first + j]
                    values[i, j] = qkv[start + i * stride, 2 * dim + first + j]
            for i in range(length):
                site = start + i * stride
                attend(qkv[site, first : first + width], keys, values, length, weights, out[site, first:])


@compiled
def attend(query: Array, keys: Array, values: Array, seen: int, weights: Array, out: Array) -> None:
    """softmax(query keys / sqrt(K)) values over the first `seen` places: keys [K, L], values [L, K]."""
    width, length = keys.shape
    scale = np.float32(1 / np.sqrt(width))
    scores = weights[: min(length, (seen + 15) // 16 * 16)]  # whole vectors: what is not seen is computed and left out
    scores[:] = 0
    add_product(query, keys, scores)
    largest = scores[0]
    for j in range(seen):
        largest = max(largest, scores[j])
    total = np.float32(0)
    for j in range(seen):
        scores[j] = exp((scores[j] - largest) * scale)
        total += scores[j]
    for j in range(seen):
        scores[j] /= total
    mixed = out[:width]
    mixed[:] = 0
    add_product(scores[:seen], values, mixed)


@compiled
def normalise(x: Array, norm: Norm, layer: int, out: Array) -> None:
    """LayerNorm, [B, D] -> [B, D]."""
    dim = x.shape[1]
    gain, bias = norm.gain[layer], norm.bias[layer]
    for b in range(len(x)):
        mean = np.float32(0)
        for j in range(dim):
            mean += x[b, j]
        mean /= np.float32(dim)
        variance = np.float32(0)
        for j in range(dim):
            variance += (x[b, j] - mean) ** 2
        scale = np.float32(1) / np.sqrt(variance / np.float32(dim) + EPSILON)
        for j in range(dim):
            out[b, j] = (x[b, j] - mean) * scale * gain[j] + bias[j]


@compiled
def add_map(x: Array, linear: Map, layer: int, out: Array) -> None:
    """out += x W + bias: [B, in] to [B, out]."""
    batch, outputs = out.shape
    panels, bias, last = linear.panels[layer], linear.bias[layer], len(x) - 1
    tile = np.empty((ROWS, PANEL), np.float32)
    for panel in range(len(panels)):
        start = panel * PANEL
        width = min(PANEL, outputs - start)
        for b in range(0, batch, ROWS):
            multiply(x[b], x[min(b + 1, last)], x[min(b + 2, last)], x[min(b + 3, last)], panels[panel], tile)
            for row in range(min(ROWS, batch - b)):
                for j in range(width):
                    out[b + row, start + j] += tile[row, j] + bias[start + j]


@intrinsic
def multiply(typing_context: Any, x0: Any, x1: Any, x2: Any, x3: Any, panel: Any, tile: Any) -> Any:
    """tile = x panel: four rows [in] and [in, PANEL] to [4, PANEL], all contiguous, the sums in registers throughout.

    Reading a panel takes as long as multiplying four rows by it, so that fewer rows cost the same.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [context.make_array(kind)(context, builder, x) for kind, x in zip(signature.args, arguments)]
        vector, splat = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)
        *rows, weights, out = (array.data for array in arrays)
        weights, out = (builder.bitcast(data, vector.as_pointer()) for data in (weights, out))
        inputs = builder.extract_value(arrays[4].shape, 0)
        integer, unset, columns = inputs.type, ir.Constant(vector, ir.Undefined), PANEL // LANES
        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(ROWS * columns)]
        with cgutils.for_range(builder, inputs) as loop:
            first = builder.mul(loop.index, integer(columns))
            read = [
                builder.load(builder.gep(weights, [builder.add(first, integer(c))]), align=4) for c in range(columns)
            ]
            for row, data in enumerate(rows):
                number = builder.load(builder.gep(data, [loop.index]))
                number = builder.insert_element(unset, number, ir.IntType(32)(0))
                number = builder.shuffle_vector(number, unset, ir.Constant(splat, None))
                for total, weight in zip(sums[row * columns :], read):
                    product = builder.fmul(number, weight, flags=("contract",))
                    builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
        for i, total in enumerate(sums):
            builder.store(builder.load(total), builder.gep(out, [integer(i)]), align=4)
        return context.get_dummy_value()

    return types.void(x0, x1, x2, x3, panel, tile), generate


@compiled
def add_product(x: Array, matrix: Array, out: Array) -> None:
    """out += x matrix: [in] and [in or more, out or more] to [out]."""
    whole = len(x) - len(x) % 4
    for k in range(0, whole, 4):
        a0, a1, a2, a3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        m0, m1, m2, m3 = matrix[k], matrix[k + 1], matrix[k + 2], matrix[k + 3]
        for j in range(len(out)):
            out[j] += a0 * m0[j] + a1 * m1[j] + a2 * m2[j] + a3 * m3[j]
    for k in range(whole, len(x)):
        for j in range(len(out)):
            out[j] += x[k] * matrix[k, j]


@compiled
def sigmoid(x: np.float32) -> np.float32:
    """1 / (1 + exp(-x))."""
    return ONE / (ONE + exp(-x))


@compiled
def tanh(x: np.float32) -> np.float32:
    """By the sigmoid."""
    return sigmoid(x + x) - sigmoid(-x - x)


@compiled
def exp(x: np.float32) -> np.float32:
    """e^x to about a millionth of it, for |x| <= 87: unlike the library's, one that loops can do 16 of at a time.

    2^n e^r with n whole and |r| <= log(2) / 2; the series of e^r; 2^n written as the bits of a float.
    """
    x = min(max(x, -LARGEST), LARGEST)
    n = np.int32(x * LOG2_E + np.float32(127.5))
    r = x - np.float32(n - 127) * LN_2
    series = C2 + r * (C3 + r * (C4 + r * (C5 + r * C6)))
    return (ONE + r + r * r * series) * float_of_bits(np.int32(n << 23))


@intrinsic
def float_of_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 with these int32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return float32(int32), generate
