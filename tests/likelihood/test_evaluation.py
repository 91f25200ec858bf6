"""Every image counts once, whatever the batch size."""

from math import isnan, sqrt

import pytest
import torch

from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.likelihood.evaluation import evaluate
from tests.small_models import random_values, small_model


@pytest.mark.parametrize("batch_size", [16, 100])
def test_53_images_count_53_whatever_the_batch_size(batch_size):
    model = small_model((2, 3), 2, num_classes=3)
    x, label = random_values(model, 53), torch.arange(53) % 4
    each = bits_per_dim(model, x, label)
    found = evaluate(model, x, label, batch_size=batch_size)
    assert found.images == 53
    assert found.bits_per_dim == pytest.approx(each.mean().item(), abs=1e-12)
    assert found.standard_error == pytest.approx(each.std().item() / sqrt(53), abs=1e-12)
    assert isnan(evaluate(model, x[:1], label[:1]).standard_error)
    assert found.to_json().keys() == {"bits_per_dim", "standard_error", "images"}


def test_progress_sees_every_batch():
    model, seen = small_model((2, 3)), []
    evaluate(model, random_values(model, 7), batch_size=3, progress=lambda batches: seen.extend(batches) or iter(seen))
    assert seen == [0, 3, 6]


@pytest.mark.parametrize(
    ("images", "options", "words"),
    [
        (0, {}, "no images"),
        (3, {"batch_size": 0}, "batch_size"),
        (3, {"label": torch.zeros(4, dtype=torch.int64), "batch_size": 2}, "labels"),
        (3, {"label": torch.zeros(2, dtype=torch.int64), "batch_size": 2}, "labels"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(images, options, words):
    model = small_model((2, 3), num_classes=3)
    with pytest.raises(ValueError, match=words):
        evaluate(model, random_values(model, images), **options)
