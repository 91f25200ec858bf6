"""Pictures of every kind and name: they come back from an archive as they were, or none is written."""

import io
import json
import os
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from axial_transformers.compression import ArchiveError, DamagedError, compress, compress_files, decompress_files
from axial_transformers.compression.files import entries
from axial_transformers.models import AxialTransformer
from tests.shard_writer import deep_png
from tests.small_models import archiving_model

FORMATS = {
    "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp", "JPEG": ".jpg", "GIF": ".gif", "BMP": ".bmp", "PPM": ".ppm",
}  # fmt: skip
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I", "I;16",
         "I;16B", "F")  # fmt: skip
TRANSPARENT = {"1": 1, "L": 7, "RGB": (1, 2, 3), "P": bytes(range(100, 108)), "I;16": 300}


@pytest.fixture(scope="module", params=[1, 2, 3], ids=["gray", "gray16", "rgb"])
def model(request) -> AxialTransformer:
    return archiving_model(request.param)


def noise(*shape: int, high: int = 256, dtype: type = np.uint8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, high, shape).astype(dtype)


def picture(mode: str) -> Image.Image:
    """Pixels of a mode; for 1, L and RGB also values that are transparent in other pictures."""
    if mode.startswith("I;16"):
        return Image.frombytes(mode, (5, 3), noise(3, 5, 2).tobytes())
    if mode == "P":
        return Image.fromarray(noise(3, 5)).quantize(8)
    if mode == "PA":
        return Image.fromarray(noise(3, 5, 4)).convert("RGB").quantize(8).convert("PA")
    bands = len(Image.new(mode, (1, 1)).getbands())
    depth = {"I": 4, "F": 4}.get(mode, bands)
    if mode == "1":
        return Image.fromarray(noise(3, 5) > 100)
    return Image.frombytes(mode, (5, 3), noise(3, 5, depth, high=100).tobytes())


def deep_tiff(channels: int) -> bytes:
    """48 or 64 bits a pixel, uncompressed."""
    tags = [(256, 3, 1, 5), (257, 3, 1, 3), (258, 3, channels, 8), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 200),
            (277, 3, 1, channels), (278, 3, 1, 3), (279, 4, 1, 30 * channels)]  # fmt: skip
    tags += [(338, 3, 1, 2)] * (channels == 4)
    head = b"II*\0" + struct.pack("<I", 16) + struct.pack("<4H", *[16] * 4)
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return (head + struct.pack("<H", len(tags)) + entries).ljust(200, b"\0") + noise(30 * channels).tobytes()


def every_kind() -> dict[str, bytes]:
    """Files by name: every mode that Pillow writes, transparent values, orientations, several images, deep colour."""
    files = {}

    def add(name: str, image: Image.Image, kind: str, **options: object) -> None:
        file = io.BytesIO()
        try:
            image.save(file, kind, **options)
        except (OSError, ValueError, TypeError, KeyError, struct.error):
            return  # not a mode of that format
        files[name + FORMATS[kind]] = file.getvalue()

    for kind in FORMATS:
        for mode in MODES:
            add(f"{mode.replace(';', '_')}_{kind}", picture(mode), kind)
        for mode, value in TRANSPARENT.items():
            add(f"transparent_{mode.replace(';', '_')}_{kind}", picture(mode), kind, transparency=value)
        for orientation in range(2, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            add(f"turned_{orientation}_{kind}", Image.fromarray(noise(7, 4)), kind, exif=exif)
        more = [Image.fromarray(noise(3, 5) + 1)]
        add(f"several_{kind}", picture("L"), kind, save_all=True, append_images=more)
        add(f"lossless_{kind}", picture("RGB"), kind, lossless=True)
        add(f"small_{kind}", Image.fromarray(noise(1, 1)), kind)
    add("interlaced", Image.fromarray(noise(9, 9)), "GIF", interlace=1)
    file = io.BytesIO()
    picture("RGB").save(file, "MPO", save_all=True, append_images=[picture("RGB")])
    files["several.mpo.jpg"] = file.getvalue()
    files |= {f"deep_{colour}.png": deep_png(colour, channels) for colour, channels in ((2, 3), (4, 2), (6, 4))}
    files |= {"deep_rgb.tif": deep_tiff(3), "deep_rgba.tif": deep_tiff(4)}
    files["deep.ppm"] = b"P6 5 3 65535\n" + noise(90).tobytes()
    files["deep.pgm"] = b"P5 5 3 65535\n" + noise(30).tobytes()
    return files


def look(path: Path) -> tuple:
    """What a picture shows. One image of several, and the high bytes only of colours of 16 bits, as Pillow has it."""
    with Image.open(io.BytesIO(path.read_bytes())) as image:  # given a path, Pillow 13 misreads TIFF files to be turned
        gray16 = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
        ImageOps.exif_transpose(image, in_place=True)
        if gray16:
            return "I;16", np.asarray(image).astype(np.uint16).tolist(), image.info.get("transparency")
        shown = image.convert("RGBA").tobytes() if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else None
        return image.mode, image.size, image.tobytes(), shown


def partial(name: str) -> bool:
    """Of these Pillow shows only a part."""
    return name.startswith(("deep_", "deep.ppm", "several"))


def files_of(folder: Path) -> set[str]:
    return {os.fsencode(path.relative_to(folder)).decode("latin-1") for path in folder.rglob("*") if path.is_file()}


def source_of(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def back_from_an_archive(model: AxialTransformer, source: Path, folder: Path) -> Path:
    archive = folder / "a.axl"
    compress_files(model, source, archive, other_sizes="tile", verify=False)
    assert decompress_files(model, archive, folder / "back") == []
    return folder / "back"


def require_same(files: dict[str, bytes], source: Path, back: Path) -> None:
    """Every file is back under its name, or with .png appended, and looks the same; nothing else is there."""
    found = files_of(back)
    for name, content in files.items():
        kept = (back / name).exists()
        restored = back / (name if kept else f"{name}.png")
        found.remove(os.fsencode(restored.relative_to(back)).decode("latin-1"))
        assert restored.read_bytes() == content or (not partial(name) and look(restored) == look(source / name)), name
    assert not found


def test_pictures_of_every_kind_come_back(tmp_path, model):
    files = every_kind()
    source = source_of(tmp_path / "source", files)
    assert len(files) > 150
    require_same(files, source, back_from_an_archive(model, source, tmp_path))


def test_pictures_of_other_modes_are_kept_as_they_are(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    Image.fromarray(noise(16, 16, 3)).resize((200, 200)).save(source / "colour.jpg")
    Image.fromarray(noise(3, 5)).save(source / "gray.png")
    written = compress_files(archiving_model(1), source, tmp_path / "a.axl")
    assert (written.whole, written.examples) == (["colour.jpg"], 1)
    decompress_files(archiving_model(1), tmp_path / "a.axl", tmp_path / "back")
    assert (tmp_path / "back" / "colour.jpg").read_bytes() == (source / "colour.jpg").read_bytes()


def awkward_names() -> list[str]:
    """Names of files in the order of their difficulty, then random ones."""
    names = [
        "12:30.png", "a\\b.png", "\\.png", "C:x.png", "C:\\x.png", "x\\..\\..\\y.png", "a.jpg", "a.jpg.png", "b.jpg",
        "b.jpg.png/inner.png", "c.jpg/inner.jpg", "c.jpg/inner.jpg.png", "l" * 251 + ".jpg", "l" * 251 + ".png",
        "l" * 252 + ".jp", "ü" * 125 + ".jpg", "n" * 255, "CON.png", "nul.jpg", "COM1.bmp", "aux", "PRN.tif",
        "a.PNG", "A.png", "a.Jpg", "a.JPG", "png", "jpg", "no suffix", "two.suffixes.tif.jpg", "dots...png", "end.",
        "end. ", " start.png", "  ", "a b.png", "new\nline.png", "tab\t.png", "bell\a.png", "\x7f.png", "quote'.png",
        'quote".png', "[/x].png", "z[old].png", "[red]x[/red].jpg", "{a,b}.png", "%s.png", "%00.png", "$HOME.png",
        "`x`.png", "$(x).png", "-rf.png", "--help.png", "~.png", "~root.jpg", "#.png", "a#0,0.png", "?.png", "*.png",
        "<a>.png", "a|b.png", "a&b.png", "a;b.png", "e\u0301.png", "\u00e9.png", "\u202egnp.png", "\u200b.png",
        "\U0001f600.png", "\ufeff.png", "\ufffd.png", "\uffff.png", "名前.png", "имя.jpg", os.fsdecode(b"\xff\xfe.png"),
        os.fsdecode(b"\xc3.jpg"), "x.part.png", "whole file", "true", "null.png", "0", "1e9.png",
        "deep/" * 40 + "a.png", ".hidden folder/a.png", "d.webp", "d.webp.png", "e.pgm", "e.ppm", "e.tiff", "e.gif",
    ]  # fmt: skip
    rng = random.Random(0)
    while len(names) < 200:
        word = "".join(rng.choice("ab.: \\[]\"'\n%é\u0301名*?|") for _ in range(rng.randint(1, 12)))
        name = word.lstrip(".") + rng.choice([".png", ".jpg", ".jpg.png", ".webp", ""])
        if name and name not in names and not name.startswith("."):
            names.append(name)
    return names


def test_awkward_names_come_back(tmp_path):
    formats = {".jpg": "JPEG", ".webp": "WEBP", ".gif": "GIF"}
    files = {}
    for name in awkward_names():
        file = io.BytesIO()
        Image.fromarray(noise(3, 5)).save(file, formats.get(Path(name).suffix.lower(), "PNG"))
        files[name] = file.getvalue()
    assert len(files) == 200
    source = source_of(tmp_path / "source", files)
    require_same(files, source, back_from_an_archive(archiving_model(1), source, tmp_path))


def test_what_is_too_wide_for_webp_comes_back_as_png(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    Image.new("RGB", (16384, 1), (1, 2, 3)).save(source / "wide.webp", "PNG")
    back = back_from_an_archive(archiving_model(3, (1, 128)), source, tmp_path)
    with Image.open(back / "wide.webp.png") as image:
        assert (image.size, image.getextrema()) == ((16384, 1), ((1, 1), (2, 2), (3, 3)))


def archive_of(tmp_path: Path, description: object, count: int = 1, files: tuple[bytes, ...] = ()) -> Path:
    metadata = zlib.compress(json.dumps(description).encode())
    images = torch.zeros(count, 3, 5, 1, dtype=torch.uint8)
    (tmp_path / "a.axl").write_bytes(compress(archiving_model(1), images, metadata=metadata, files=files, verify=False))
    return tmp_path / "a.axl"


@pytest.mark.parametrize(
    "pictures",
    [
        [["a.png", "L", 3, 5]] * 2,
        [["a", "L", 3, 5], ["a/b.png", "L", 3, 5]],
        [["./a.png", "L", 3, 5]],
        [["a.jpg", "L", 3, 5], ["a.jpg.png", "L", 3, 5]],
        [["b.jpg", "L", 3, 5], ["b.jpg.png/c.png", "L", 3, 5]],
        [["l" * 252 + ".jpg", "L", 3, 5]],
    ],
    ids=str,
)
def test_one_place_for_two_files_is_refused(tmp_path, pictures):
    archive = archive_of(tmp_path, {"pictures": pictures}, len(pictures))
    with pytest.raises(ArchiveError):
        decompress_files(archiving_model(1), archive, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "description",
    [
        {"pictures": [["a.png", "L", 3, 5, "more"]]},
        {"pictures": [["a.png", "HDR", 3, 5]]},
        {"pictures": [["a.png", "RGB", 3, 5]]},
        {"pictures": [["another kind", "a.png"]]},
        {"pictures": [["a.png", "L", 3, 5]], "links": []},
        {"sounds": []},
    ],
    ids=str,
)
def test_what_no_description_has_is_refused(tmp_path, description):
    with pytest.raises(DamagedError, match=r"description of files is damaged|describes a picture as"):
        decompress_files(archiving_model(1), archive_of(tmp_path, description), tmp_path / "back")


def test_hidden_files_and_links_to_folders_are_named_as_left_out(tmp_path):
    source = source_of(tmp_path / "source", {name: deep_png(2, 3) for name in ("a.png", ".b.png", "in/.c.png")})
    (source / "link").symlink_to(source / "in")
    (source / "nowhere.png").symlink_to(source / "none")
    os.mkfifo(source / "pipe.png")
    written = compress_files(archiving_model(1), source, tmp_path / "a.axl")
    assert written.left_out == [".b.png", "in/.c.png", "link", "nowhere.png", "pipe.png"]


@pytest.mark.parametrize("folder", ["", "same/" * 300], ids=["that compress little", "that compress too well"])
def test_descriptions_of_more_than_16_mib_are_read(folder):
    rng = random.Random(0)
    folders = [folder or rng.randbytes(750).hex() for _ in range(12_000)]
    pictures = [[f"{folder}{i}.png", "RGB", 480, 640] for i, folder in enumerate(folders)]
    packed = entries.pack({"pictures": pictures}, len(pictures))
    assert entries.unpack(packed, len(pictures))["pictures"] == pictures


@pytest.mark.parametrize(
    "text",
    [b"[" + b"[]," * (1 << 20), b'"' + b'\\"' * (2 << 20), b'""' * (2 << 20), b"[" * (4 << 20), b"1" * (4 << 20)],
    ids=["lists", "escapes", "strings", "depth", "digits"],
)
def test_hostile_descriptions_are_refused_within_bounds(at_most_a_gigabyte_more, text):
    for level in (0, 9):
        with pytest.raises(ArchiveError):
            entries.unpack(zlib.compress(text, level), 1000)
    with pytest.raises(ArchiveError):
        entries.unpack(zlib.compress(bytes(1 << 25)), 1000)


def test_files_that_are_no_pictures_are_kept_whole(tmp_path):
    notes = {"Thumbs.db": b"\xd0\xcf" * 9, "in/notes.txt": b"", "torn.png": deep_png(2, 3)[:-30], "a.xmp": b"<x/>"}
    source = source_of(tmp_path / "source", notes)
    Image.fromarray(noise(3, 5)).save(source / "a.png")
    written = compress_files(archiving_model(1), source, tmp_path / "a.axl")
    assert sorted(written.whole) == sorted(notes)
    assert (len(written.images), written.examples) == (1, 1)
    assert sum(written.file_sizes) == sum(map(len, notes.values()))
    decompress_files(archiving_model(1), tmp_path / "a.axl", tmp_path / "back")
    assert {name: (tmp_path / "back" / name).read_bytes() for name in notes} == notes


def test_one_picture_comes_back_as_a_file_or_in_a_folder(tmp_path):
    source = source_of(tmp_path / "source", {"other.txt": b"not asked for"}) / "a.jpg"
    Image.fromarray(noise(7, 9)).save(source)
    written = compress_files(archiving_model(1), source, tmp_path / "a.axl", other_sizes="tile")
    assert (len(written.images), written.examples, written.left_out) == (6, 1, [])
    decompress_files(archiving_model(1), tmp_path / "a.axl", tmp_path / "back")
    assert files_of(tmp_path / "back") == {"a.jpg.png"}
    decompress_files(archiving_model(1), tmp_path / "a.axl", tmp_path / "b.bmp")
    assert look(tmp_path / "b.bmp") == look(source)
    with pytest.raises(ValueError, match=r"\.jpg files do not keep 'a\.jpg' without loss: give a target like x\.png"):
        decompress_files(archiving_model(1), tmp_path / "a.axl", tmp_path / "b.jpg")
    with pytest.raises(FileExistsError):
        decompress_files(archiving_model(1), tmp_path / "a.axl", tmp_path / "b.bmp")


def test_one_picture_that_is_kept_whole_keeps_its_suffix(tmp_path):
    source = source_of(tmp_path / "source", {"deep.png": deep_png(2, 3)}) / "deep.png"
    compress_files(archiving_model(1), source, tmp_path / "a.axl")
    with pytest.raises(ValueError, match=r"'deep\.png' as it is: give a target with the same suffix, not \.tif"):
        decompress_files(archiving_model(1), tmp_path / "a.axl", tmp_path / "b.tif")
    decompress_files(archiving_model(1), tmp_path / "a.axl", tmp_path / "b.PNG")
    assert (tmp_path / "b.PNG").read_bytes() == source.read_bytes()
