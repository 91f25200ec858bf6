"""What other codecs take for the examples of an archive."""

import io
import lzma

import numpy as np
import pytest
from PIL import Image

from axial_transformers.compression.contents import Contents
from axial_transformers.compression.description import Description
from axial_transformers.data.blocks import Blocks
from axial_transformers.data.value_range import BYTES
from axial_transformers.pictures import other_codecs as module
from axial_transformers.pictures.other_codecs import coded_sizes


def sizes_of(arrays):
    return coded_sizes([array.shape[:-1] for array in arrays], arrays.__getitem__, lambda name: iter)


def smooth(*shape: int) -> np.ndarray:
    """Values that change slowly along all axes."""
    return sum(np.indices(shape)) // 3


def png(values: np.ndarray) -> int:
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG", optimize=True)
    return file.tell()


def test_images_are_coded_as_files_and_on_a_sheet():
    images = [smooth(8, 6, 1).astype(np.uint8) + i for i in range(4)]
    found = sizes_of(images)
    assert found["PNG"]["one file each"] == sum(png(image[..., 0]) for image in images)
    rows = [np.hstack([images[i][..., 0], images[i + 1][..., 0]]) for i in (0, 2)]
    assert found["PNG"]["one sheet"] == png(np.vstack(rows))
    assert {"WebP", "xz"} < {*found}


def test_tiles_are_compared_as_the_whole_images_that_they_come_from():
    images = [smooth(7, 5, 1).astype(np.uint8), smooth(3, 9, 1).astype(np.uint8)]
    sizes = [image.shape[:2] for image in images]
    tiles = Blocks(images, (4, 4), BYTES, repeats_edges=True)
    contents = Contents(tiles, Description(images=(("a", "L", 7, 5), ("b", "L", 3, 9))), b"", 0, [])
    assert (len(tiles), contents.values, contents.sizes) == (2 * 2 + 1 * 3, 7 * 5 + 3 * 9, sizes)
    assert coded_sizes(contents.sizes, contents.example, lambda name: iter) == sizes_of(images)


def test_many_files_are_estimated_from_some(monkeypatch):
    images = [smooth(8, 6, 1).astype(np.uint8)] * 10
    whole = sizes_of(images)
    monkeypatch.setattr(module, "MAX_FILES", 4)
    some = sizes_of(images)
    assert some["PNG"]["one file each, from 4 of 10"] == whole["PNG"]["one file each"]
    assert some["PNG"]["one sheet"] == whole["PNG"]["one sheet"]


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
    assert found["xz"]["one stream"] == len(lzma.compress(content, filters=filters))
    assert "PNG" not in found


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
        found = sizes_of([turned[..., None]])["JPEG XL"]
        assert min(found.values()) in either_way


def test_frames_of_several_lengths_keep_their_colours():
    pytest.importorskip("imagecodecs")
    clips = [smooth(frames, 8, 9, 3).astype(np.uint8) for frames in (3, 2)]
    assert {*sizes_of(clips)["JPEG XL"]} == {f"slices along axes {axes}" for axes in ("0 and 1", "0 and 2", "1 and 2")}
