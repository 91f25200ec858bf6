"""Clips from video files, folders of frames and arrays."""

import struct
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from axial_transformers import data, pictures
from axial_transformers.data import DataConfig


def moving(frames: int = 7, height: int = 8, width: int = 8, channels: int = 3, seed: int = 0) -> np.ndarray:
    shape = (frames, height, width, channels) if channels > 1 else (frames, height, width)
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def encode(path: Path, frames: np.ndarray, codec: str = "libx264rgb", pixels: str = "rgb24", **options: str) -> Path:
    """Write frames [T, H, W, 3], or gray ones [T, H, W], without loss by default."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(path, "w", options={"movflags": "faststart"} if path.suffix == ".mp4" else {}) as container:
        stream = container.add_stream(codec, rate=8, options={"qp": "0"} | options)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, "gray" if frame.ndim == 2 else "rgb24")))
        container.mux(stream.encode())
    return path


def line(path: Path, config: DataConfig | None = None) -> str:
    with pytest.raises(ValueError) as caught:
        data.load(path, config or DataConfig(frames=2), "all")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "mov"])
def test_lossless_videos_are_read_exactly_as_clips_in_order(tmp_path, suffix):
    encode(tmp_path / f"a.{suffix}", moving(13))
    examples = data.load(tmp_path, DataConfig(frames=3), "all")
    assert np.array_equal(examples.values, moving(13)[:12].reshape(4, 3, 8, 8, 3))
    assert examples.names == [f"a.{suffix}#{i:04d}" for i in range(4)]
    with_steps = data.load(tmp_path, DataConfig(frames=2, stride=3), "all")
    assert np.array_equal(with_steps.values, moving(13)[:12:3].reshape(2, 2, 8, 8, 3))


@pytest.mark.parametrize("matrix", [(a, 0, 0, d) for a in (1, -1) for d in (1, -1)])
@pytest.mark.parametrize("swapped", [False, True])
def test_frames_are_turned_and_mirrored_as_the_file_asks(tmp_path, matrix, swapped):
    """ISO 14496-12: the matrix of a track header takes (x, y) of the frame, y downwards, to (ax + cy, bx + dy)."""

    def stored(a: int, b: int, c: int, d: int) -> bytes:
        return struct.pack(">9i", a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)

    path, frames = encode(tmp_path / "a.mp4", moving(2, 8, 12)), moving(2, 8, 12)
    content = path.read_bytes()
    at = content.index(stored(1, 0, 0, 1), content.index(b"tkhd"))
    a, b, c, d = matrix if not swapped else (0, matrix[0], matrix[3], 0)
    path.write_bytes(content[:at] + stored(a, b, c, d) + content[at + 36 :])
    expected = np.empty((2, 12, 8, 3) if swapped else frames.shape, np.uint8)
    for y, x in np.ndindex(8, 12):  # negative numbers count from the other end
        right, down = a * x + c * y, b * x + d * y
        expected[:, down - (b + d < 0), right - (a + c < 0)] = frames[:, y, x]
    seen = data.load(tmp_path, DataConfig(frames=2), "all").values[0]
    assert np.array_equal(seen, expected)


@pytest.mark.parametrize("suffix", ["mkv", "webm"])
def test_a_video_that_is_cut_off_says_how_many_frames_it_has(tmp_path, recwarn, suffix):
    codec = ("libvpx-vp9", "yuv444p") if suffix == "webm" else ()
    path = encode(tmp_path / f"a.{suffix}", moving(24, 16, 16), *codec)
    assert len(data.load(path, DataConfig(frames=1), "all")) == 24
    assert not recwarn
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    examples = data.load(path, DataConfig(frames=1), "all")
    said = "".join(str(each.message) for each in recwarn)
    assert 1 < len(examples) < 24
    assert f"a.{suffix} has only {len(examples)} frames, of the 3.00 seconds" in said


def test_webm_and_gif_are_read(tmp_path):
    ramp = np.broadcast_to(np.arange(0, 112, 16, dtype=np.uint8)[:, None, None, None], (7, 16, 16, 3))
    encode(tmp_path / "webm.webm", np.ascontiguousarray(ramp), "libvpx-vp9", "yuv444p", lossless="1")
    pictures.save_movie(tmp_path / "gif.gif", np.ascontiguousarray(ramp))
    examples = data.load(tmp_path, DataConfig(frames=7), "all")
    assert examples.names == ["gif.gif#0000", "webm.webm#0000"]
    assert np.abs(np.asarray(examples.values).astype(int) - ramp).max() <= 3


def test_frames_are_resized_by_averaging_and_cut_into_tiles(tmp_path):
    path = encode(tmp_path / "even.mkv", moving(2, 8, 12))
    crop = data.load(path, DataConfig(frames=2, size=4, cut="crop"), "all").values[0]
    boxes = moving(2, 8, 12)[:, :, 2:10].reshape(2, 4, 2, 4, 2, 3).mean(axis=(2, 4))
    assert np.abs(crop - boxes).max() <= 1
    assert data.load(path, DataConfig(frames=1, size=4, cut="stretch"), "all").values.shape == (2, 1, 4, 4, 3)
    path.unlink()
    encode(tmp_path / "a.mkv", moving(2, 8, 13))
    tiles = data.load(tmp_path, DataConfig(frames=1, size=4, cut="tiles"), "all")
    assert tiles.names[:7] == [f"a.mkv#0000#{r},{c}" for r in (0, 1) for c in (0, 1, 2)] + ["a.mkv#0001#0,0"]
    assert np.array_equal(tiles.values[4], moving(2, 8, 13)[:1, 4:8, 4:8])


def test_gray_videos_have_one_channel_on_request(tmp_path):
    encode(tmp_path / "gray.mkv", moving(channels=1), "ffv1", "gray")
    encode(tmp_path / "rgb.mkv", moving())
    examples = data.load(tmp_path, DataConfig(frames=7), "all")
    assert np.array_equal(examples.values, np.stack([moving(channels=1)[..., None].repeat(3, -1), moving()]))
    gray = data.load(tmp_path, DataConfig(frames=7, mode="gray"), "all").values
    assert np.array_equal(gray[0, ..., 0], moving(channels=1))
    assert data.load(tmp_path, DataConfig(frames=7, mode="rgba"), "all").values[..., 3].min() == 255


def test_folders_of_frames_are_videos(tmp_path):
    for clip, seed in (("b", 1), ("a", 0)):
        (tmp_path / clip).mkdir()
        for i, frame in enumerate(moving(12, seed=seed)):
            Image.fromarray(frame).save(tmp_path / clip / f"frame{i}.png")
    examples = data.load(tmp_path, DataConfig(frames=12), "all")
    assert np.array_equal(examples.values, np.stack([moving(12), moving(12, seed=1)]))
    assert (examples.names, examples.labels) == (["a#0000", "b#0000"], None)
    assert np.array_equal(data.load(tmp_path / "b", DataConfig(frames=6)).values[0], moving(12, seed=1)[:6])


def test_folders_name_splits_and_classes_and_one_video_is_split_along_time(tmp_path):
    for place in ("train/run", "train/walk", "test/run"):
        path = encode(tmp_path / place / "a.mkv", moving(10, 2, 2))
    examples = data.load(tmp_path, DataConfig(frames=5, validation_fraction=0.0))
    assert (examples.class_names, examples.labels.tolist()) == (("run", "walk"), [0, 0, 1, 1])
    assert len(data.load(tmp_path, DataConfig(frames=5), "test")) == 2
    for split, part in (("train", slice(9)), ("validation", slice(9, 10))):
        assert np.array_equal(data.load(path, DataConfig(frames=1), split).values[:, 0], moving(10, 2, 2)[part])


def test_arrays_of_videos_are_resized(tmp_path):
    videos = moving(14).reshape(2, 7, 8, 8, 3)
    path = tmp_path / "videos.npz"
    np.savez(path, videos=videos, labels=[0, 1])
    assert np.array_equal(data.load(path, split="all").values, videos)
    examples = data.load(path, DataConfig(size=4, cut="stretch"), "all")
    boxes = videos.reshape(2, 7, 4, 2, 4, 2, 3).mean(axis=(3, 5))
    assert np.abs(examples.values - boxes).max() <= 1
    assert examples.labels.tolist() == [0, 1]
    assert "not data.size=4" in line(path, DataConfig(size=4))


def test_videos_that_give_no_clip_are_named(tmp_path):
    for suffix in ("mp4", "mkv", "webm", "avi", "mov", "gif"):
        for content in ("", "#EXTM3U\n#EXTINF:1,\n/etc/hostname\n"):
            (tmp_path / f"a.{suffix}").write_text(content)
            assert f"a.{suffix} is not a whole video" in line(tmp_path / f"a.{suffix}")
    with av.open(tmp_path / "sound.mkv", "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), format="s16", layout="mono")
        sound.rate = 8000
        container.mux(stream.encode(sound))
    assert "sound.mkv holds no video" in line(tmp_path / "sound.mkv")
    encode(tmp_path / "folder" / "short.mkv", moving(5))
    folder = tmp_path / "folder"
    assert "short.mkv has 2 frames at data.stride=3, too few for a clip of data.frames=3" in line(
        folder, DataConfig(frames=3, stride=3)
    )
    assert "short.mkv is 8x8 pixels, not 4x4" in line(folder, DataConfig(frames=1, size=4))
    assert "holds videos: set how many frames" in line(folder, DataConfig())
    encode(folder / "wide.mkv", moving(5, 8, 10))
    assert "short.mkv is [5, 8, 8, 3], and wide.mkv is [5, 8, 10, 3]: remove one" in line(folder)


def test_a_video_whose_end_is_damaged_is_named(tmp_path):
    torn = encode(tmp_path / "1.mp4", moving(40, 16, 16), g="4")
    content = torn.read_bytes()
    torn.write_bytes(content[:-9000] + bytes(6000) + content[-3000:])  # its first clips are whole
    assert "1.mp4 is " in line(tmp_path)


def test_what_frames_of_more_bits_lose_is_said_and_transparent_ones_are_refused(tmp_path):
    path = encode(tmp_path / "a.mkv", moving(), "ffv1", "gbrp10")
    with pytest.warns(UserWarning, match=r"a\.mkv .*8 bits"):
        assert len(data.load(path, DataConfig(frames=7), "all")) == 1
    clear = [Image.fromarray(moving(2, channels=4)[i] // 100 * 100) for i in range(2)]
    clear[0].save(tmp_path / "clear.gif", save_all=True, append_images=clear[1:])
    assert "clear.gif is transparent in places" in line(tmp_path / "clear.gif")
