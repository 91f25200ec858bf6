"""The embedded handwritten digits; see digits.md for their source and licence."""

from pathlib import Path

from axial_transformers.data.arrays import load_arrays
from axial_transformers.data.config import DataConfig, Split
from axial_transformers.data.examples import Examples

_PARTS: dict[Split, slice] = {
    "train": slice(0, 1350),
    "validation": slice(1350, 1500),
    "test": slice(1500, 1797),
    "all": slice(0, 1797),
}


def load_digits(split: Split) -> Examples:
    """Digits 0..9 as 8x8 images of 17 values, one channel: 1350 train, 150 validate, 297 test."""
    return load_arrays([Path(__file__).with_name("digits.npz")], DataConfig(num_values=17))[_PARTS[split]]
