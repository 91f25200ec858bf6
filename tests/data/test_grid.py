"""Floats at equal steps are integers, and come back with the same bits; others are refused."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from axial_transformers import data
from axial_transformers.data import DataConfig
from axial_transformers.data.grid import Grid


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.sampled_from([0.5, 1, 4, 10, 32, 100, 255, 1000]), st.sets(st.integers(-3000, 3000), min_size=1), st.data())
def test_decimals_come_back_with_the_same_bits(dtype, whole, numbers, draw):
    offset = 0 if whole == 255 else draw.draw(st.sampled_from([0, 7, 10_000]))
    values = ((np.array(sorted(numbers)) + offset) / whole).astype(dtype)
    grid = Grid.of(values)
    assert grid is not None
    assert grid.floats(grid.integers(values), dtype).tobytes() == values.tobytes()
    assert np.ptp(grid.integers(values)) < 65_536


@given(st.sets(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_any_floats_have_a_grid_that_holds_them_or_none(numbers):
    values = np.unique(np.array([*numbers]))
    with np.errstate(all="ignore"):
        grid = Grid.of(values)
        assert grid is None or len(values) < 2 or grid.holds(values)


@pytest.mark.parametrize(
    ("values", "grid"),
    [
        (np.arange(-5, 9) * 0.25 + 100, (0.25, 0)),
        (np.arange(256) / 255, (1 / 255, 0)),
        (np.array([0, 2, 5, 7, 100]) * 0.5, (0.5, 0)),
        (np.arange(1000) / 100 + 273.15, (0.01, 0)),
        (np.array([7.5]), (1, 0.5)),
        (np.array([3.0]), (1, 0)),
        (np.random.default_rng(0).normal(size=3000), None),
        (np.array([-0.0, 1]), (1, 0)),
    ],
)
def test_the_coarsest_grid_is_found_or_none(values, grid):
    found = Grid.of(np.unique(values.astype(np.float32)))
    assert (found and tuple(found)) == (grid and pytest.approx(grid))


def _loaded(folder, values, **options):
    np.save(folder / "x.npy", values)
    return data.load(folder / "x.npy", DataConfig(**options), "all")


@pytest.mark.parametrize("options", [{}, {"size": (4, 3)}])
def test_floats_are_loaded_as_integers_on_their_grid(tmp_path, options):
    numbers = np.random.default_rng(0).integers(-300, 500, (6, 4, 3))
    examples = _loaded(tmp_path, (numbers / 10).astype(np.float32), **options)
    assert examples.range.grid == Grid(0.1, 0)
    assert np.array_equal(examples.values[:][..., 0], numbers)
    assert examples.fingerprint != _loaded(tmp_path, numbers, **options).fingerprint
    whole = _loaded(tmp_path, numbers.astype(np.float64), **options)
    assert (whole.range.grid, whole.fingerprint) == (None, _loaded(tmp_path, numbers, **options).fingerprint)


def test_other_floats_are_one_line_that_says_how_to_round_them(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, 4, 4)).astype(np.float32)
    with pytest.raises(ValueError, match=r"x\.npy.*data\.grid") as error:
        _loaded(tmp_path, values)
    step = float(str(error.value).split("data.grid=(")[1].split(",")[0])
    with pytest.warns(UserWarning, match="0.0001 .*5e-05"):
        assert _loaded(tmp_path, values, grid=Grid(step, 0)).range.num_values < 65_536
    with pytest.warns(UserWarning, match="rounded"):
        found = _loaded(tmp_path, values, grid=Grid(1, 0))
    np.testing.assert_array_equal(found.values[..., 0], np.rint(values))
    with pytest.raises(ValueError, match="NaN"):
        _loaded(tmp_path, np.where(values > 0, np.nan, values))
