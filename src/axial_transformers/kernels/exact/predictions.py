"""Predictions along a row of sites, in integers: what `decoding.values_so_far.RowPredictions` does, by sites."""

from typing import Any

from axial_transformers.kernels.compilation import exact_part
from axial_transformers.kernels.exact.definition import Array, Prediction
from axial_transformers.kernels.exact.row_functions import copy


@exact_part
def predicted(prediction: Prediction, b: int, i: int, count: int) -> Any:
    """The prediction, one of `count` values, of example b at site i; 0 where there are none."""
    if not prediction.places.size:
        return 0
    w, n, nw = plane(prediction, b, i, 0), plane(prediction, b, i, 1), plane(prediction, b, i, 2)
    low, high = min(w, n), max(w, n)
    found = min(max(w + n - nw, low), high) + channel_before(prediction, b, i) - count // 2
    if prediction.signed:
        return min(max(found, 0), count - 1)
    return within(found, count)


@exact_part
def keep(prediction: Prediction, b: int, i: int, difference: int, count: int) -> None:
    """Writes value and plane of example b at site i."""
    if prediction.places.size:
        value = within(difference + predicted(prediction, b, i, count), count)
        prediction.values[b, i] = value
        prediction.planes[b, i] = within(value - channel_before(prediction, b, i) + count // 2, count)


@exact_part
def take_signed(predicted: int, count: int, logits: Array, at: int) -> None:
    """Copies the logits of differences that lead beyond the last value, less `count`, over those of others."""
    copy(logits, at + 2 * count - predicted, predicted, logits, at + count - predicted)


@exact_part
def plane(prediction: Prediction, b: int, i: int, which: int) -> Any:
    """The plane of a neighbour of site i: w, n or nw."""
    place = prediction.places[i, which]
    return prediction.planes[b, place] if place >= 0 else prediction.known[b, i, which]


@exact_part
def channel_before(prediction: Prediction, b: int, i: int) -> Any:
    """The value of the channel before site i, or half of the values."""
    place = prediction.places[i, 3]
    return prediction.values[b, place] if place >= 0 else prediction.known[b, i, 3]


@exact_part
def within(x: int, count: int) -> int:
    """x modulo `count`, for x from -count to 2 count - 1."""
    if x < 0:
        return x + count
    return x - count if x >= count else x
