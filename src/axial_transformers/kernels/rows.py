"""Rows of sites whose values are drawn: inner decoder, head and choice in one compiled call, for some examples.

The computation of `InnerAttention.step`, `InnerLSTM.step`, the head and `RowChoice`, by the kernels of `kernels.exact`.
"""

import numpy as np

from axial_transformers.kernels.compilation import compiled, part
from axial_transformers.kernels.exact.definition import Choice, Prediction
from axial_transformers.kernels.exact.predictions import keep, predicted, take_signed, within
from axial_transformers.kernels.exact.steps import Inner, Memory, PackedOutput, site_logits, start_row
from axial_transformers.kernels.llvm import Array, Integers
from axial_transformers.kernels.vectors import exp


@compiled
def draw_row(
    context: Array, inner: Inner, output: PackedOutput, choice: Choice, prediction: Prediction, values: Integers,
    first: int, last: int, memory: Memory,
) -> None:  # fmt: skip
    """Context [B, L, D] -> values, or differences, [B, L], of examples `first` to `last`."""
    rows, count = last - first, len(output.table)
    start_row(rows, inner.heads, memory.cell, memory.hidden)
    logits, width = memory.logits.reshape(-1), memory.logits.shape[1]
    for i in range(context.shape[1]):
        site_logits(context, first, rows, i, inner, output, values, memory)
        for row in range(rows):
            b, at = first + row, row * width
            found = predicted(prediction, b, i, count)
            if choice.known[b, i] >= 0:
                values[b, i] = within(choice.known[b, i] - found, count)
            else:
                if prediction.signed:
                    take_signed(found, count, logits, at)
                values[b, i] = choose_value(
                    logits[at : at + count], choice.noise[b, i], choice.temperature, choice.top_k, choice.top_p
                )
            keep(prediction, b, i, values[b, i], count)


@part
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


@part
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
