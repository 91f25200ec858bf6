"""Whole rows of sites in one compiled call: the inner decoder, the head and the choice, for some examples.

The computation of `InnerAttention.step`, `InnerLSTM.step`, the head and `RowChoice`, for matrices so small that most of
the time goes into reading the weights and calling kernels. float32 throughout. [B, ..] is a part of a batch, small
enough for its activations to stay in a core's own cache.
"""

from typing import NamedTuple

import numpy as np

from axial_transformers.kernels.compilation import compiled
from axial_transformers.kernels.llvm import LANES, Array, Integers
from axial_transformers.kernels.register_tiles import round_up
from axial_transformers.kernels.transformer_blocks import (
    Blocks,
    Norm,
    PackedLinear,
    add_linear,
    attend_lines,
    feed_forward,
    normalise,
    project,
    row_buffer,
    sigmoid,
)
from axial_transformers.kernels.vectors import exp


class Lstm(NamedTuple):
    """The layer of `InnerLSTM`; gates in torch's order: input, forget, cell, output."""

    norm: Norm
    of_input: PackedLinear
    of_hidden: PackedLinear


class OutputWeights(NamedTuple):
    """The head, and the table [V, D] that embeds the values chosen from its logits."""

    norm: Norm
    head: PackedLinear
    table: Array


class Choice(NamedTuple):
    """`RowChoice` of a part of the batch: noise [B, L, V], known [B, L]; top_k = V and top_p = 1 restrict nothing."""

    noise: Array
    known: Integers
    temperature: np.float32
    top_k: int
    top_p: np.float32


@compiled
def attention_row(context: Array, blocks: Blocks, heads: int, output: OutputWeights, choice: Choice) -> Integers:
    """Context [B, L, D] -> values [B, L], with masked attention over the row as the inner decoder."""
    batch, length, dim = context.shape
    layers, width = len(blocks.qkv.panels), dim // heads
    keys = np.zeros((layers, batch, heads, width, length), np.float32)
    cached = np.zeros((layers, batch, heads, length, width), np.float32)
    x = np.zeros((batch, dim), np.float32)
    normed, attended = row_buffer(batch, dim), row_buffer(batch, dim)
    qkv = np.empty((batch, 3 * dim), np.float32)
    hidden = row_buffer(batch, blocks.expand.bias.shape[1])
    logits = np.empty((batch, len(output.table)), np.float32)
    weights = np.empty(length, np.float32)
    values = np.empty((batch, length), np.int64)
    for i in range(length):
        add_context(context, i, x)
        for layer in range(layers):
            project(x, blocks, layer, normed, qkv)
            attend_step(qkv, keys[layer], cached[layer], i, weights, attended)
            add_linear(attended, blocks.out, layer, x)
            feed_forward(x, blocks, layer, normed, hidden)
        choose_values(x, i, output, choice, normed, logits, values)
    return values


@compiled
def slab(u: Array, blocks: Blocks, heads: int, lines: Integers, i: int, keys: Array, cached: Array) -> Array:
    """Transformer blocks over slabs u [B, S, D], of which masked layers attend to the slabs up to this one, number i.

    Args:
        lines: [layers, 2], length and stride of the lines inside a slab that a layer attends along; length 0: masked.
        keys: [masked layers, B, S, N, K, L], the cache of keys; cached: [masked layers, B, S, N, L, K], of values.
    """
    batch, sites, dim = u.shape
    longest = max(keys.shape[-1], lines[:, 0].max())
    x = np.empty((sites, dim), np.float32)
    normed, attended = row_buffer(sites, dim), row_buffer(sites, dim)
    qkv = np.empty((sites, 3 * dim), np.float32)
    hidden = row_buffer(sites, blocks.expand.bias.shape[1])
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
                attend_lines(qkv, heads, sites // (length * stride), length, stride, False, attended)
            add_linear(attended, blocks.out, layer, x)
            feed_forward(x, blocks, layer, normed, hidden)
        result[b] = x
    return result


@compiled
def lstm_row(context: Array, lstm: Lstm, output: OutputWeights, choice: Choice) -> Integers:
    """Context [B, L, D] -> values [B, L], with the LSTM as the inner decoder."""
    batch, length, dim = context.shape
    x, cell = np.zeros((batch, dim), np.float32), np.zeros((batch, dim), np.float32)
    normed, hidden = row_buffer(batch, dim), row_buffer(batch, dim)
    gates = np.empty((batch, 4 * dim), np.float32)
    logits = np.empty((batch, len(output.table)), np.float32)
    values = np.empty((batch, length), np.int64)
    for i in range(length):
        add_context(context, i, x)
        normalise(x, lstm.norm, 0, normed)
        gates[:] = 0
        add_linear(normed, lstm.of_input, 0, gates)
        add_linear(hidden, lstm.of_hidden, 0, gates)
        for b in range(batch):
            for j in range(dim):
                new = sigmoid(gates[b, j]) * tanh(gates[b, 2 * dim + j])
                cell[b, j] = sigmoid(gates[b, dim + j]) * cell[b, j] + new
                hidden[b, j] = sigmoid(gates[b, 3 * dim + j]) * tanh(cell[b, j])
                x[b, j] += hidden[b, j]
        choose_values(x, i, output, choice, normed, logits, values)
    return values


@compiled
def add_context(context: Array, i: int, x: Array) -> None:
    """x += context of site i."""
    for b in range(len(x)):
        for j in range(x.shape[1]):
            x[b, j] += context[b, i, j]


@compiled
def choose_values(
    x: Array, i: int, output: OutputWeights, choice: Choice, normed: Array, logits: Array, values: Integers
) -> None:
    """Chooses the values of site i from the inner decoder's output x [B, D], and writes their embeddings into x."""
    normalise(x, output.norm, 0, normed)
    logits[:] = 0
    add_linear(normed, output.head, 0, logits)
    for b in range(len(x)):
        value = choice.known[b, i]
        if value < 0:
            value = choose_value(logits[b], choice.noise[b, i], choice.temperature, choice.top_k, choice.top_p)
        values[b, i] = value
        x[b] = output.table[value]


@compiled
def choose_value(logits: Array, noise: Array, temperature: np.float32, top_k: int, top_p: np.float32) -> int:
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
    powers = np.empty_like(logits)
    total = np.float32(0)
    for j in range(len(powers)):
        powers[j] = exp((ordered[j] - ordered[0]) / temperature)
        total += powers[j]
    reached = np.float32(0)
    for j in range(len(powers)):
        reached += powers[j]
        if reached >= top_p * total:
            return ordered[j]
    return ordered[-1]


@compiled
def attend_step(qkv: Array, keys: Array, cached: Array, i: int, weights: Array, out: Array) -> None:
    """Attention of place i of B lines [B, 3 D] -> [B, D]; caches keys [B, N, K, L] and values [B, N, L, K]."""
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
def attend(query: Array, keys: Array, values: Array, count: int, weights: Array, out: Array) -> None:
    """softmax(query keys / sqrt(K)) values over the first `count` places: keys [K, L], values [L, K]."""
    width, length = keys.shape
    scale = np.float32(1 / np.sqrt(width))
    scores = weights[: min(length, round_up(count, LANES))]  # whole vectors: further scores are computed and ignored
    scores[:] = 0
    add_product(query, keys, scores)
    largest = scores[0]
    for j in range(count):
        largest = max(largest, scores[j])
    total = np.float32(0)
    for j in range(count):
        scores[j] = exp((scores[j] - largest) * scale)
        total += scores[j]
    for j in range(count):
        scores[j] /= total
    result = out[:width]
    result[:] = 0
    add_product(scores[:count], values, result)


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
def tanh(x: np.float32) -> np.float32:
    """sigmoid(2 x) - sigmoid(-2 x)."""
    return sigmoid(x + x) - sigmoid(-x - x)
