"""Scores that find the odd ones."""

import numpy as np
import pytest

from axial_transformers.likelihood.outliers import auroc, complexity, corrected


def test_auroc_counts_pairs():
    generator = np.random.default_rng(0)
    usual, odd = generator.integers(0, 5, 17) / 4, generator.integers(1, 6, 13) / 4
    pairs = [(o > u) + (o == u) / 2 for o in odd for u in usual]
    assert auroc(usual, odd) == pytest.approx(np.mean(pairs))
    assert auroc(odd, usual) == pytest.approx(1 - np.mean(pairs))


def test_auroc_of_equal_scores_is_a_half():
    assert auroc(np.ones(5), np.ones(3)) == 0.5
    with pytest.raises(ValueError, match="both kinds"):
        auroc(np.ones(5), np.ones(0))


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (4, 8, 8, 3), (64, 1)])
def test_noise_is_more_complex_than_a_plain_area(shape):
    noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    plain, random = complexity(np.stack([np.zeros(shape, np.uint8), noise]))
    assert plain < 8 < random  # bits/dim: noise cannot be packed, and a header comes on top


def test_the_corrected_score_takes_complexity_off():
    values = np.zeros((2, 28, 28, 1), np.uint8)
    assert np.allclose(corrected(np.array([1.0, 2.0]), values), np.array([1.0, 2.0]) - complexity(values))
