"""Loading: from the name of a source to the examples of a split."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from axial_transformers.data import bair_videos, hugging_face, images, npy, picture_files, scans, video
from axial_transformers.data.arrays import example_shape, in_tiles, is_one_array, load_arrays, volume_in
from axial_transformers.data.blocks_of_arrays import Blocks, Sliced, channels_last, cut
from axial_transformers.data.config import DataConfig, Split, is_hub_dataset
from axial_transformers.data.examples import Examples
from axial_transformers.data.folders import Selection, files_below, natural_key
from axial_transformers.data.splits import (
    EmptySplitError,
    Part,
    consecutive_part,
    hashed_parts,
    part_of_file,
    part_of_folder,
)
from axial_transformers.data.windows import WindowedExamples
from axial_transformers.progress import Progress, say
from axial_transformers.storage.files import source_path
from axial_transformers.wording import counted

Parts = Mapping[Part, Sequence[Any]]
"""Files, or parts of a data set."""
FEW = 8


def load(
    source: str | Path, config: DataConfig | None = None, split: Split = "train", progress: Progress = iter
) -> Examples:
    """Load the examples of one split of a source; "all" is every example.

    Sources:
        digits: the bundled digits (`./digits` is a folder of that name).
        An .npz or .npy file: arrays [N, (T,) H, W (, C)]. Its end is the test part, and the end before it the
            validation part. If its name states the wanted split (val_data, mnist_test), the whole file is that split.
            If `config.size` has several numbers, arrays [*A (, C)] are cut into blocks; the parts are slabs.
        A folder of such files, whose names state the split. Without a validation file, the end of train validates.
        A scan, or a folder of scans (see `scans`), cut into blocks in the same way. The range of values is that of the
            whole file.
        A folder of images. Sub-folders train, validation or val, and test are the splits. Without them, a hash of
            `config.seed` and each file's path decides. Sub-folders inside of these are classes.
        A folder of videos, if `config.frames` is set: video files, and folders of frames, split like images. TFRecord
            files of BAIR robot pushing need no `frames`.
        One video or TFRecord file, or one folder of frames: its clips in order, split like an array.
        One image: an example, or its tiles, only of the split "all".
        hf:OWNER/NAME[/SUBSET][@REVISION]: a data set of the Hugging Face hub. A folder of its `save_to_disk`.
        A parquet file, a tar file as webdataset writes it, or a folder of them. Their names state splits
            (train-000.tar, val/000.tar); otherwise the end of train validates.

    Hidden files are left out; a few damaged or unfit ones too, with a warning. `progress` wraps the loops over files.

    Raises:
        FileNotFoundError: no such source.
        EmptySplitError: nothing in that split; a ValueError.
        ValueError: an example that cannot be read; the message names the file.
    """
    config = config or DataConfig()
    if split != "train":
        config = replace(config, offsets="fixed")
    examples = _load(source, config, split, progress)
    if config.num_values not in (None, examples.num_values):
        values = f"values of {source} are 0..{examples.num_values - 1}; leave it out, or save them as an array"
        raise ValueError(f"data.num_values={config.num_values} is an option of arrays: {values}")
    if config.offsets == "random" and not isinstance(examples, WindowedExamples):
        raise ValueError(
            "data.offsets=random cuts clips of folders of videos and TFRecord files, and tiles of folders of pictures,"
            f" which {source} is not: use data.offsets=fixed"
        )
    if split in ("validation", "test") and len(examples) < FEW:
        hint = f"its bits/dim mean little: train with a larger data.{split}_fraction, or with more data"
        say(f"the {split} part of {source} has only {counted(len(examples), 'example')}: {hint}")
    return examples


def _load(source: str | Path, config: DataConfig, split: Split, progress: Progress) -> Examples:
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: choose one of {', '.join(get_args(Split))}")
    if source == "digits":
        return load_digits(split)
    path = source_path(source)
    if scans.is_scan(path):
        return _load_file(path, config, split, progress)
    if is_hub_dataset(source) or hugging_face.is_saved(path):
        return _load_dataset(str(source), [], config, split, progress)
    if path.is_dir():
        return _load_folder(path, config, split, progress)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder (the bundled digits are called digits)")
    return _load_file(path, config, split, progress)


def _load_file(path: Path, config: DataConfig, split: Split, progress: Progress) -> Examples:
    suffix = path.suffix.lower()
    if suffix in hugging_face.BUILDERS:
        return _load_dataset(str(path), [path], config, split, progress)
    of_arrays = suffix in npy.SUFFIXES and not is_one_array(config)
    if of_arrays:
        examples = load_arrays([path], config)
    elif suffix in npy.SUFFIXES or scans.is_scan(path):
        examples = _load_volumes(Selection(path.parent, [path]), config, progress)
    elif suffix in bair_videos.SUFFIXES or (suffix in video.SUFFIXES and config.frames):
        examples = _load_video(path, config, progress)
    elif suffix in picture_files.SUFFIXES and split == "all":
        kind = images.kind_of_images([path], config)
        return images.load_images(Selection(path.parent, [path]), config, kind, progress)
    elif suffix in picture_files.SUFFIXES:
        raise ValueError(f"{path} is one picture, which has no {split} part: give a folder of pictures, or split all")
    elif suffix in video.SUFFIXES:
        raise _without_frames(path)
    else:
        raise ValueError(
            f"{path} is neither a folder nor an .npz, .npy, .csv, .tsv, .parquet, .tar, picture, video, scan or"
            " TFRecord file: give one, or digits"
        )
    if part_of_file(path.stem) != split or split == "train":
        examples = _share(path, examples, config, split, {"train": [path]})
    return _fitted(path, examples, config) if of_arrays else examples


def _load_volumes(selection: Selection, config: DataConfig, progress: Progress) -> Examples:
    volumes = {
        file.relative_to(selection.root).as_posix(): _volume(file, config) for file in progress(selection.chosen)
    }
    return cut(volumes, config).examples(config)


def _volume(file: Path, config: DataConfig) -> Sliced:
    if not scans.is_scan(file):
        return volume_in(file, config)
    scan = scans.read_scan(file)
    return channels_last(scan.values, scan.axes)


def _load_video(path: Path, config: DataConfig, progress: Progress) -> Examples:
    if config.offsets == "random":
        raise ValueError(
            f"{path} is one source of clips: data.offsets=random needs a folder of several videos or files"
        )
    return video.load_videos(Selection(path.parent, [path]), config, video.kind_of_videos([path], config), progress)


def files_of(folder: Path, config: DataConfig) -> tuple[str, list[Path], list[Path]]:
    """Return the files of a folder that `load` reads: their kind, those of the first kind here, and all others.

    A kind is video, scan, image, array, arrow, tar, parquet, or "" where nothing is read. Folders of frames are videos.
    """
    shown = _shown(folder)
    if hugging_face.is_saved(folder):
        return "arrow", [file for file in shown if file.suffix == ".arrow"], []
    pictures = [file for file in shown if file.suffix.lower() in picture_files.SUFFIXES]
    arrays = [file for file in shown if file.suffix.lower() in npy.SUFFIXES and file.parent == folder]
    kinds = {
        "video": _videos(shown, config),
        "scan": _scans(shown),
        "image": pictures if config.frames is None else [],
        "array": sorted(arrays, key=natural_key),
    }
    for suffix in hugging_face.BUILDERS:
        of_rows = sorted([file for file in shown if file.suffix.lower() == suffix], key=natural_key)
        kinds[suffix[1:]] = sorted(of_rows, key=lambda file: file.parent)
    kind = next((kind for kind, files in kinds.items() if files), "")
    files = kinds.get(kind, [])
    read = {*files}
    return kind, files, [file for file in shown if not read & {file, file.parent}]


def _load_folder(folder: Path, config: DataConfig, split: Split, progress: Progress) -> Examples:
    kind, files, others = files_of(folder, config)
    if files == [folder]:
        return _share(folder, _load_video(folder, config, progress), config, split, {"train": files})
    if kind == "video":
        videos = partial(video.load_videos, options=config, kind=video.kind_of_videos(files, config), progress=progress)
        return _load_each(folder, files, config, split, videos)
    if kind == "scan":
        return _load_each(folder, files, config, split, partial(_load_volumes, config=config, progress=progress))
    if kind == "image":
        several = partial(
            images.load_images, options=config, kind=images.kind_of_images(files, config), progress=progress
        )
        return _load_each(folder, files, config, split, several)
    if kind == "array":
        return _load_array_folder(folder, files, config, split)
    if files:
        return _load_dataset(str(folder), files, config, split, progress)
    if any(file.suffix.lower() in video.SUFFIXES for file in others):
        raise _without_frames(folder)
    raise ValueError(
        f"{folder} holds no images ({', '.join(picture_files.SUFFIXES)}), no videos ({', '.join(video.SUFFIXES)}),"
        f" no TFRecord files, no arrays (.npz, .npy), no scans ({', '.join(scans.SUFFIXES)}) and no .parquet or .tar"
        " files: give another folder"
    )


def _shown(folder: Path) -> list[Path]:
    files, left_out = files_below(folder)
    if left_out:
        say(f"{folder}: {left_out}")
    return files


def _scans(files: Sequence[Path]) -> list[Path]:
    """Return the scans among files, but none beside pictures, where a TIFF file of several pages is an unfit one."""
    found = [file for file in files if scans.is_scan(file)]
    pictures = {file for file in files if file.suffix.lower() in picture_files.SUFFIXES}
    return found if pictures <= {*found} else []


def _videos(files: Sequence[Path], config: DataConfig) -> list[Path]:
    records = [file for file in files if file.suffix.lower() in bair_videos.SUFFIXES]
    if config.frames is None:
        return records
    of_frames = {file.parent for file in files if video.is_frame(file)}
    return sorted([*records, *of_frames, *(file for file in files if file.suffix.lower() in video.SUFFIXES)])


def _load_each(
    folder: Path,
    files: Sequence[Path],
    config: DataConfig,
    split: Split,
    load_files: Callable[[Selection], Examples],
) -> Examples:
    relative = {file: file.relative_to(folder) for file in files}
    stated = {file: part_of_folder(path.parts[0]) for file, path in relative.items() if len(path.parts) > 1}
    has_splits = any(stated.values())
    if has_splits:
        for file in files:
            if stated.get(file) is None:
                raise ValueError(f"{file} lies beside the folders of the splits: move it into one of them, or away")
        relative = {file: path.relative_to(path.parts[0]) for file, path in relative.items()}
    parts = _parts(files, stated.get)
    if split == "all":
        chosen: Sequence[Path] = files
    elif split in parts and split != "train":
        chosen = parts[split]
    else:
        fractions = _fractions(config, parts, test_default=0.0 if has_splits else 0.1)
        train = parts.get("train", [])
        assigned = hashed_parts([relative[file].as_posix() for file in train], config.seed, *fractions)
        chosen = [file for file, part in zip(train, assigned, strict=True) if part == split]
    if not chosen:
        raise _empty(folder, split, parts, "file" * (len(parts.get("train", ())) == 1))
    return load_files(Selection(folder, chosen, *_classes(relative, chosen)))


def _classes(relative: Mapping[Path, Path], chosen: Sequence[Path]) -> tuple[tuple[str, ...], list[int]] | tuple[()]:
    loose = [path for path in relative.values() if len(path.parts) == 1]
    names = tuple(sorted({path.parts[0] for path in relative.values()} - {*map(str, loose)}))
    if loose:
        if names:
            beside = f"{counted(len(loose), 'file')} such as {loose[0]} beside {counted(len(names), 'sub-folder')}"
            says = "all files are examples, and none has a class; for classes, move them into sub-folders"
            say(f"{beside} ({', '.join(names[:3])}{', ...' * (len(names) > 3)}): {says}")
        return ()
    numbers = {name: i for i, name in enumerate(names)}
    return names, [numbers[relative[file].parts[0]] for file in chosen]


def _load_array_folder(folder: Path, files: Sequence[Path], config: DataConfig, split: Split) -> Examples:
    for file in files:
        if split != "all" and part_of_file(file.stem) is None:
            raise ValueError(
                f"{file} does not name its split (train, validation, test): give the file itself, or rename it"
            )
    parts = _parts(files, lambda file: part_of_file(file.stem))
    if is_one_array(config):
        return _load_parts(
            folder, files, parts, lambda some: _load_volumes(Selection(folder, some), config, iter), config, split
        )
    examples = _load_parts(folder, files, parts, partial(load_arrays, options=config), config, split)
    return _fitted(folder, examples, config)


def _fitted(source: Path, examples: Examples, config: DataConfig) -> Examples:
    """Return examples of arrays as tiles if wanted, with the range of their part of the array."""
    is_known = config.num_values is not None or (examples.num_values, examples.lowest) == (256, 0)
    return in_tiles(source, examples if is_known else examples.in_own_range(source, None), config)


def _load_dataset(source: str, files: Sequence[Path], config: DataConfig, split: Split, progress: Progress) -> Examples:
    parts = {part: [dataset] for part, dataset in hugging_face.open_parts(source, files).items()}
    load_rows = partial(hugging_face.load_dataset, source=source, options=config, progress=progress)
    return _load_parts(source, [each for (each,) in parts.values()], parts, load_rows, config, split)


def _load_parts(
    source: Path | str,
    files: Sequence[Any],
    parts: Parts,
    load_files: Callable[[Sequence[Any]], Examples],
    config: DataConfig,
    split: Split,
) -> Examples:
    if split == "all":
        return load_files(files)
    if split in parts and split != "train":
        return load_files(parts[split])
    if "train" not in parts:
        raise _empty(source, split, parts)
    return _share(source, load_files(parts["train"]), config, split, parts)


def _parts(files: Sequence[Path], part_of: Callable[[Path], Part | None]) -> Parts:
    parts = dict[Part, list[Path]]()
    for file in files:
        parts.setdefault(part_of(file) or "train", []).append(file)
    return parts


def _share(source: Path | str, examples: Examples, config: DataConfig, split: Split, parts: Parts) -> Examples:
    values: object = examples.values
    blocks = values if isinstance(values, Blocks) else None
    bounds = blocks.bounds() if blocks else range(len(examples) + 1)
    chosen = consecutive_part(len(bounds) - 1, split, *_fractions(config, parts, test_default=0.0))
    if chosen.start == chosen.stop:
        if blocks:
            slabs = f"{source} has {len(bounds) - 1} slabs of blocks {list(blocks.block)}, too few for a {split} part"
            smaller = tuple(max(1, length // 2) for length in blocks.block)
            raise EmptySplitError(f"{slabs}: cut it into smaller ones, as by data.size={smaller}")
        raise _empty(source, split, parts, "example" * (len(bounds) == 2))
    start, stop = bounds[chosen.start], bounds[chosen.stop]
    return blocks.between(start, stop).examples(config) if blocks else examples.part(slice(start, stop))


def _fractions(config: DataConfig, parts: Parts, test_default: float) -> tuple[float, float]:
    test = test_default if config.test_fraction is None else config.test_fraction
    return 0.0 if "validation" in parts else config.validation_fraction, 0.0 if "test" in parts else test


def _without_frames(path: Path) -> ValueError:
    return ValueError(f"{path} holds videos: set how many frames a clip has, for example data.frames=16")


def _empty(source: Path | str, split: Split, parts: Parts, only: str = "") -> EmptySplitError:
    ways_out = {
        "train": "take another split",
        "validation": "raise data.validation_fraction, or change data.seed",
        "test": "set data.test_fraction, or give the test part as a source of its own with split=all",
    }
    if only and split != "test":
        ways_out[split] = f"one {only} cannot both train and validate, give two or more"
    return EmptySplitError(f"{source} has no {split} examples (it states {', '.join(parts)}): {ways_out[split]}")


MAX_OPENED = 1000


def picture_sizes(source: str | Path, options: DataConfig | None = None) -> list[tuple[int, ...]]:
    """Return width and height of at most a thousand images of a folder, or the axes of an array's examples.

    Raises:
        ValueError: an array that cannot be read.
    """
    folder = Path(source)
    if folder.is_file() and folder.suffix.lower() in npy.SUFFIXES:
        return _size_in_array(folder, options or DataConfig())
    with warnings.catch_warnings(action="ignore"):  # `load` gives the same ones
        files = _shown(folder) if folder.is_dir() else []
    if any(file.suffix.lower() in bair_videos.SUFFIXES for file in files):
        return []
    pictures = [file for file in files if file.suffix.lower() in picture_files.SUFFIXES]
    arrays = [file for file in files if file.suffix.lower() in npy.SUFFIXES and file.parent == folder]
    if arrays and not pictures:
        return _size_in_array(min(arrays, key=natural_key), options or DataConfig())
    sizes = list[tuple[int, ...]]()
    for file in pictures[:: max(1, len(pictures) // MAX_OPENED)]:
        try:
            with picture_files.opened(file) as header:
                sizes.append(picture_files.upright_size(file, header))
        except picture_files.PictureError:
            continue
    return sizes


def scan_axes(source: str | Path) -> dict[str, int]:
    """Return the letters and lengths of the axes of a scan, or of the first scan of a folder; none of other sources."""
    path = Path(source)
    files = [path] if scans.is_scan(path) else _scans(_shown(path)) if path.is_dir() else []
    for scan in map(scans.read_scan, files):
        return {letter: length for letter, length in zip(scan.axes, scan.values.shape, strict=True) if letter != "C"}
    return {}


def _size_in_array(file: Path, options: DataConfig) -> list[tuple[int, ...]]:
    shape = example_shape(file, options)
    return [shape] if len(shape) > 1 else []


_DIGITS: dict[Split, slice] = {
    "train": slice(0, 1350),
    "validation": slice(1350, 1500),
    "test": slice(1500, 1797),
    "all": slice(0, 1797),
}


def load_digits(split: Split) -> Examples:
    """Return 8x8 digits of 17 values: 1350 train, 150 validate, 297 test."""
    return load_arrays([Path(__file__).with_name("digits.npz")], DataConfig(num_values=17))[_DIGITS[split]]
