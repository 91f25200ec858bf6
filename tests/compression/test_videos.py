"""Videos: the frames come back from an archive, bit for bit, at the same rate, in lossless .mkv files."""

import json
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from axial_transformers.compression import (
    DamagedError,
    compress,
    compress_files,
    decompress_files,
)
from axial_transformers.compression.files import videos
from axial_transformers.compression.files.file_archive import read_files
from axial_transformers.data.video import frame_rate, frames_of, lossless_movie
from axial_transformers.models import AxialTransformer
from axial_transformers.pictures import save_movie
from tests.small_models import random_model, small_config


@pytest.fixture(scope="module")
def model() -> AxialTransformer:
    return random_model(small_config((2, 3, 4), num_values=256)).float()


def moving(count: int, height: int = 3, width: int = 4, colours: tuple[int, ...] = ()) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, *colours)).astype(np.uint8)


def shown(path: Path, kind: str = "gray") -> list[list[int]]:
    return [np.asarray(frame).tolist() for frame in frames_of(path, kind)]


def test_videos_come_back_with_frames_rate_and_names(tmp_path, model):
    source, back = tmp_path / "source", tmp_path / "back"
    (source / "in").mkdir(parents=True)
    (source / "a.mkv").write_bytes(lossless_movie(moving(5), Fraction(30000, 1001)))
    (source / "in" / "b.MKV").write_bytes(lossless_movie(moving(1), Fraction(5)))
    (source / "c.webm").write_bytes(lossless_movie(moving(3), Fraction(1, 2)))
    (source / "colour.mkv").write_bytes(lossless_movie(moving(2, colours=(3,)), Fraction(8)))
    (source / "torn.mkv").write_bytes(b"torn" * 99)
    (source / "notes.txt").write_text("notes")
    kept = ["colour.mkv", "notes.txt", "torn.mkv"]
    written = compress_files(model, source, tmp_path / "a.axl")
    assert (len(written.images), written.examples) == (3 + 1 + 2, 3)
    assert (written.whole, written.left_out) == (kept, [])
    assert decompress_files(model, tmp_path / "a.axl", back) == []
    names = {path.relative_to(back).as_posix() for path in back.rglob("*") if path.is_file()}
    assert names == {"a.mkv", "in/b.MKV", "c.webm.mkv", *kept}
    for name in ("a.mkv", "in/b.MKV", "c.webm"):
        restored = back / (name if (back / name).exists() else f"{name}.mkv")
        assert shown(restored) == shown(source / name)
        assert float(frame_rate(restored)) == pytest.approx(float(frame_rate(source / name)), rel=1e-3)
    assert all((back / name).read_bytes() == (source / name).read_bytes() for name in kept)


def test_colour_videos_of_other_sizes_are_tiled_or_stored(tmp_path):
    model = random_model(small_config((2, 3, 4), 3, num_values=256)).float()
    save_movie(tmp_path / "a.mp4", moving(3, 8, 6, (3,)))
    assert compress_files(model, tmp_path / "a.mp4", tmp_path / "whole.axl").whole == ["a.mp4"]
    written = compress_files(model, tmp_path / "a.mp4", tmp_path / "a.axl", other_sizes="tile")
    assert (len(written.images), written.examples) == (2 * 3 * 2, 1)
    with pytest.raises(ValueError, match=r"\.mp4 files do not keep '.*' without loss: give a target like x\.mkv"):
        decompress_files(model, tmp_path / "a.axl", tmp_path / "b.mp4")
    decompress_files(model, tmp_path / "a.axl", tmp_path / "b.mkv")
    assert shown(tmp_path / "b.mkv", "rgb") == shown(tmp_path / "a.mp4", "rgb")


def test_a_video_whose_name_would_be_taken_is_kept_whole(tmp_path, model):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.webm").write_bytes(lossless_movie(moving(2), Fraction(8)))
    (source / "a.webm.mkv").write_bytes(lossless_movie(moving(2), Fraction(8)))
    assert compress_files(model, source, tmp_path / "a.axl").whole == ["a.webm"]


def test_what_holds_no_videos_of_the_model_or_too_much_is_refused(tmp_path, model, monkeypatch):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "frame.png").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"holds no videos: frame\.png is no video that comes back in the model's channels"
    ):
        compress_files(model, tmp_path / "source", tmp_path / "a.axl")
    (tmp_path / "a.mkv").write_bytes(lossless_movie(moving(3), Fraction(8)))
    monkeypatch.setattr(videos, "MAX_VALUES", 23)
    with pytest.raises(ValueError, match=r"a\.mkv: 2 frames of 3x4, a clip of the model, are more than 23 values"):
        compress_files(model, tmp_path / "a.mkv", tmp_path / "a.axl")
    assert not (tmp_path / "a.axl").exists()


def test_frames_are_read_when_their_clips_are_asked_for_and_once(tmp_path, model, monkeypatch):
    frames = moving(7), moving(3)
    for name, values in zip("ab", frames):
        (tmp_path / f"{name}.mkv").write_bytes(lossless_movie(values, Fraction(8)))
    images, taken = read_files(tmp_path, videos.VideoEntry, model.config, "refuse").images, list[int]()

    def counted(path, kind):
        for frame in frames_of(path, kind):
            taken.append(len(taken))
            yield frame

    monkeypatch.setattr(videos, "frames_of", counted)
    parts = [images[0:1]]
    assert len(taken) == 2
    parts += [images[1:3], images[3:5], images[5:6]]
    assert len(taken) == 7 + 3
    expected = [values[[*range(len(values)), -1]].reshape(-1, 2, 3, 4, 1) for values in frames]
    assert np.array_equal(np.concatenate(parts), np.concatenate(expected))
    assert np.array_equal(images[3:6], np.concatenate(expected)[3:])
    assert np.array_equal(images[0:6], np.concatenate(expected))
    (tmp_path / "b.mkv").write_bytes(lossless_movie(moving(1), Fraction(8)))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"b\.mkv has changed since it was first read: compress it again"):
            images[4:6]


@pytest.mark.parametrize(
    "video",
    [
        ["../a.mkv", 2, 3, 4, 8, 1],
        ["a.mkv", 0, 3, 4, 8, 1],
        ["a.mkv", 2, 3, 5, 8, 1],
        ["a.mkv", 1 << 30, 1 << 30, 1 << 30, 8, 1],
        ["a.mkv", 1 << 99, 3, 4, 8, 1],
        ["a.mkv", 2, 3, 4, 8, 0],
        ["a.mkv", 2, 3, 4, 1, 1 << 30],
        ["a.mkv", 2, 3, 4, 8, True],
        ["a.mkv", 2, 3, 4],
    ],
    ids=str,
)
def test_descriptions_that_do_not_fit_are_refused(tmp_path, model, video):
    images = torch.zeros(1, 2, 3, 4, 1, dtype=torch.uint8)
    metadata = zlib.compress(json.dumps({"videos": [video]}).encode())
    (tmp_path / "a.axl").write_bytes(compress(model, images, metadata=metadata, verify=False))
    for target in ("back", "back.mkv"):
        with pytest.raises(DamagedError):
            decompress_files(model, tmp_path / "a.axl", tmp_path / target)
    assert [path.name for path in tmp_path.iterdir()] == ["a.axl"]
