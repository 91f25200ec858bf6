"""Volumes and spectra: three slices, a window of values, heat maps over them; arrays that are read again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from axial_transformers.data import DataConfig, load, save_arrays
from axial_transformers.data.grid import Grid
from axial_transformers.data.scans import read_scan
from axial_transformers.likelihood.outliers import bits_of_outliers, bits_of_scan
from axial_transformers.pictures import Look, display, for_display, image_grid, marks_for_display
from axial_transformers.pictures.completions import completion_sheet
from axial_transformers.pictures.display import BETWEEN
from axial_transformers.pictures.heat_maps import BitsOfExample, heat_colours, heat_map, save_scores, under_examples
from axial_transformers.pictures.saving import require_output, save_examples
from tests.small_models import small_model

SHAPES = [(3, 5, 2), (1, 1, 7), (2, 3, 5, 4), (2, 1, 3, 4, 5)]
DEEP = Look(1000, -300)


def noise(*shape: int, low: int = -300, high: int = 700) -> np.ndarray:
    return np.random.default_rng(0).integers(low, high, shape).astype(np.int16)


def slices_of(volume: np.ndarray, at: tuple[int, ...]) -> np.ndarray:
    """The image [H + 1 + D, W + 1 + D] of a volume [*A], position by position; NaN where there is none."""
    *before, z, y, x = at
    depth, height, width = volume.shape[-3:]
    page = np.full((height + 1 + depth, width + 1 + depth), np.nan)
    for i in range(height):
        for j in range(width):
            page[i, j] = volume[(*before, z, i, j)]
        for k in range(depth):
            page[i, width + 1 + k] = volume[(*before, k, i, x)]
    for k in range(depth):
        for j in range(width):
            page[height + 1 + k, j] = volume[(*before, k, y, j)]
    return page


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at", ["middle", "last"])
def test_a_volume_is_three_slices_through_a_position(shape, at):
    position = tuple(side // 2 if at == "middle" else side - 1 for side in shape)
    look = replace(DEEP, window=(-300, 699), at=None if at == "middle" else position)
    values = noise(2, *shape, 1)
    shown = for_display(values, look)
    for picture, example in zip(shown, values[..., 0]):
        page = slices_of(example, position)
        expected = np.where(np.isnan(page), BETWEEN, np.rint((np.nan_to_num(page) + 300) * (255 / 999)))
        np.testing.assert_array_equal(picture, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_marks_and_heat_lie_on_the_pixels_of_their_positions(shape):
    mask = np.random.default_rng(1).random(shape) < 0.5
    page = slices_of(mask, tuple(side // 2 for side in shape))
    marks = marks_for_display(mask, page.shape[1], DEEP)
    np.testing.assert_array_equal(marks, np.nan_to_num(page).astype(bool))
    heat = heat_colours(10.0 * mask[None, ..., None], DEEP)[0]
    hot, cold = heat[marks].reshape(-1, 4), heat[~marks & ~np.isnan(page)].reshape(-1, 4)
    assert len(np.unique(hot, axis=0)) <= 1
    assert len(np.unique(cold, axis=0)) <= 1
    assert (heat[np.isnan(page)] == [BETWEEN, BETWEEN, BETWEEN, 255]).all()


@pytest.mark.parametrize(
    ("look", "axes", "expected"),
    [
        (Look(), 3, "clip"),
        (Look(257), 3, "volume"),
        (Look(4096, axes="NTHW"), 3, "clip"),
        (Look(axes="NDHW"), 3, "volume"),
        (Look(axes="NTDHW"), 4, "volume"),
        (Look(axes="NTDHW"), 3, "volume"),
        (Look(4096, axes="NTHWC"), 3, "clip"),
        (Look(), 5, "volume"),
        (Look(65536), 2, "neither"),
    ],
)
def test_three_axes_are_a_clip_if_they_have_time_or_8_bits(look, axes, expected):
    assert (look.is_clip(axes), look.is_volume(axes)) == (expected == "clip", expected == "volume")


def test_clips_of_8_bits_stay_strips_of_frames():
    clip = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5, 3), np.uint8)
    np.testing.assert_array_equal(for_display(clip), np.concatenate([*clip.swapaxes(0, 1)], axis=2))


def test_outliers_do_not_darken_deep_values():
    values = noise(1, 40, 40, 1, low=0, high=500)
    values[0, 0, 0] = 30_000
    shown = for_display(values, Look(30_001))
    low, high = np.percentile(values, (0.5, 99.5))
    expected = np.rint(np.clip((values[..., 0] - low) * (255 / (high - low)), 0, 255))
    assert np.abs(shown - expected).max() <= 1
    assert shown.std() > 60
    assert for_display(values // 200, Look(256)).max() == 150  # 8 bits: the whole range, as they are


@pytest.mark.parametrize("shape", [(2, 3, 4, 1), (2, 3, 4, 5, 1), (2, 9, 1), (0, 3, 4, 5, 1)])
def test_constant_and_missing_values_are_shown(shape):
    shown = for_display(np.full(shape, 7, np.int16), Look(1000))
    assert shown.dtype == np.uint8
    assert len(shown) == shape[0]


def test_a_window_cuts_values_below_and_above():
    values = np.array([0, 10, 15, 20, 255], np.uint8).reshape(1, 1, 5, 1)
    assert for_display(values, Look(window=(10, 20))).ravel().tolist() == [0, 0, 128, 255, 255]
    few = Look(5, window=(1, 2))
    assert for_display(np.arange(5).reshape(1, 1, 5, 1), few).ravel().tolist() == [0, 0, 255, 255, 255]


@pytest.mark.parametrize("window", [(2, 1), (1, 1), (float("nan"), 1), (0, float("inf"))])
def test_a_window_that_is_none_is_refused(window):
    with pytest.raises(ValueError, match="window"):
        Look(window=window)


def test_labels_of_voxels_have_a_colour_each():
    shown = for_display(noise(1, 3, 4, 5, 1, low=0, high=5), Look(5, axes="NDHW"))
    assert shown.shape == (1, 8, 9, 3)
    assert 2 <= len(np.unique(shown.reshape(-1, 3), axis=0)) <= 6


@pytest.mark.parametrize("shape", SHAPES)
def test_known_part_completions_and_whole_have_one_window(shape):
    known, mask = noise(1, *shape, 1), np.zeros((*shape, 1), bool)
    sheet = completion_sheet(known, mask | True, known // 4, DEEP, scale=1, strips=False)
    width = sum(shape[-1:]) + 1 + shape[-3]
    left, right = (np.asarray(sheet)[18:, first : first + width] for first in (0, 2 * (width + 1)))
    np.testing.assert_array_equal(left, right)
    middle = np.asarray(sheet)[18:, width + 1 : 2 * width + 1, 0]
    np.testing.assert_array_equal(middle, for_display(known // 4, DEEP.over(known))[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_sheets_of_volumes_are_large_enough_to_see(shape):
    values = noise(5, *shape, 2)
    assert image_grid(values, look=DEEP).width >= 512
    assert under_examples(values, np.ones(values.shape), DEEP).width >= 512


@pytest.mark.parametrize("shape", SHAPES)
def test_heat_maps_go_through_the_position_of_the_most_bits(shape, tmp_path):
    values, bits = noise(*shape, 2), np.zeros((*shape, 2))
    hottest = tuple(side - 1 for side in shape)
    bits[hottest] = 10
    picture = np.asarray(heat_map(values, bits, replace(DEEP, window=(-300, 699))))
    depth, height, width = shape[-3:]
    scale = picture.shape[1] // (width + 1 + depth)
    rows = height + 1 + depth
    plain, over = (picture[top : top + rows * scale : scale] for top in (0, picture.shape[0] - 32 - rows * scale))
    differ = (plain[:, ::scale] != over[:, ::scale]).any(axis=-1)
    assert differ[height - 1, width - 1]
    level = round((int(values[hottest][0]) + 300) * 255 / 999)
    assert plain[height - 1, (width - 1) * scale].tolist() == [level] * 3
    save_scores(None, [{"a": 1}], tmp_path / "maps", [BitsOfExample(0, "0.png", values, bits)], DEEP)
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == ["0001-0.npy", "0001-0.png", "scores.html"]
    stored = np.load(tmp_path / "maps/0001-0.npy")
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored, bits.mean(axis=-1))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize(
    ("shape", "axes", "stored"),
    [
        ((7, 1), None, (4, 7)),
        ((5, 6, 3), None, (4, 5, 6, 3)),
        ((6, 24, 32, 1), None, (4, 6, 24, 32)),
        ((6, 24, 3, 1), None, (4, 6, 24, 3, 1)),  # else it were [N, H, W, C]
        ((9, 9, 7, 1), None, (4, 9, 9, 7, 1)),  # else it could be
        ((2, 3, 4, 5, 1), None, (4, 2, 3, 4, 5, 1)),
        ((9, 9, 7, 1), "NDHW", (4, 9, 9, 7)),
        ((2, 3, 4, 5, 1), "NTDHW", (4, 2, 3, 4, 5)),
        ((5, 6, 3), "NCHW", (4, 3, 5, 6)),
        ((7, 2), "NLC", (4, 7, 2)),
        ((5, 6, 1), "NHWC", (4, 5, 6, 1)),
        ((5, 6, 1), "NTDHW", (4, 5, 6)),  # the axes of another file
    ],
)
def test_arrays_are_written_as_the_data_were_and_read_again(tmp_path, suffix, shape, axes, stored):
    values = noise(4, *shape)
    path = tmp_path / f"a{suffix}"
    save_arrays(path, values, axes=axes)
    found = np.load(path)
    assert (found if suffix == ".npy" else next(iter(found.values()))).shape == stored
    own = axes is not None and len(axes) == len(stored)
    np.testing.assert_array_equal(load(path, DataConfig(axes=axes if own else None), "all").values, values)


def test_arrays_of_another_suffix_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.npz"):
        save_arrays(tmp_path / "a.txt", noise(2, 3, 4, 1))
    assert not list(tmp_path.iterdir())


AFFINE = np.diag([0.5, -0.75, 2.0, 1.0])


def scan_file(path: Path, values: np.ndarray) -> Path:
    """A scan with a geometry of its own, or a TIFF file."""
    if path.suffix == ".tif":
        pytest.importorskip("tifffile").imwrite(path, values, photometric="minisblack", metadata={"axes": "ZYX"})
    else:
        nibabel = pytest.importorskip("nibabel")
        nibabel.save(nibabel.Nifti1Image(values.T, AFFINE), path)
    return path


@pytest.mark.parametrize(
    ("file", "outputs"), [("a.nii", ("b.nii", "b.nii.gz")), ("a.nii.gz", ("b.nii.gz",)), ("a.tif", ("b.tif",))]
)
@pytest.mark.parametrize("count", [1, 2])
def test_scans_are_written_with_the_geometry_of_the_data(tmp_path, file, outputs, count):
    like = read_scan(scan_file(tmp_path / file, noise(3, 5, 2)))
    values = noise(count, 3, 4, 5, 1)
    for output in outputs:
        require_output(tmp_path / output, clips=False, scan=like)
        save_examples(tmp_path / output, values, DEEP, scan=like)
        again = read_scan(tmp_path / output)
        np.testing.assert_array_equal(again.values, values[0, ..., 0] if count == 1 else values[..., 0])
        if like.header:
            assert pytest.importorskip("nibabel").load(tmp_path / output).affine.tolist() == AFFINE.tolist()
        with pytest.raises(FileExistsError):
            save_examples(tmp_path / output, values, DEEP, scan=like)
    other = tmp_path / ("c.tif" if like.header else "c.nii")
    save_examples(other, values, DEEP, scan=like)
    np.testing.assert_array_equal(read_scan(other).values, read_scan(tmp_path / outputs[0]).values)
    with pytest.raises(ValueError, match=r"\.nii\.gz"):
        require_output(tmp_path / "c.dcm", clips=False, scan=like)
    with pytest.raises(ValueError, match="none"):
        require_output(tmp_path / outputs[0], clips=False)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("file", ["a.nii.gz", "a.tif"])
def test_bits_of_a_scan_are_a_scan(tmp_path, file):
    values, bits = noise(3, 5, 2, 1), np.random.default_rng(1).random((3, 5, 2, 1))
    like = replace(read_scan(scan_file(tmp_path / file, noise(3, 5, 2))), values=bits[..., 0])
    save_scores(None, [{"a": 1}], tmp_path / "maps", [BitsOfExample(0, f"{file}#0,0,0", values, bits)], DEEP, like)
    again = read_scan(tmp_path / "maps" / f"0001-a#0,0,0{like.suffix}")
    assert (again.values.dtype, again.scale, again.offset) == (np.float32, 1, 0)
    np.testing.assert_array_equal(again.values, bits[..., 0].astype(np.float32))
    np.testing.assert_array_equal(read_scan(tmp_path / "maps" / f"bits{like.suffix}").values, bits[..., 0])


@pytest.mark.parametrize(("shape", "block"), [((6, 9, 8), (2, 4, 4)), ((3, 6, 9, 8), (2, 4, 4)), ((6, 9, 8), (4, 4))])
@pytest.mark.parametrize("kind", ["Nifti1Image", "Nifti2Image"])
@pytest.mark.parametrize("codes", [(1, 2), (0, 3), (4, 0)])
def test_maps_of_blocks_lie_where_they_are_in_the_scan(tmp_path, shape, block, kind, codes):
    nibabel = pytest.importorskip("nibabel")
    affine = np.array([[2.0, 0, 0, -90], [0, 0, 3, -126], [0, -4, 0, -72], [0, 0, 0, 1]])
    image = getattr(nibabel, kind)(noise(*shape, low=0, high=5).T, affine)
    image.set_sform(affine, codes[0])
    image.set_qform(affine, codes[1])
    image.to_filename(tmp_path / "a#1.nii")
    scan = read_scan(tmp_path / "a#1.nii")
    model = small_model(block)
    examples = load(tmp_path / "a#1.nii", DataConfig(size=block), "all")
    whole = bits_of_scan(model, examples, scan, batch_size=5)
    maps = [*bits_of_outliers(model, examples, [7, 0, 11], examples)]
    save_scores(None, [{"a": 1}] * 12, tmp_path / "maps", maps, Look.of(model.config, None), whole)
    all_bits, written = nibabel.load(tmp_path / "maps" / "bits.nii"), sorted((tmp_path / "maps").glob("0*.nii"))
    assert np.allclose(all_bits.affine, affine, atol=1e-4)
    assert all_bits.shape == shape[::-1]
    covered = np.isfinite(all_bits.get_fdata())
    assert covered.sum() == len(examples) * np.prod(block)
    assert len(written) == len(maps)
    for path in written:
        found = nibabel.load(path)
        assert [int(found.header[code]) for code in ("sform_code", "qform_code")] == [*codes]
        for place in np.ndindex(*found.shape[:3]):
            point = nibabel.affines.apply_affine(found.affine, np.pad(place, (0, 3 - len(place))))
            at = np.rint(nibabel.affines.apply_affine(np.linalg.inv(affine), point)).astype(int)
            assert np.any(np.isclose(all_bits.dataobj[tuple(at)], found.dataobj[place], atol=1e-5))


def test_bytes_of_a_small_range_are_not_shown_almost_black():
    values = np.random.default_rng(0).integers(0, 17, (3, 8, 8, 1)).astype(np.uint8)
    np.testing.assert_array_equal(for_display(values), for_display(values, Look(17)))
    assert for_display(values).max() == 255
    spread = (values.astype(int) * 15).astype(np.uint8)
    np.testing.assert_array_equal(for_display(spread), spread[..., 0])


def test_files_of_samples_hold_bytes_as_they_are(tmp_path):
    values = np.random.default_rng(0).integers(0, 17, (3, 8, 8, 1)).astype(np.uint8)
    save_examples(tmp_path / "folder", values, Look())
    np.testing.assert_array_equal(load(tmp_path / "folder", split="all").values, values)


def test_line_plots_of_floats_have_floats_at_their_axis(monkeypatch):
    labels = []
    monkeypatch.setattr(display, "line_plots", lambda levels, *ends: labels.extend(ends))
    for_display(noise(2, 9, 1, low=-200, high=201), Look(402, -200, grid=Grid(0.1, 0.0)))
    assert labels == ["-20", "20.1"]
