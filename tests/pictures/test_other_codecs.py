"""What other codecs take for the examples of an archive."""

import io
import lzma
import sys
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from axial_transformers.compression.contents import Contents
from axial_transformers.compression.description import Description
from axial_transformers.data.blocks import Blocks
from axial_transformers.data.value_range import BYTES
from axial_transformers.pictures import other_codecs as module
from axial_transformers.pictures.other_codecs import QUICK, SLOW, Coded, coded_sizes, sheet, verdict
from axial_transformers.progress import silent


def sizes_of(arrays) -> dict[str, int]:
    return {coded.name: coded.bytes for coded in coded_sizes(arrays, silent)}


def smooth(*shape: int) -> np.ndarray:
    """Values that change slowly along all axes."""
    return sum(np.indices(shape)) // 3


def png(values: np.ndarray) -> int:
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG", optimize=True)
    return file.tell()


def count_values_for_jpeg_xl(monkeypatch) -> list[tuple[int, int]]:
    """Let JPEG XL take 100 bytes a value by effort 9, and 90 by effort 10; return efforts and values of its calls."""
    calls = []

    def encode(image, lossless, effort, numthreads):
        assert (lossless, numthreads) == (True, 1)
        calls.append((effort, image.size))
        return bytes(image.size * (100 if effort == 9 else 90))

    fake = ModuleType("imagecodecs")
    fake.jpegxl_encode = encode
    monkeypatch.setitem(sys.modules, "imagecodecs", fake)
    return calls


def test_images_are_coded_as_files_and_on_a_sheet():
    images = [smooth(8, 6, 1).astype(np.uint8) + i for i in range(4)]
    found = sizes_of(images)
    assert found["PNG, one file each"] == sum(png(image[..., 0]) for image in images)
    rows = [np.hstack([images[i][..., 0], images[i + 1][..., 0]]) for i in (0, 2)]
    assert found["PNG, one sheet"] == png(np.vstack(rows))
    assert {"WebP, one file each", "WebP, one sheet", "xz, one stream"} < {*found}


def test_tiles_are_compared_as_the_whole_images_that_they_come_from():
    images = [smooth(7, 5, 1).astype(np.uint8), smooth(3, 9, 1).astype(np.uint8)]
    tiles = Blocks(images, (4, 4), BYTES, repeats_edges=True)
    contents = Contents(tiles, Description(images=(("a", "L", 7, 5), ("b", "L", 3, 9))), b"", 0, [])
    assert (len(tiles), contents.values) == (2 * 2 + 1 * 3, 7 * 5 + 3 * 9)
    for example, image in zip(contents.examples(), images, strict=True):
        assert np.array_equal(example, image)


@pytest.mark.parametrize("shapes", [[(4, 6)] * 7, [(4, 6), (9, 2), (5, 5), (1, 1), (4, 2)], [(3, 4, 3), (5, 2, 3)]])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_sheet_holds_all_values_and_else_zeros(shapes, dtype):
    highest = np.iinfo(dtype).max
    images = [np.random.default_rng(i).integers(1, highest, shape, dtype, True) for i, shape in enumerate(shapes)]
    made = sheet(images)
    assert made.dtype == dtype
    values = np.concatenate([image.ravel() for image in images])
    assert np.array_equal(np.sort(made[made > 0]), np.sort(values))
    for image in images:
        windows = np.lib.stride_tricks.sliding_window_view(made, image.shape)
        assert (windows == image).all(axis=tuple(range(-image.ndim, 0))).any()


@pytest.mark.parametrize(("count", "shape"), [(1, (4, 6)), (3, (12, 6)), (40, (32, 30)), (47, (32, 36))])
def test_a_sheet_is_about_square_and_leaves_few_gaps(count, shape):
    assert sheet([np.ones((4, 6), np.uint8)] * count).shape == shape


def test_many_files_are_estimated_from_some(monkeypatch):
    images = [smooth(8, 6, 1).astype(np.uint8)] * 10
    whole = sizes_of(images)
    monkeypatch.setattr(module, "MAX_FILES", 4)
    some = sizes_of(images)
    assert some["PNG, one file each, from 192 of 480 values"] == whole["PNG, one file each"]
    assert some["PNG, one sheet"] == whole["PNG, one sheet"]


def test_a_sheet_of_many_values_is_estimated_from_some_images(monkeypatch):
    monkeypatch.setattr(module, "MAX_VALUES", 200)
    images = [smooth(8, 6, 1).astype(np.uint8)] * 10
    name = "PNG, one sheet, from 192 of 480 values"
    assert sizes_of(images)[name] == round(png(sheet([image[..., 0] for image in images[:4]])) * 10 / 4)


@pytest.mark.parametrize(("rows", "count"), [(4, 100), (150, 20)])
def test_effort_10_codes_a_bounded_number_of_values(monkeypatch, rows, count):
    """What it saves on some counts for all; also where one image alone has more values than it codes."""
    calls = count_values_for_jpeg_xl(monkeypatch)
    monkeypatch.setattr(module, "MAX_SLOW", 600)
    images = [smooth(rows, 6, 1).astype(np.uint8)] * count
    found = sizes_of(images)
    values = rows * 6 * count
    coded = {values for effort, values in calls if effort == 10}
    assert coded
    assert max(coded) <= 600
    for way in ("one file each", "one sheet"):
        (slow,) = (name for name in found if name.startswith(f"{SLOW}, {way}, from "))
        assert slow.endswith(f" of {values:,} values")
        assert found[f"{QUICK}, {way}"] == 100 * values
        assert found[slow] == 90 * values


def test_a_codec_that_is_missing_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    monkeypatch.setitem(sys.modules, "tomoz", None)
    images = [smooth(8, 6, 3).astype(np.uint8)] * 2
    assert {name.split(",")[0] for name in sizes_of(images)} == {"PNG", "WebP", "xz"}
    assert {*sizes_of([smooth(4, 5, 6, 1)])} == {"xz, one stream"}


def test_without_extras_the_sizes_do_not_depend_on_what_is_installed(monkeypatch):
    calls = count_values_for_jpeg_xl(monkeypatch)
    images = [smooth(8, 6, 3).astype(np.uint8)] * 2
    made = coded_sizes(images, silent, extras=False)
    assert {coded.codec for coded in made} == {"PNG", "WebP", "xz"}
    assert {coded.codec for coded in coded_sizes([smooth(4, 5, 6, 1)], silent, extras=False)} == {"xz"}
    assert not calls


@pytest.mark.parametrize(
    ("shape", "lowest", "dtype"),
    [
        ((30, 1), 0, np.uint8),
        ((4, 5, 6, 1), -300, np.uint16),
        ((2, 3, 4, 5, 2), 0, np.uint8),
        ((6, 7, 1), 0, np.uint32),
    ],
)
def test_arrays_are_one_stream_of_the_fewest_bytes(shape, lowest, dtype):
    values = smooth(*shape) + lowest
    values.reshape(-1)[0] = lowest + np.iinfo(dtype).max
    values = np.stack([values, values])
    found = sizes_of(values)
    content = (values - lowest).astype(dtype).tobytes()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": max(len(content), 4096)}]
    assert found["xz, one stream"] == len(lzma.compress(content, filters=filters))
    assert not any(name.startswith("PNG") for name in found)


def test_slices_are_along_the_axes_that_take_the_fewest_bytes():
    codecs = pytest.importorskip("imagecodecs")
    noise = np.random.default_rng(0).integers(0, 999, (5, 1, 1))
    volume = (noise + 7 * smooth(1, 40, 50)).astype(np.uint16)

    def bytes_of(planes):
        contiguous = map(np.ascontiguousarray, planes)
        return sum(len(codecs.jpegxl_encode(plane, lossless=True, effort=9, numthreads=1)) for plane in contiguous)

    either_way = {bytes_of(volume), bytes_of(volume.transpose(0, 2, 1))}  # a plane may be turned by 90 degrees
    for axes in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
        turned = np.ascontiguousarray(volume.transpose(axes))
        made = coded_sizes([turned[..., None]], silent)
        (apart,) = (coded for coded in made if coded.codec == QUICK and coded.apart)
        assert apart.bytes in either_way
        first, second = (1 + axis for axis in range(3) if axes[axis] != 0)
        assert apart.way == f"slices along axes {first} and {second}"


def test_slices_are_coded_as_a_mosaic_too(monkeypatch):
    calls = count_values_for_jpeg_xl(monkeypatch)
    volume = (300 * smooth(6, 4, 5, 1)).astype(np.uint16)
    found = sizes_of([volume])
    assert found[f"{QUICK}, mosaic of slices along axes 1 and 2"] == 100 * volume.size
    assert calls.count((9, volume.size)) == 3
    assert calls.count((10, volume.size)) == 1


def test_frames_of_several_lengths_keep_their_colours(monkeypatch):
    calls = count_values_for_jpeg_xl(monkeypatch)
    clips = [smooth(frames, 8, 9, 3).astype(np.uint8) for frames in (3, 2)]
    found = sizes_of(clips)
    assert f"{SLOW}, mosaic of slices along axes 0 and 1" in found
    assert {8 * 9 * 3, 2 * 9 * 3, 3 * 8 * 3} < {size for _, size in calls}


@pytest.mark.parametrize(
    ("shapes", "volumes"),
    [
        ([(4, 5, 6, 1)], [(4, 5, 6)]),
        ([(4, 5, 6, 2)], [(4, 5, 6)] * 2),
        ([(2, 4, 5, 6, 1)], [(4, 5, 6)] * 2),
        ([(4, 5, 6, 1), (3, 5, 6, 1)], [(4, 5, 6), (3, 5, 6)]),
        ([(5, 6, 1)] * 4, [(4, 5, 6)]),
        ([(5, 6, 1)], []),
    ],
)
def test_tomoz_codes_all_values_as_volumes(monkeypatch, shapes, volumes):
    given = []

    def encode(volume, threads):
        assert threads == 1
        assert volume.flags.c_contiguous
        assert volume.dtype == np.uint16
        given.append(volume.copy())
        return bytes(volume.size)

    fake = ModuleType("tomoz")
    fake.encode = encode
    monkeypatch.setitem(sys.modules, "tomoz", fake)
    arrays = [np.random.default_rng(i).integers(0, 1 << 16, shape, np.uint16) for i, shape in enumerate(shapes)]
    found = sizes_of(arrays)
    assert [volume.shape for volume in given] == volumes
    if volumes:
        assert found["Tomoz, volumes"] == sum(array.size for array in arrays)
        assert sorted(np.concatenate([volume.ravel() for volume in given])) == sorted(
            np.concatenate([array.ravel() for array in arrays])
        )


def test_tomoz_codes_real_volumes():
    tomoz = pytest.importorskip("tomoz")
    volume = (300 * smooth(6, 40, 50, 1)).astype(np.uint16)
    assert sizes_of([volume])["Tomoz, volumes"] == len(tomoz.encode(volume[..., 0]))


def test_the_verdict_compares_with_the_best_of_files_and_of_all_in_one():
    others = [
        Coded("PNG", "one file each", 2000, 1.0, apart=True),
        Coded("WebP", "one file each", 1000, 1.0, apart=True),
        Coded("xz", "one stream", 900, 1.0),
        Coded("WebP", "one sheet", 800, 1.0),
    ]
    assert verdict(900, others) == "10.0 % below one file each (WebP), 12.5 % above one sheet (WebP)"
    assert verdict(900, others[2:3]) == "0.0 % above one stream (xz)"
