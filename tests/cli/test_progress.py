"""Progress of long loops: each says what it counts."""

import re
from collections import defaultdict

import numpy as np
import pytest

from axial_transformers import progress
from axial_transformers.wording import duration
from tests.conftest import Axial
from tests.small_models import archiving_model


@pytest.fixture
def every_item(monkeypatch):
    for name in ("SECONDS_TO_FIRST_LINE", "SECONDS_BETWEEN_LINES"):
        monkeypatch.setattr(progress, name, 0.0)


@pytest.mark.usefixtures("every_item")
def test_a_loop_is_renamed_only_where_it_is_shown(capsys):
    assert progress.renamed(iter, "batches") is iter
    assert list(progress.renamed(progress.bar("all"), "batches")(range(2))) == [0, 1]
    assert capsys.readouterr().err == "batches 1/2\nbatches 2/2\n"


@pytest.mark.usefixtures("home", "every_item")
def test_loops_of_different_lengths_have_different_names(axial: Axial):
    archiving_model().save_pretrained("model")
    np.save("images.npy", np.random.default_rng(0).integers(0, 256, (70, 3, 5), np.uint8))
    lengths = defaultdict(set)
    for words in (
        ["compress", "model", "images.npy", "a.axl", "--force"],
        ["decompress", "a.axl", "back.npy"],
        ["evaluate", "model", "images.npy", "--batch-size", 16],
        ["sample", "model", "--count", 2],
    ):
        status, _, err = axial(*words)
        assert status == 0, err
        for name, total in re.findall(r"^(.*) \d+/(\d+)$", err, re.MULTILINE):
            lengths[name].add(total)
    assert len(lengths) >= 5
    assert max(map(len, lengths.values())) == 1


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (49, "49 s"), (600, "10 min"), (7200, "2.0 h")])
def test_a_duration_has_one_unit(seconds, words):
    assert duration(seconds) == words
