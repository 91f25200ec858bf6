"""Images, line plots and movies: what is shown of examples, and what is saved."""

from dataclasses import replace

import av
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from axial_transformers import data, pictures
from axial_transformers.pictures.completions import completion_sheet
from axial_transformers.pictures.heat_maps import heat_map
from tests.small_models import small_config

_VALUES = npst.arrays(np.uint8, st.tuples(*[st.integers(1, 4)] * 3, st.sampled_from([1, 3])))


@given(_VALUES, st.integers(1, 3), st.integers(1, 3))
def test_a_grid_shows_every_example_where_it_belongs(values, columns, scale):
    count, height, width, channels = values.shape
    whole = pictures.Look(window=(0, 255))
    grid = np.asarray(pictures.image_grid(values, columns, scale, whole)).reshape(-1)
    columns = min(columns, count)
    gap = max(1, scale // 2)
    grid = grid.reshape(-1, columns * (width * scale + gap) + gap, channels)
    for i, example in enumerate(values):
        top, left = (gap + place * (side * scale + gap) for place, side in zip(divmod(i, columns), (height, width)))
        shown = grid[top : top + height * scale : scale, left : left + width * scale : scale]
        np.testing.assert_array_equal(shown, example)


def test_display_stretches_values_and_covers_clips():
    shown = pictures.for_display(np.arange(17).reshape(1, 1, 17, 1), pictures.Look(17))
    assert (shown.min(), shown.max(), shown.shape) == (0, 255, (1, 1, 17))
    clip = np.arange(2 * 3 * 4 * 5 * 3).reshape(2, 3, 4, 5, 3).astype(np.uint8)
    strip = pictures.for_display(clip)
    assert strip.shape == (2, 4, 15, 3)
    np.testing.assert_array_equal(strip[1, :, 5:10], clip[1, 1])


def test_values_of_more_than_8_bits_are_shown_from_black_to_white():
    deep = np.linspace(-1024, 3071, 64).astype(np.int16).reshape(1, 8, 8, 1)
    whole = pictures.Look(4096, -1024, window=(-1024, 3071))
    shown = pictures.for_display(deep, whole)
    np.testing.assert_array_equal(shown.ravel(), np.rint((deep.ravel() + 1024.0) * 255 / 4095))
    clip = pictures.for_display(deep.reshape(1, 2, 4, 8, 1), replace(whole, axes="NTHW"))
    np.testing.assert_array_equal(clip[0], shown[0].reshape(2, 4, 8).swapaxes(0, 1).reshape(4, 16))
    coloured = pictures.for_display(np.arange(-2, 2).reshape(1, 2, 2, 1), pictures.Look(4, -2))
    np.testing.assert_array_equal(coloured, pictures.for_display(np.arange(4).reshape(1, 2, 2, 1), pictures.Look(4)))


@pytest.mark.parametrize(("length", "width"), [(1, 256), (7, 259), (5000, 512)])
def test_a_sequence_is_a_line_plot(length, width):
    rising = (np.arange(length) * 255 // max(1, length - 1)).astype(np.uint8).reshape(1, length, 1)
    plot = pictures.for_display(rising)[0]
    assert plot.shape == (96, width, 3)
    blue = plot[..., 2].astype(int) - plot[..., 0] > 60
    if length > 1:
        assert np.argwhere(blue[:, : width // 4])[:, 0].mean() > np.argwhere(blue[:, -width // 4 :])[:, 0].mean()
    known = np.arange(length) < length // 2
    marks = pictures.marks_for_display(known, width)
    assert marks.shape == (1, width)
    assert marks.sum() == pytest.approx(width * (length // 2) / length, abs=1)


def test_few_values_are_categories_with_a_colour_each():
    values = np.arange(12, dtype=np.uint8).reshape(1, 3, 4, 1)
    shown = pictures.for_display(values, pictures.Look(12))
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) == 12
    assert pictures.for_display(values, pictures.Look(12, palette="gray")).shape == (1, 3, 4)
    assert pictures.for_display(values, pictures.Look(17)).shape == (1, 3, 4)
    assert pictures.for_display(values % 2, pictures.Look(2)).shape == (1, 3, 4)
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    many = pictures.for_display(every, pictures.Look(palette="categories"))
    assert len(np.unique(many.reshape(-1, 3), axis=0)) > 200
    row = pictures.for_display(values.reshape(1, 12, 1), pictures.Look(12))
    np.testing.assert_array_equal(row[0, 0], shown.reshape(12, 3))


def test_a_grid_is_large_enough_to_see():
    for shape in (1, 1, 1, 1), (36, 8, 8, 1), (2, 3, 5, 3), (4, 2, 8, 8, 1), (3, 700, 600, 3), (5, 40, 1):
        width = pictures.image_grid(np.zeros(shape, np.uint8)).width
        assert 512 <= width < 512 + 1024 * (shape[-2] > 100) + 256
    assert pictures.image_grid(np.zeros((500, 4, 4, 1), np.uint8), columns=1).height < 6000


def test_what_is_saved_is_loaded_again(tmp_path):
    rgb = np.random.default_rng(0).integers(0, 256, (3, 6, 6, 3), dtype=np.uint8)
    pictures.save_images(tmp_path / "rgb", rgb)
    np.testing.assert_array_equal(data.load(tmp_path / "rgb", split="all").values, rgb)
    data.save_arrays(tmp_path / "rgb.npz", rgb, labels=np.arange(3))
    again = data.load(tmp_path / "rgb.npz", split="all")
    np.testing.assert_array_equal(again.values, rgb)
    assert again.labels.tolist() == [0, 1, 2]
    pictures.save_grid(tmp_path / "grid.png", rgb, columns=3, scale=1)
    assert Image.open(tmp_path / "grid.png").size == (22, 8)
    with pytest.raises(FileExistsError):
        pictures.save_images(tmp_path / "rgb", rgb)


def test_movies_play_in_a_grid_with_every_frame(tmp_path):
    ramp = np.broadcast_to(np.linspace(0, 255, 5, dtype=np.uint8)[None, :, None, None, None], (3, 5, 8, 8, 3))
    pictures.save_clips(tmp_path / "clips.mp4", ramp, columns=3, scale=2)
    with av.open(tmp_path / "clips.mp4") as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert (container.streams.video[0].codec.name, container.streams.video[0].pix_fmt) == ("h264", "yuv420p")
    assert [frame.shape for frame in frames] == [(18, 52, 3)] * 5  # of even sides
    for t, frame in enumerate(frames):
        assert np.abs(frame[4:14, 4:14].astype(int) - ramp[0, t, 0, 0, 0]).max() <= 8
    pictures.save_clips(tmp_path / "clips.gif", ramp[..., :1])
    with Image.open(tmp_path / "clips.gif") as picture:
        assert (picture.n_frames, picture.info["duration"]) == (5, 120)  # GIF counts in hundredths of a second


@pytest.mark.parametrize("suffix", pictures.MOVIES)
def test_no_movie_is_left_half_written(tmp_path, suffix, monkeypatch):
    def fails(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="disk full"):
        pictures.save_movie(tmp_path / f"a{suffix}", np.zeros((7, 8, 8, 3), np.uint8))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("time_first", [True, False])
def test_a_series_of_measurements_is_lines_over_time(time_first):
    rng = np.random.default_rng(0)
    lines, bits = rng.integers(0, 900, (2, 24, 5)).astype(np.int16), rng.random((2, 24, 5))
    known = np.arange(24) < 10
    look = pictures.Look.of(small_config((24, 5), num_values=900, values="ordinal"), None)
    plain = pictures.Look(900)
    table, of_table, mask = (
        np.expand_dims(each if time_first else each.swapaxes(-1, -2), -1)
        for each in (lines, bits, known[:, None].repeat(5, 1))
    )
    np.testing.assert_array_equal(pictures.for_display(table, look), pictures.for_display(lines, plain))
    np.testing.assert_array_equal(
        pictures.marks_for_display(mask[..., 0], 256, look), pictures.marks_for_display(known, 256)
    )
    found, expected = heat_map(table[0], of_table[0], look), heat_map(lines[0], bits[0], plain)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    filled = table.repeat(3, 0)
    sheet = completion_sheet(table, mask, filled, look)
    expected = completion_sheet(lines, known[:, None].repeat(5, 1), lines.repeat(3, 0), plain)
    np.testing.assert_array_equal(np.asarray(sheet), np.asarray(expected))


def test_above_slices_stands_which_axes_they_show():
    volumes = np.random.default_rng(0).integers(0, 900, (2, 4, 20, 30, 1)).astype(np.int16)
    plain = np.asarray(pictures.image_grid(volumes[:, 2], columns=2, scale=9, look=pictures.Look(900)))
    named = pictures.Look(900, axes="NDHW")
    assert pictures.image_grid(volumes, columns=2, scale=1, look=named).height == 4 + 1 + 20 + 2
    page = np.asarray(pictures.image_grid(volumes, columns=2, scale=9, look=named))
    assert page.shape[0] - plain.shape[0] == 9 * (4 + 1) + 18
    assert np.ptp(page[:18]) > 100


@pytest.mark.parametrize("names", [["a"], ["a", "b", "a"], ["a", "b", "../c"], ["a", "b", "c/d"]])
def test_images_have_as_many_different_names_in_their_folder(tmp_path, names):
    with pytest.raises(ValueError, match="name"):
        pictures.save_images(tmp_path / "images", np.zeros((3, 4, 4, 1), np.uint8), names)
    with pytest.raises(ValueError, match="float64"):
        pictures.save_images(tmp_path / "images", np.zeros((3, 4, 4, 1)))
    assert not (tmp_path / "images").exists()
