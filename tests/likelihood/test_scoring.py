"""Scores that tell outliers from typical images."""

import numpy as np
import pytest
import torch

from axial_transformers.data import Examples
from axial_transformers.data.images import tiles
from axial_transformers.likelihood.bits import bits_map, bits_per_dim
from axial_transformers.likelihood.outliers import (
    Scores,
    auroc,
    bits_of_outliers,
    complexity,
    ranking,
    score,
)
from tests.small_models import random_values, small_model


def test_auroc_counts_pairs():
    generator = np.random.default_rng(0)
    typical, outlying = generator.integers(0, 5, 17) / 4, generator.integers(1, 6, 13) / 4
    pairs = [(o > t) + (o == t) / 2 for o in outlying for t in typical]
    assert auroc(typical, outlying) == pytest.approx(np.mean(pairs))
    assert auroc(outlying, typical) == pytest.approx(1 - np.mean(pairs))


def test_auroc_of_equal_scores_is_a_half():
    assert auroc(np.ones(5), np.ones(3)) == 0.5
    with pytest.raises(ValueError, match="both kinds"):
        auroc(np.ones(5), np.ones(0))


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1)])
def test_noise_is_more_complex_than_a_flat_image(shape):
    noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    flat, random = complexity(np.stack([np.zeros(shape, np.uint8), noise]))
    assert flat < 8 < random  # bits/dim: noise cannot be packed, and a header comes on top


def test_the_corrected_score_takes_complexity_off():
    model = small_model((3, 4))
    values = random_values(model, 3).numpy().astype(np.uint8)
    scores = score(model, values, batch_size=2)
    assert np.allclose(scores.corrected, bits_per_dim(model, torch.from_numpy(values)).numpy() - complexity(values))


def of(bits: np.ndarray, png: np.ndarray) -> Scores:
    return Scores(bits=bits, corrected=bits - png)


def test_the_corrected_score_ranks_where_pngs_bits_explain_the_models():
    generator = np.random.default_rng(0)
    png, other = generator.random((2, 200))
    assert ranking(of(png + 0.1 * other, png)) == (
        "corrected",
        "the rank correlation of bits and PNG's bits is 0.99, above 0.8",
    )
    by, why = ranking(of(png + 2 * other, png))
    assert (by, why[-13:]) == ("bits", "not above 0.8")
    assert ranking(of(png[:19], png[:19]))[0] == "bits"
    assert ranking(of(png, png), "bits") == ("bits", "as asked")


def test_a_few_outliers_do_not_choose_their_ranking():
    png, bits = np.random.default_rng(0).random((2, 300))
    assert ranking(of(bits, png))[0] == "bits"
    png[:9] += 20
    bits[:9] += 20
    assert np.corrcoef(bits, png)[0, 1] > 0.95
    assert ranking(of(bits, png))[0] == "bits"


@pytest.mark.parametrize(
    ("shape", "channels", "fields"),
    [((5,), 1, {}), ((2, 3, 4), 1, {}), ((3, 4), 2, {}), ((3, 4), 1, {"num_values": 300}), ((3, 4), 1, {"lowest": -2})],
    ids=["sequence", "clip", "two channels", "16 bits", "below zero"],
)
def test_what_is_no_image_has_no_score_by_png(shape, channels, fields):
    model = small_model(shape, channels, **fields)
    scores = score(model, random_values(model, 3).numpy() + model.config.lowest)
    assert scores.corrected is None
    assert ranking(scores)[0] == "bits"


def test_an_image_in_tiles_is_shown_once_and_whole():
    model = small_model((3, 3))
    large = np.random.default_rng(0).integers(0, 5, (2, 6, 9, 1))
    values, corners = tiles(large, 3)
    examples = Examples(
        values=values.astype(np.uint8), names=[f"{i}.png{corner}" for i in range(2) for corner in corners]
    )
    part = examples[[3, 4, 8]]
    first, second = bits_of_outliers(model, part, [1, 0, 2], examples, batch_size=4)
    assert (first.rank, first.name, first.tile) == (0, "0.png", (slice(3, 6), slice(3, 6)))
    assert (second.rank, second.name, second.tile) == (2, "1.png", (slice(0, 3), slice(6, 9)))
    for found, whole in zip((first, second), large):
        assert np.array_equal(found.values, whole)
        squares, _ = tiles(whole[None], 3)
        assert np.allclose(tiles(found.bits[None], 3)[0], bits_map(model, torch.from_numpy(squares)))
