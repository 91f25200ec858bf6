"""From the name of a source to the examples of a split."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from axial_transformers.data import bair_videos as tfrecord
from axial_transformers.data import images, npy, shards, video
from axial_transformers.data.arrays import load_arrays
from axial_transformers.data.config import DataConfig, Split
from axial_transformers.data.embedded_digits import load_digits
from axial_transformers.data.examples import Examples
from axial_transformers.data.natural_order import natural
from axial_transformers.data.splits import Part, hashed_part, part_of_file, part_of_folder, tail_part
from axial_transformers.progress import Progress


def load(
    source: str | Path, config: DataConfig | None = None, split: Split = "train", progress: Progress = iter
) -> Examples:
    """The examples of one split of a source; "all" takes every example there is.

    Sources:
        digits: the embedded handwritten digits (`./digits` is a folder of that name).
        An .npz or .npy file: arrays [N, (T,) H, W (, C)]. The last `validation_fraction` validates, and what
            `test_fraction` sets aside after it tests: usually nothing, the test part being a file of its own. A file
            whose name says so (val_data, mnist_test) is that split as a whole; others are, with split "all".
        A folder of such files, whose names state the split (train_data_batch_1, val_data, mnist_test). Without a
            validation file the last `validation_fraction` of train validates.
        A folder of images. Sub-folders train, validation or val, and test (also train_32x32, valid_32x32) are the
            splits; otherwise, and where validation is missing, a hash of `config.seed` and of each file's path
            decides. Sub-folders inside of these are classes, if every image lies in one.
        A folder of videos, where `config.frames` says how long a clip is: video files, and folders that hold the images
            of one video's frames. Splits and classes as for images, by each video's path, so that all clips of a video
            are in one split. TFRecord files of BAIR robot pushing need no `frames`.
        One video or TFRecord file, or one folder of frames: its clips in order, split like an array.
        Shards: tar files as webdataset writes them, read when they are needed (`shards.shard_files` says how they are
            named), or a folder of them. Those whose names state a split (train-000.tar, val/000.tar) are that; where
            none states validation, the last `validation_fraction` of the records of the train shards validates.

    `progress` wraps the loops over files: reading, downloading, indexing.

    Raises:
        FileNotFoundError: no such source.
        ValueError: nothing in that split, or an example that cannot be read; the line names the file.
    """
    config = config or DataConfig()
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: choose one of {', '.join(get_args(Split))}")
    if source == "digits":
        return load_digits(split)
    path = Path(source)
    if not path.is_dir() and shards.names_shards(str(source)):
        return _load_shards(str(source), shards.shard_files(str(source), progress), config, split, progress)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder (the embedded data is called digits)")
    if path.is_dir():
        return _load_folder(path, config, split, progress)
    if path.suffix.lower() in npy.SUFFIXES:
        examples = load_arrays([path], config)
    elif path.suffix.lower() in tfrecord.SUFFIXES or (path.suffix.lower() in video.SUFFIXES and config.frames):
        examples = _load_video(path, config, progress)
    elif path.suffix.lower() in video.SUFFIXES:
        raise _without_frames(path)
    else:
        raise ValueError(
            f"{path} is neither a folder nor an .npz, .npy, .tar, video or TFRecord file: give one, or digits"
        )
    if part_of_file(path.stem) == split != "train":
        return examples
    return _tail(path, examples, config, split, {"train": [path]})


def _load_folder(folder: Path, config: DataConfig, split: Split, progress: Progress) -> Examples:
    files = sorted(
        (file for file in folder.rglob("*") if file.is_file() and not _is_hidden(file.relative_to(folder))),
        key=lambda file: file.relative_to(folder).as_posix(),
    )
    videos = _videos(files, config)
    if videos == [folder]:
        return _tail(folder, _load_video(folder, config, progress), config, split, {"train": videos})
    if videos:
        return _load_each(folder, videos, config, split, progress)
    pictures = [file for file in files if file.suffix.lower() in images.SUFFIXES]
    if pictures and config.frames is None:
        return _load_each(folder, pictures, config, split, progress)
    arrays = [file for file in files if file.suffix.lower() in npy.SUFFIXES and file.parent == folder]
    if arrays:
        return _load_array_folder(folder, sorted(arrays, key=natural), config, split)
    if tars := [file for file in files if file.suffix == shards.SUFFIX]:
        tars.sort(key=lambda file: (file.parent, natural(file)))
        return _load_shards(str(folder), tars, config, split, progress)
    if any(file.suffix.lower() in video.SUFFIXES for file in files):
        raise _without_frames(folder)
    raise ValueError(
        f"{folder} holds no images ({', '.join(images.SUFFIXES)}), no videos ({', '.join(video.SUFFIXES)}),"
        " no TFRecord files, no arrays (.npz, .npy) and no shards (.tar): give another folder"
    )


def _videos(files: Sequence[Path], config: DataConfig) -> list[Path]:
    """Files and folders that are one video each."""
    records = [file for file in files if file.suffix.lower() in tfrecord.SUFFIXES]
    if config.frames is None:
        return records
    of_frames = {file.parent for file in files if video.is_frame(file)}
    return sorted([*records, *of_frames, *(file for file in files if file.suffix.lower() in video.SUFFIXES)])


def _load_video(path: Path, config: DataConfig, progress: Progress) -> Examples:
    return video.load_videos(path.parent, [path], None, None, config, video.kind_of_videos([path], config), progress)


def _without_frames(path: Path) -> ValueError:
    return ValueError(f"{path} holds videos: set how many frames a clip has, for example frames=16")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _load_array_folder(folder: Path, files: Sequence[Path], config: DataConfig, split: Split) -> Examples:
    parts: dict[Part, list[Path]] = {}
    for file in files:
        part = part_of_file(file.stem)
        if part is None and split != "all":
            raise ValueError(
                f"{file} does not name its split (train, validation, test): give the file itself, or rename it"
            )
        parts.setdefault(part or "train", []).append(file)
    if split == "all":
        return load_arrays(files, config)
    if split in parts and split != "train":
        return load_arrays(parts[split], config)
    if "train" not in parts:
        raise _empty(folder, split, parts)
    return _tail(folder, load_arrays(parts["train"], config), config, split, parts)


def _load_shards(source: str, files: Sequence[Path], config: DataConfig, split: Split, progress: Progress) -> Examples:
    """Records by the split that the names of their shards state, or of the folders in which these lie apart."""
    common = Path(os.path.commonpath([file.parent for file in files]))
    parts: dict[Part, list[Path]] = {}
    for file in files:
        folders = file.parent.relative_to(common).parts
        part = part_of_file(file.stem) or next(filter(None, map(part_of_folder, folders)), None)
        parts.setdefault(part or "train", []).append(file)
    if split == "all":
        return shards.load_shards(files, config, progress)
    if split in parts and split != "train":
        return shards.load_shards(parts[split], config, progress)
    if "train" not in parts:
        raise _empty(source, split, parts)
    examples = shards.load_shards(parts["train"], config, progress)
    chosen = tail_part(len(examples), split, *_shares(config, parts, test_default=0.0))
    if chosen.start == chosen.stop:
        raise _empty(source, split, parts)
    return examples.part(chosen)


def _tail(source: Path, examples: Examples, config: DataConfig, split: Split, parts: Mapping[Part, object]) -> Examples:
    """The split's place among the examples of the train part."""
    chosen = tail_part(len(examples), split, *_shares(config, parts, test_default=0.0))
    if chosen.start == chosen.stop:
        raise _empty(source, split, parts)
    if split in ("train", "all"):
        return examples[chosen]
    return examples[range(chosen.start, chosen.stop)]  # a copy, so that the train part need not stay in memory


def _shares(config: DataConfig, parts: Mapping[Part, object], test_default: float) -> tuple[float, float]:
    """Shares of the train part that validate and test: none where the source has such a part."""
    test = test_default if config.test_fraction is None else config.test_fraction
    return 0.0 if "validation" in parts else config.validation_fraction, 0.0 if "test" in parts else test


def _empty(source: Path | str, split: Split, parts: Mapping[Part, object]) -> ValueError:
    ways_out = {
        "train": "take another split",
        "validation": "raise validation_fraction, or change the seed",
        "test": "set test_fraction, or give the test part as a source of its own with split all",
    }
    return ValueError(f"{source} has no {split} examples (it states {', '.join(parts)}): {ways_out[split]}")


def _load_each(folder: Path, files: Sequence[Path], config: DataConfig, split: Split, progress: Progress) -> Examples:
    """Images or videos, each of which is in one split and one class."""
    places = {file: file.relative_to(folder) for file in files}  # within the folder of their split, where there is one
    stated = {file: part_of_folder(place.parts[0]) for file, place in places.items() if len(place.parts) > 1}
    parts: dict[Part, list[Path]] = {}
    if any(stated.values()):
        for file, place in places.items():
            part = stated.get(file)
            if part is None:
                raise ValueError(f"{file} lies beside the folders of the splits: move it into one of them, or away")
            parts.setdefault(part, []).append(file)
            places[file] = place.relative_to(place.parts[0])
        shares = _shares(config, parts, test_default=0.0)
    else:
        parts["train"] = list(files)
        shares = _shares(config, parts, test_default=0.1)

    if split == "all":
        chosen = list(files)
    elif split in parts and split != "train":
        chosen = parts[split]
    else:
        train = parts.get("train", [])
        chosen = [file for file in train if hashed_part(places[file].as_posix(), config.seed, *shares) == split]
    if not chosen:
        raise _empty(folder, split, parts)

    in_classes = all(len(place.parts) > 1 for place in places.values())
    class_names = tuple(sorted({place.parts[0] for place in places.values()})) if in_classes else None
    number = {name: i for i, name in enumerate(class_names or ())}
    labels = [number[places[file].parts[0]] for file in chosen] if in_classes else None
    if files[0].suffix.lower() in images.SUFFIXES and config.frames is None:
        return images.load_images(
            folder, chosen, labels, class_names, config, images.kind_of_images(files, config), progress
        )
    return video.load_videos(folder, chosen, labels, class_names, config, video.kind_of_videos(files, config), progress)
