"""Scores that tell outliers from typical images."""

import numpy as np
import pytest
import torch

from axial_transformers.data import Examples
from axial_transformers.likelihood.bits import bits_map, bits_per_dim
from axial_transformers.likelihood.outliers import (
    Scores,
    auroc,
    bits_of_outliers,
    complexity,
    keep_typical,
    ranking,
    rows_of,
    score,
    typical_in,
)
from axial_transformers.pictures import Look
from axial_transformers.pictures.heat_maps import save_scores
from tests.small_models import random_values, small_model


def test_auroc_counts_pairs():
    generator = np.random.default_rng(0)
    typical, outlying = generator.integers(0, 5, 17) / 4, generator.integers(1, 6, 13) / 4
    pairs = [(o > t) + (o == t) / 2 for o in outlying for t in typical]
    assert auroc(typical, outlying) == pytest.approx(np.mean(pairs))
    assert auroc(outlying, typical) == pytest.approx(1 - np.mean(pairs))
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
    png, other = np.random.default_rng(0).random((2, 300))
    assert ranking(of(png + 0.1 * other, png)) == (
        "corrected",
        "bits and the bits of PNG have a rank correlation of 0.99, above 0.8",
    )
    by, why = ranking(of(png + 2 * other, png))
    assert (by, why[-13:]) == ("bits", "not above 0.8")
    assert ranking(of(png[:19], png[:19]))[0] == "bits"
    assert ranking(of(png, png), "bits") == ("bits", "as asked")
    outlying = 20 * (np.arange(300) < 9)  # a few outliers do not choose their ranking
    assert np.corrcoef(other + outlying, png + outlying)[0, 1] > 0.95
    assert ranking(of(other + outlying, png + outlying))[0] == "bits"


@pytest.mark.parametrize(
    ("shape", "channels", "fields"),
    [((5,), 1, {}), ((2, 3, 4), 1, {}), ((3, 4), 2, {}), ((3, 4), 1, {"num_values": 300}), ((3, 4), 1, {"lowest": -2})],
    ids=["sequence", "clip", "two channels", "16 bits", "below zero"],
)
def test_what_is_no_image_has_no_score_by_png(shape, channels, fields):
    model = small_model(shape, channels, **fields)
    scores = score(model, random_values(model, 3).numpy() + model.config.lowest)
    assert scores.corrected is None
    assert ranking(scores)[0] == "deviation"


def test_typical_scores_are_those_of_the_best_model(tmp_path):
    assert typical_in(tmp_path) is None
    random, found = np.random.default_rng(0), []
    for mean in (3, 2, 4):
        keep_typical(tmp_path, Scores(bits=random.normal(mean, 1, 5000), corrected=None))
        found.append(typical_in(tmp_path).bits)
    assert [round(bits.mean()) for bits in found] == [3, 2, 2]
    assert len(found[-1]) == 1000
    (tmp_path / "typical.json").write_text('{"bits": ["x"], "corrected": null}')
    with pytest.raises(ValueError, match=r"typical.json: bits"):
        typical_in(tmp_path)


def test_a_dull_example_is_as_unusual_as_a_busy_one_and_has_a_quantile():
    typical, scores = (Scores(bits=np.array(bits), corrected=None) for bits in ([2.9, 3.0, 3.1, 3.3], [0.1, 3.0, 4.5]))
    first, second, third = rows_of(scores, "abc", "deviation", typical, flag=0.9)
    assert [first["deviation"], second["deviation"], third["deviation"]] == pytest.approx([2.95, 0.05, 1.45])
    assert (first["quantile"], second["quantile"], third["quantile"]) == (1.0, 0.0, 1.0)
    assert [row["flagged"] for row in (first, second, third)] == ["yes", "no", "yes"]


@pytest.mark.parametrize("shape", [(3, 5), (6, 2)])
def test_what_was_cut_is_shown_once_and_whole(shape, tmp_path):
    model, (height, width) = small_model(shape), shape
    large = np.random.default_rng(0).integers(0, 5, (2, 2 * height, 3 * width, 1))
    values = large.reshape(2, 2, height, 3, width, 1).swapaxes(2, 3).reshape(-1, height, width, 1)
    corners = [f"#{row},{column}" for row in range(2) for column in range(3)]
    examples = Examples(
        values=values.astype(np.uint8), names=[f"{i}.png{corner}" for i in range(2) for corner in corners]
    )
    part = examples[[3, 4, 8]]
    first, second = bits_of_outliers(model, part, [1, 0, 2], examples, batch_size=4)
    below, right = (slice(height, 2 * height), slice(0, height)), (slice(width, 2 * width), slice(2 * width, 3 * width))
    assert (first.rank, first.name, first.tile) == (0, "0.png", (below[0], right[0]))
    assert (second.rank, second.name, second.tile) == (2, "1.png", (below[1], right[1]))
    bits = bits_map(model, torch.from_numpy(values)).numpy().reshape(2, 2, 3, height, width, 1).swapaxes(2, 3)
    for found, whole, costs in zip((first, second), large, bits):
        assert np.array_equal(found.values, whole)
        assert np.allclose(found.bits, costs.reshape(whole.shape))
    save_scores(None, [{"rank": 1}] * 3, tmp_path / "maps", [first, second], Look.of(model.config, None))
    assert len([*(tmp_path / "maps").glob("*.png")]) == 2
