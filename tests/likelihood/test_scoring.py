"""Scores that tell outliers from typical images."""

import numpy as np
import pytest

from axial_transformers.likelihood.outliers import auroc, complexity, corrected


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


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (4, 8, 8, 3), (64, 1)])
def test_noise_is_more_complex_than_a_flat_image(shape):
    noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    flat, random = complexity(np.stack([np.zeros(shape, np.uint8), noise]))
    assert flat < 8 < random  # bits/dim: noise cannot be packed, and a header comes on top


def test_the_corrected_score_takes_complexity_off():
    values = np.zeros((2, 28, 28, 1), np.uint8)
    assert np.allclose(corrected(np.array([1.0, 2.0]), values), np.array([1.0, 2.0]) - complexity(values))
