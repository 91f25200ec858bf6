"""What an example is called follows from shape, values and the letters of axes."""

from types import SimpleNamespace

import pytest

from axial_transformers.data.kinds import KINDS, MAX_COLUMNS, kind_of
from axial_transformers.wording import counted, plural


def kind(*shape: int, channels: int = 1, num_values: int = 256, ordered: bool = False, axes: str | None = None) -> str:
    described = SimpleNamespace(
        shape=shape, channels=channels, lowest=0, highest=num_values - 1, num_values=num_values, has_order=ordered
    )
    return kind_of(described, axes)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (kind(64, num_values=4), "sequence"),
        (kind(64, num_values=4096), "token array"),
        (kind(64, ordered=True), "series"),
        (kind(9), "row"),
        (kind(MAX_COLUMNS, ordered=True), "row"),
        (kind(MAX_COLUMNS, axes="NL", num_values=4), "sequence"),
        (kind(28, 28), "image"),
        (kind(32, 32, channels=3, ordered=True), "image"),
        (kind(64, 64, num_values=4096, ordered=True), "image"),
        (kind(64, 8, channels=3), "image"),
        (kind(50, 4, num_values=1024), "token array"),
        (kind(50, 4), "token array"),
        (kind(48, 5, num_values=900, ordered=True), "series"),
        (kind(8, 8, num_values=512), "token array"),
        (kind(8, 8, num_values=512, axes="NHW"), "image"),
        (kind(16, 32, 32, channels=3), "clip"),
        (kind(16, 32, 32, axes="NDHW"), "volume"),
        (kind(8, 8, 48, num_values=1119, ordered=True), "volume"),
        (kind(4, 8, 8, num_values=1024), "token array"),
        (kind(3, 8, 8, 8), "volume"),
    ],
)
def test_examples_are_called_by_their_kind(found, expected):
    assert found == expected
    assert found in KINDS


def test_numbers_and_nouns_agree():
    assert [counted(1, "file"), counted(0, "file"), counted(2000, "image")] == ["1 file", "0 files", "2,000 images"]
    assert [counted(3, "series"), plural("series")] == ["3 series", "series"]
