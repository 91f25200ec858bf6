"""Folders of images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from hypothesis import given, strategies as st
from PIL import Image, PngImagePlugin

from axial_transformers import data
from axial_transformers.data import DataConfig, EmptySplitError
from axial_transformers.data.images import read_mask
from tests.shard_writer import deep_png


def _pixels(seed: int = 0, height: int = 6, width: int = 6, channels: int = 3) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels)).astype(np.uint8)
    return pixels if channels > 1 else pixels[..., 0]


def _save(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.mark.parametrize(
    ("suffix", "options"), [("png", {}), ("BMP", {}), ("tiff", {}), ("webp", {"lossless": True}), ("ppm", {})]
)
def test_lossless_formats_are_read_exactly(tmp_path, suffix, options):
    _save(tmp_path / f"a.{suffix}", _pixels(), **options)
    np.testing.assert_array_equal(data.load(tmp_path, split="all").values, _pixels()[None])
    with pytest.raises(ValueError, match=r"^data\.num_values"):
        data.load(tmp_path, DataConfig(num_values=2), "all")


def test_order_is_that_of_relative_paths(tmp_path):
    for i, name in enumerate(["b/1.png", "a/2.png", "a/10.png", "c.png"]):
        _save(tmp_path / name, np.full((2, 2), i, np.uint8))
    (tmp_path / "README.txt").write_text("not an image")
    _save(tmp_path / ".hidden" / "x.png", _pixels())
    beside = "^1 file beside sub-folders: no example has a class"
    with pytest.warns(UserWarning, match=beside):
        examples = data.load(tmp_path, split="all")
    assert examples.names == ["a/10.png", "a/2.png", "b/1.png", "c.png"]
    assert examples.values[:, 0, 0, 0].tolist() == [2, 1, 0, 3]
    assert examples.labels is None  # one lies in no class


def test_sub_folders_are_classes_and_splits(tmp_path):
    for part, count in [("train", 30), ("val", 3), ("test_2x2", 2)]:
        for i in range(count):
            for name in ("dog", "cat"):
                _save(tmp_path / part / name / f"{i}.png", np.full((2, 2), i, np.uint8))
    assert [len(data.load(tmp_path, split=split)) for split in ("train", "validation", "test", "all")] == [60, 6, 4, 70]
    test = data.load(tmp_path, split="test")
    assert test.class_names == ("cat", "dog")
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert test.names[0] == "test_2x2/cat/0.png"
    _save(tmp_path / "beside.png", np.full((2, 2), 1, np.uint8))
    with pytest.raises(ValueError, match=r"beside\.png"):
        data.load(tmp_path)


def test_a_train_folder_without_validation_is_divided(tmp_path):
    for i in range(40):
        _save(tmp_path / "train_32x32" / f"{i}.png", np.full((2, 2), i, np.uint8))
    for folder in (tmp_path, tmp_path / "train_32x32"):
        validation, train = data.load(folder, split="validation"), data.load(folder)
        assert 0 < len(validation) < len(train) < 40
    names = data.load(tmp_path).names + data.load(tmp_path, split="validation").names
    assert sorted(names) == data.load(tmp_path, split="all").names
    with pytest.raises(EmptySplitError, match="test"):
        data.load(tmp_path, split="test")


def test_further_images_move_none_between_splits(tmp_path):
    for i in range(0, 60, 2):
        _save(tmp_path / f"{i}.png", np.full((2, 2), i, np.uint8))
    before = {split: set(data.load(tmp_path, split=split).names) for split in ("train", "validation", "test")}
    assert len(set.union(*before.values())) == sum(map(len, before.values())) == 30
    for i in range(1, 60, 2):
        _save(tmp_path / f"{i}.png", np.full((2, 2), i, np.uint8))
    for split, names in before.items():
        assert names < set(data.load(tmp_path, split=split).names)
    other = data.load(tmp_path, DataConfig(seed=1), split="validation")
    assert set(other.names) != set(data.load(tmp_path, split="validation").names)


@given(st.integers(1, 4), st.integers(4, 11), st.integers(4, 11))
def test_tiles_are_the_crops_of_their_names(tmp_path_factory, size, height, width):
    folder = tmp_path_factory.mktemp("tiles")
    pixels = _pixels(1, height, width)
    _save(folder / "a.png", pixels)
    examples = data.load(folder, DataConfig(size=size, cut="tiles"), split="all")
    assert len(examples) == (height // size) * (width // size)
    for tile, name in zip(examples.values[:], examples.names):
        row, column = (int(number) * size for number in name.removeprefix("a.png#").split(","))
        np.testing.assert_array_equal(tile, pixels[row : row + size, column : column + size])


def test_crop_takes_the_centre_and_stretch_takes_all(tmp_path):
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, 4:8] = 255
    _save(tmp_path / "a.png", pixels)
    assert data.load(tmp_path, DataConfig(size=4, cut="crop"), "all").values.min() == 255
    stretched = data.load(tmp_path, DataConfig(size=4, cut="stretch"), "all").values
    assert stretched.shape == (1, 4, 4, 3)
    assert stretched.min() < 30


def test_mode_follows_the_images_unless_told(tmp_path):
    _save(tmp_path / "a.png", _pixels(channels=1))
    assert data.load(tmp_path, split="all").channels == 1
    assert data.load(tmp_path, DataConfig(mode="rgb"), "all").channels == 3
    _save(tmp_path / "b.png", _pixels())
    assert data.load(tmp_path, split="all").channels == 3
    assert data.load(tmp_path, DataConfig(mode="gray"), "all").channels == 1


def test_palette_bilevel_cmyk_and_opaque_alpha_are_converted_as_a_line_says(tmp_path):
    _save(tmp_path / "opaque.png", np.concatenate([_pixels(), np.full((6, 6, 1), 255, np.uint8)], -1))
    Image.fromarray(np.full((6, 6, 3), 80, np.uint8)).quantize(4).save(tmp_path / "palette.png")
    Image.fromarray(_pixels(channels=1)).convert("1").save(tmp_path / "two.png")
    for i in range(2):
        Image.new("CMYK", (6, 6), (i, 0, 0, 0)).save(tmp_path / f"printed{i}.tif")
    with pytest.warns(UserWarning, match="CMYK") as said:
        opaque, palette, printed, cyan, two = data.load(tmp_path, split="all").values
    assert len({str(each.message) for each in said}) == 1
    np.testing.assert_array_equal(opaque, _pixels())
    assert (palette == 80).all()
    assert (printed == 255).all()
    assert cyan[0, 0].tolist() == [254, 255, 255]
    assert {*np.unique(two)} == {0, 255}
    (tmp_path / "a.png").write_bytes(deep_png(0, 1, bits=4))
    with pytest.warns(UserWarning, match="2 or 4 bits"):
        gray = data.load(tmp_path / "a.png", split="all").values
    assert gray.shape == (1, 3, 5, 1)
    assert {*gray.ravel() % 17} == {0}


UPRIGHT = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: np.rot90(pixels),
}
"""The picture that a value of EXIF's Orientation stands for: where the first stored row and column are to be seen."""


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_exif_orientation_is_applied_to_pixels_and_sizes(tmp_path, suffix):
    pixels = _pixels(0, 4, 6)
    for orientation, upright in UPRIGHT.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        _save(tmp_path / f"a.{suffix}", pixels, exif=exif)
        np.testing.assert_array_equal(data.load(tmp_path, split="all").values[0], upright(pixels))
        assert data.open_source(tmp_path).example_axes == ("", [upright(pixels).shape[1::-1]])


XMP = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="{}"/></rdf:RDF></x:xmpmeta>"""


@pytest.mark.parametrize("suffix", ["png", "webp", "tif"])
def test_orientation_of_xmp_is_applied_to_pixels_and_sizes(tmp_path, suffix):
    pixels = _pixels(0, 4, 6)
    for orientation, upright in UPRIGHT.items():
        text, chunk = XMP.format(orientation), PngImagePlugin.PngInfo()
        chunk.add_itxt("XML:com.adobe.xmp", text)
        of_tiff = {"tiffinfo": {700: text.encode()}}
        options = {"png": {"pnginfo": chunk}, "webp": {"xmp": text.encode(), "lossless": True}, "tif": of_tiff}
        _save(tmp_path / f"a.{suffix}", pixels, **options[suffix])
        np.testing.assert_array_equal(data.load(tmp_path, split="all").values[0], upright(pixels))
        assert data.open_source(tmp_path).example_axes == ("", [upright(pixels).shape[1::-1]])


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_16_bit_gray_is_read_whole_with_the_values_of_the_training_part(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 65536, (5, 7)).astype(np.uint16)
    pixels[0, :2] = 0, 65535
    path = _save(tmp_path / f"a.{suffix}", pixels)
    examples = data.load(path, split="all")
    assert (examples.range, str(examples.values.dtype)) == ((0, 65535, None), "uint16")
    np.testing.assert_array_equal(examples.values[0, ..., 0], pixels)
    assert data.load(path, DataConfig(size=4, cut="stretch"), "all").values.shape == (1, 4, 4, 1)
    for i in range(4):
        _save(tmp_path / "b" / f"{'train' if i < 3 else 'test'}/{i}.png", np.full((4, 4), 1000 + 10 * i, np.uint16))
    train, test = (data.load(tmp_path / "b", DataConfig(validation_fraction=0), part) for part in ("train", "test"))
    assert (train.range, test.range) == ((1000, 1020, None), (1030, 1031, None))
    forced = data.load(tmp_path / "b", DataConfig(num_values=4096, size=2, cut="tiles", offsets="random"))
    assert (forced.range, str(forced.values.dtype)) == ((0, 4095, None), "int16")


def test_16_bit_colour_is_refused_rather_than_rounded(tmp_path):
    kinds = {f"{kind}.png": deep_png(kind, channels) for kind, channels in ((2, 3), (4, 2), (6, 4))}
    for name, content in {**kinds, "deep.ppm": b"P6 5 3 65535\n" + bytes(90)}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} .*16 bits"):
            data.load(tmp_path / name, split="all")


@pytest.mark.parametrize("maxval", [1, 100, 255, 256, 4095, 65535])
@pytest.mark.parametrize("plain", [False, True])
def test_numbers_of_a_pgm_are_those_stored_whatever_its_highest(tmp_path, maxval, plain):
    deep = np.uint16 if maxval > 255 else np.uint8
    pixels = np.linspace(0, maxval, 3000).round().astype(deep).reshape(50, 60)
    stored = (
        " ".join(map(str, pixels.ravel())).encode()
        if plain
        else pixels.astype(np.dtype(deep).newbyteorder(">")).tobytes()
    )
    (tmp_path / "a.b.pgm").write_bytes(f"{'P2' if plain else 'P5'} 60 50 {maxval}\n".encode() + stored)
    examples = data.load(tmp_path, split="all")
    np.testing.assert_array_equal(examples.values[0, ..., 0], pixels)
    if maxval < 256:
        (tmp_path / "a.b.pgm").unlink()
        (tmp_path / "c.d.ppm").write_bytes(f"P6 60 50 {maxval}\n".encode() + pixels.repeat(3).tobytes())
        np.testing.assert_array_equal(data.load(tmp_path, split="all").values[0], pixels[..., None].repeat(3, -1))


@pytest.mark.parametrize(("suffix", "bits"), [("png", 8), ("png", 4), ("gif", 8), ("bmp", 8), ("tif", 8)])
def test_indices_of_a_palette_are_read_on_request(tmp_path, suffix, bits):
    indices = np.random.default_rng(0).integers(0, 13, (6, 7)).astype(np.uint8)
    colours = np.random.default_rng(1).integers(0, 256, (13, 3)).astype(np.uint8)
    picture = Image.fromarray(indices)
    picture.putpalette(colours.tobytes())
    picture.save(tmp_path / f"labels.v2.{suffix}", **({"bits": bits} if suffix == "png" else {}))
    np.testing.assert_array_equal(data.load(tmp_path, split="all").values[0], colours[indices])
    wanted = DataConfig(palette="indices")
    np.testing.assert_array_equal(data.load(tmp_path, wanted, "all").values[0, ..., 0], indices)
    larger = data.load(tmp_path, replace(wanted, size=12, cut="stretch"), "all").values
    assert {*np.unique(larger)} <= {*np.unique(indices)}
    _save(tmp_path / "gray.png", indices)
    assert data.load(tmp_path, wanted, "all").values.shape == (2, 6, 7, 1)
    _save(tmp_path / "colour.png", _pixels(0, 6, 7))
    with pytest.raises(ValueError, match=r"labels\.v2\.\w+ .*palette"):
        data.load(tmp_path, replace(wanted, skip_bad=0), "all")


def _damage(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:60])
    return path


def test_all_files_of_a_split_that_cannot_be_read_are_named_at_once(tmp_path):
    for i in range(12):
        for part in ("train", "validation", "test"):
            _save(tmp_path / part / f"{i}.png", _pixels(i))
    frames = [Image.fromarray(_pixels(i)) for i in range(2)]
    for name in ("07 moving.gif", "08 pages.tif"):
        frames[0].save(tmp_path / "train" / name, save_all=True, append_images=frames[1:])
    bands = {"photometric": "rgb", "extrasamples": [0, 0]}
    tifffile.imwrite(tmp_path / "train" / "09 bands.tif", np.zeros((6, 6, 5), np.uint8), **bands)
    _damage(tmp_path / "train" / "5.png")
    with pytest.raises(ValueError, match=r"07.*09") as caught:
        data.load(tmp_path, DataConfig(skip_bad=0))
    faults = (
        "moving.gif holds several images",
        "pages.tif holds several images",
        "bands.tif has 5 bands, or signed values, as no picture: alone, it is read as a scan",
        "5.png is not a whole image",
    )
    said = str(caught.value).split("; ")
    assert [fault in line for fault, line in zip(faults, said, strict=True)] == [True] * 4
    for i in range(12):
        _damage(tmp_path / "test" / f"{i}.png")
    with pytest.raises(ValueError, match=r"0\.png .* 7 more") as caught:
        data.load(tmp_path, split="test")
    assert not isinstance(caught.value, EmptySplitError)
    _save(tmp_path / "validation" / "1.png", _pixels(height=5))
    with pytest.raises(ValueError, match=r"0\.png .*6, 6, 3.*1\.png .*5, 6, 3"):
        data.load(tmp_path, split="validation")


def test_images_of_8_and_of_16_bits_do_not_mix(tmp_path):
    _save(tmp_path / "a.png", _pixels(channels=1))
    _save(tmp_path / "b.png", _pixels(channels=1).astype(np.uint16))
    with pytest.raises(ValueError, match=r"b\.png .*16 bits.*=1 leaves"):
        data.load(tmp_path, split="all")
    _save(tmp_path / "c.png", _pixels(channels=1).astype(np.uint16))
    with pytest.warns(UserWarning, match=r"1 of 3 .*a\.png .*8 bits"):
        assert data.load(tmp_path, DataConfig(skip_bad=1), "all").names == ["b.png", "c.png"]


def test_where_an_image_has_alpha_the_others_are_opaque_and_a_background_flattens_all(tmp_path):
    colours, alpha = _pixels(), np.arange(36, dtype=np.uint8).reshape(6, 6, 1)
    for i, pixels in enumerate((colours, np.concatenate([colours, alpha], axis=-1), _pixels(channels=1))):
        _save(tmp_path / f"{i}.png", pixels)
    plain, clear, gray = data.load(tmp_path, split="all").values
    assert np.array_equal(plain[..., :3], colours)
    assert np.array_equal(clear, np.concatenate([colours, alpha], axis=-1))
    assert np.array_equal(gray[..., 2], _pixels(channels=1))
    assert (np.stack([plain, gray])[..., 3] == 255).all()
    plain, clear, _ = data.load(tmp_path, DataConfig(background="white"), split="all").values
    assert np.array_equal(plain, colours)
    assert np.abs(clear - (255 - (255.0 - colours) * alpha / 255)).max() <= 1
    with pytest.raises(ValueError, match=r"1\.png .*data\.background"):
        data.load(tmp_path, DataConfig(mode="rgb", skip_bad=0), split="all")


def test_links_to_folders_hidden_and_empty_ones_are_left_out_in_one_line(tmp_path):
    _save(tmp_path / "elsewhere" / "0.png", _pixels())
    source = tmp_path / "source"
    for name in ("a.png", ".b.png", "cats/.hidden/c.png"):
        _save(source / name, _pixels())
    (source / "empty").mkdir()
    (source / "link.png").symlink_to(tmp_path / "elsewhere" / "0.png")
    (source / "folder").symlink_to(tmp_path / "elsewhere")
    (source / "gone.png").symlink_to("nothing.png")
    with pytest.warns(UserWarning, match="left out: ") as said:
        assert data.load(source, split="all").names == ["a.png", "link.png"]
    assert [str(warning.message).partition(" in ")[0] for warning in said] == [
        "left out: 1 broken link, 1 empty folder, 2 hidden names, 1 linked folder"
    ]


@pytest.mark.filterwarnings("default:the (validation|test) part")
def test_small_splits_are_warned_of(tmp_path, recwarn):
    for part, count in (("train", 2), ("validation", 7), ("test", 8)):
        for i in range(count):
            _save(tmp_path / part / f"{i}.png", _pixels(i))
        data.load(tmp_path, split=part)
    (line,) = (str(each.message) for each in recwarn)
    assert line.startswith(f"the validation part of {tmp_path} has only 7 examples")


def test_one_picture_is_a_source_of_no_split(tmp_path):
    path = _save(tmp_path / "test.png", _pixels())
    assert data.load(path, split="all").names == ["test.png"]
    assert len(data.load(path, DataConfig(size=2, cut="tiles"), "all")) == 9
    with pytest.raises(ValueError, match="train"):
        data.load(path)
    with pytest.raises(ValueError, match=r"test\.png"):
        data.load(_damage(path), split="all")


HALF = np.zeros((6, 4), np.uint8)
HALF[:3] = 255
MASKS = {
    "white on black": HALF, "one": HALF // 255, "16 bits": (HALF // 255).astype(np.uint16) * 3,
    "a colour": np.dstack([HALF * 0, HALF // 255, HALF * 0]),
    "alpha over black": np.dstack([HALF * 0] * 3 + [HALF]),
    "alpha over white": np.dstack([HALF * 0 + 255] * 3 + [HALF]),
    "gray and alpha": np.dstack([HALF * 0, HALF]), "opaque alpha": np.dstack([HALF] * 3 + [HALF * 0 + 255]),
}  # fmt: skip


@pytest.mark.parametrize("pixels", MASKS.values(), ids=MASKS)
def test_a_mask_keeps_what_is_opaque_or_else_not_black(tmp_path, recwarn, pixels):
    Image.fromarray(pixels).save(tmp_path / "m.png")
    assert np.array_equal(read_mask(tmp_path / "m.png"), HALF > 0)
    assert not recwarn


def test_masks_of_palettes_and_two_colours_keep_what_is_not_black(tmp_path):
    palette = Image.fromarray(HALF // 255).convert("P")
    palette.putpalette([255, 255, 255, 0, 0, 0])
    palette.save(tmp_path / "p.png")
    Image.fromarray(HALF).convert("1").save(tmp_path / "two.png")
    assert np.array_equal(read_mask(tmp_path / "p.png"), HALF == 0)
    assert np.array_equal(read_mask(tmp_path / "two.png"), HALF > 0)


@pytest.mark.parametrize(("value", "said"), [(0, "marks nothing as known"), (255, "marks everything as known")])
def test_a_mask_of_nothing_or_everything_is_said(tmp_path, value, said):
    Image.new("L", (4, 6), value).save(tmp_path / "m.png")
    np.save(tmp_path / "m.npy", np.full((6, 4), value > 0))
    for name in ("m.png", "m.npy"):
        with pytest.warns(UserWarning, match=said):
            assert read_mask(tmp_path / name).all() == bool(value)


def test_shades_of_a_mask_are_said(tmp_path, recwarn):
    for name, values in (("plain", [0, 255]), ("soft", [0, 3, 255])):
        Image.fromarray(np.resize(np.uint8(values), (3, 4))).save(tmp_path / f"{name}.png")
        assert np.array_equal(read_mask(tmp_path / f"{name}.png"), np.resize(np.array(values) > 0, (3, 4)))
        assert any("2 shades" in str(each.message) for each in recwarn) == (name == "soft")
