"""Clips from video files, folders of frames and arrays; clips written as movies."""

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


def write(path: Path, frames: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures.save_movie(path, frames)
    return path


def encode(path: Path, frames: np.ndarray, codec: str = "libx264rgb", pixels: str = "rgb24", **options: str) -> Path:
    with av.open(path, "w", options={"movflags": "faststart"} if path.suffix == ".mp4" else {}) as container:
        stream = container.add_stream(codec, rate=8, options={"qp": "0"} | options)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


def line(path: Path, config: DataConfig | None = None) -> str:
    with pytest.raises(ValueError) as caught:
        data.load(path, config or DataConfig(frames=2), "all")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "mov"])
def test_lossless_videos_are_read_exactly_as_clips_in_order(tmp_path, suffix):
    encode(tmp_path / f"a.{suffix}", moving())
    examples = data.load(tmp_path, DataConfig(frames=3), "all")
    assert np.array_equal(examples.values, moving()[:6].reshape(2, 3, 8, 8, 3))
    assert examples.names == [f"a.{suffix}#0000", f"a.{suffix}#0001"]


@pytest.mark.parametrize(
    ("matrix", "quarter_turns"), [((0, 1, -1, 0), 1), ((-1, 0, 0, -1), 2), ((0, -1, 1, 0), 3)], ids=str
)
def test_a_rotation_that_the_file_asks_for_is_applied(tmp_path, matrix, quarter_turns):
    """ISO 14496-12: the matrix of a track header takes (x, y) of the frame, y downwards, to (ax + cy, bx + dy)."""

    def stored(a: int, b: int, c: int, d: int) -> bytes:
        return struct.pack(">9i", a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)

    path = encode(tmp_path / "a.mp4", moving(2, 8, 12))
    content = path.read_bytes()
    at = content.index(stored(1, 0, 0, 1), content.index(b"tkhd"))
    path.write_bytes(content[:at] + stored(*matrix) + content[at + 36 :])
    seen = data.load(tmp_path, DataConfig(frames=2), "all").values[0]
    assert np.array_equal(seen, np.rot90(moving(2, 8, 12), -quarter_turns, axes=(1, 2)))  # clockwise


def test_webm_and_gif_are_read(tmp_path):
    ramp = np.broadcast_to(np.arange(0, 112, 16, dtype=np.uint8)[:, None, None, None], (7, 16, 16, 3))
    encode(tmp_path / "webm.webm", np.ascontiguousarray(ramp), "libvpx-vp9", "yuv444p", lossless="1")
    write(tmp_path / "gif.gif", np.ascontiguousarray(ramp))
    examples = data.load(tmp_path, DataConfig(frames=7), "all")
    assert examples.names == ["gif.gif#0000", "webm.webm#0000"]
    assert np.abs(examples.values.astype(int) - ramp).max() <= 3


def test_stride_takes_every_third_frame(tmp_path):
    write(tmp_path / "a.mkv", moving(13))
    examples = data.load(tmp_path, DataConfig(frames=2, stride=3), "all")
    assert np.array_equal(examples.values, moving(13)[:12:3].reshape(2, 2, 8, 8, 3))


def test_frames_are_resized_by_averaging(tmp_path):
    write(tmp_path / "a.mkv", moving(2, 8, 12))
    crop = data.load(tmp_path, DataConfig(frames=2, size=4, fit="crop"), "all").values[0]
    boxes = moving(2, 8, 12)[:, :, 2:10].reshape(2, 4, 2, 4, 2, 3).mean(axis=(2, 4))
    assert np.abs(crop - boxes).max() <= 1
    assert data.load(tmp_path, DataConfig(frames=1, size=4, fit="stretch"), "all").values.shape == (2, 1, 4, 4, 3)


def test_tiles_are_cut_from_every_frame_alike(tmp_path):
    write(tmp_path / "a.mkv", moving(4, 8, 13))
    examples = data.load(tmp_path, DataConfig(frames=2, size=4, fit="tiles"), "all")
    assert examples.names[:7] == [f"a.mkv#0000#{r},{c}" for r in (0, 1) for c in (0, 1, 2)] + ["a.mkv#0001#0,0"]
    assert np.array_equal(examples.values[4], moving(4, 8, 13)[:2, 4:8, 4:8])


def test_gray_videos_have_one_channel_unless_one_is_in_colour(tmp_path):
    write(tmp_path / "gray.mkv", moving(channels=1))
    assert np.array_equal(data.load(tmp_path, DataConfig(frames=7), "all").values[0, ..., 0], moving(channels=1))
    write(tmp_path / "rgb.mkv", moving())
    examples = data.load(tmp_path, DataConfig(frames=7), "all")
    assert np.array_equal(examples.values, np.stack([moving(channels=1)[..., None].repeat(3, -1), moving()]))
    assert data.load(tmp_path, DataConfig(frames=7, mode="gray"), "all").channels == 1


def test_folders_of_frames_are_videos(tmp_path):
    for clip, seed in (("b", 1), ("a", 0)):
        (tmp_path / clip).mkdir()
        for i, frame in enumerate(moving(12, seed=seed)):
            Image.fromarray(frame).save(tmp_path / clip / f"frame{i}.png")
    examples = data.load(tmp_path, DataConfig(frames=12), "all")
    assert np.array_equal(examples.values, np.stack([moving(12), moving(12, seed=1)]))
    assert examples.names == ["a#0000", "b#0000"]
    assert examples.labels is None
    assert np.array_equal(data.load(tmp_path / "b", DataConfig(frames=6)).values[0], moving(12, seed=1)[:6])


def test_all_clips_of_a_video_are_in_one_split(tmp_path):
    for i in range(20):
        write(tmp_path / f"{i}.mkv", moving(4, 2, 2, seed=i))
    config = DataConfig(frames=1, validation_fraction=0.3, test_fraction=0.3)
    parts = {split: data.load(tmp_path, config, split).names for split in ("train", "validation", "test")}
    films = {split: {name.split("#")[0] for name in names} for split, names in parts.items()}
    assert sum(map(len, parts.values())) == 80
    assert sum(map(len, films.values())) == 20 == len(set.union(*films.values()))


def test_folders_name_splits_and_classes(tmp_path):
    for place in ("train/run", "train/walk", "test/run"):
        write(tmp_path / place / "a.mkv", moving(4, 2, 2))
    examples = data.load(tmp_path, DataConfig(frames=2, validation_fraction=0.0))
    assert examples.class_names == ("run", "walk")
    assert examples.labels is not None
    assert examples.labels.tolist() == [0, 0, 1, 1]
    assert len(data.load(tmp_path, DataConfig(frames=2), "test")) == 2


def test_one_video_is_split_along_time(tmp_path):
    path = write(tmp_path / "a.mkv", moving(10, 2, 2))
    assert np.array_equal(data.load(path, DataConfig(frames=1), "train").values[:, 0], moving(10, 2, 2)[:9])
    assert np.array_equal(data.load(path, DataConfig(frames=1), "validation").values[:, 0], moving(10, 2, 2)[9:])


def test_arrays_of_videos_are_resized(tmp_path):
    videos = moving(14).reshape(2, 7, 8, 8, 3)
    path = tmp_path / "videos.npz"
    np.savez(path, videos=videos, labels=[0, 1])
    assert np.array_equal(data.load(path, split="all").values, videos)
    examples = data.load(path, DataConfig(size=4, fit="stretch"), "all")
    boxes = videos.reshape(2, 7, 4, 2, 4, 2, 3).mean(axis=(3, 5))
    assert np.abs(examples.values - boxes).max() <= 1
    assert examples.labels.tolist() == [0, 1]
    assert "not data.size=4" in line(path, DataConfig(size=4))


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "webm", "avi", "mov", "gif"])
def test_what_is_no_video_is_named(tmp_path, suffix):
    for content in ("", "#EXTM3U\n#EXTINF:1,\n/etc/hostname\n"):
        (tmp_path / f"a.{suffix}").write_text(content)
        assert f"a.{suffix} is not a whole video" in line(tmp_path)


def test_videos_that_give_no_clip_are_named(tmp_path):
    write(tmp_path / "short.mkv", moving(5))
    assert "short.mkv has 5 frames, too few for a clip of 7" in line(tmp_path, DataConfig(frames=3, stride=3))
    assert "short.mkv is 8x8 pixels, not 4x4" in line(tmp_path, DataConfig(frames=1, size=4))
    assert "holds videos: set how many frames" in line(tmp_path, DataConfig())
    write(tmp_path / "wide.mkv", moving(5, 8, 10))
    assert "wide.mkv is 10x8 pixels where" in line(tmp_path)
    with pytest.raises(ValueError, match="stride must be at least 1"):
        DataConfig(stride=0)
    with pytest.raises(ValueError, match="frames must be at least 1"):
        DataConfig(frames=0)


def test_sound_alone_is_no_video(tmp_path):
    with av.open(tmp_path / "a.mkv", "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), format="s16", layout="mono")
        sound.rate = 8000
        container.mux(stream.encode(sound))
    assert "a.mkv holds no video" in line(tmp_path)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_lossless_movie_is_decoded_frame_exact(tmp_path, channels):
    clips = moving(6, 5, 7, channels).reshape(2, 3, 5, 7, channels)
    pictures.save_clips(tmp_path / "clips.mkv", clips)
    assert np.array_equal(data.load(tmp_path, DataConfig(frames=3), "all").values, clips)


def test_mp4_plays_in_a_grid_of_even_sides(tmp_path):
    ramp = np.broadcast_to(np.linspace(0, 255, 5, dtype=np.uint8)[None, :, None, None, None], (3, 5, 8, 8, 3))
    pictures.save_clips(tmp_path / "clips.mp4", ramp, columns=3, scale=2)
    with av.open(tmp_path / "clips.mp4") as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert (container.streams.video[0].codec.name, container.streams.video[0].pix_fmt) == ("h264", "yuv420p")
    assert len(frames) == 5
    assert frames[0].shape == (18, 52, 3)
    for t, frame in enumerate(frames):
        assert np.abs(frame[4:14, 4:14].astype(int) - ramp[0, t, 0, 0, 0]).max() <= 8


def test_gifs_have_every_frame(tmp_path):
    gray = np.linspace(0, 255, 5, dtype=np.uint8).reshape(1, 5, 1, 1, 1).repeat(8, 2).repeat(8, 3)
    pictures.save_clips(tmp_path / "clips.gif", gray)
    with Image.open(tmp_path / "clips.gif") as picture:
        assert picture.n_frames == 5
        assert picture.info["duration"] == 120  # GIF counts in hundredths of a second


@pytest.mark.parametrize("suffix", pictures.MOVIES)
def test_no_movie_is_left_half_written(tmp_path, suffix, monkeypatch):
    def fails(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="disk full"):
        pictures.save_movie(tmp_path / f"a{suffix}", moving())
    assert not list(tmp_path.iterdir())


def test_a_damaged_video_is_left_out_whole_and_the_others_keep_their_classes(tmp_path):
    for i in range(4):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        encode(tmp_path / "ab"[i % 2] / f"{i}.mp4", moving(40, 16, 16, seed=i), g="4")
    torn = tmp_path / "b" / "1.mp4"
    content = torn.read_bytes()
    torn.write_bytes(content[:-9000] + bytes(6000) + content[-3000:])  # its first clips are whole
    config = DataConfig(frames=2)
    with pytest.warns(UserWarning, match=r"skipped, 1 of .*b/1\.mp4 is "):
        examples = data.load(tmp_path, config, "all")
    assert {name.split("#")[0] for name in examples.names} == {"a/0.mp4", "a/2.mp4", "b/3.mp4"}
    assert np.array_equal(examples.values.reshape(3, 40, 16, 16, 3)[2], moving(40, 16, 16, seed=3))
    assert examples.labels is not None
    assert examples.labels.tolist() == [0] * 40 + [1] * 20


def test_what_frames_of_more_bits_lose_is_said(tmp_path):
    encode(tmp_path / "a.mkv", moving(), "ffv1", "gbrp10")
    with pytest.warns(UserWarning, match=r"a\.mkv has more than 8 bits a channel: its frames are converted to 8"):
        assert len(data.load(tmp_path, DataConfig(frames=7), "all")) == 1
