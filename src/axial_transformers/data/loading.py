"""Loading: from the name of a source to the examples of a split."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, get_args

from axial_transformers.data import bair_videos, hugging_face, images, npy, picture_files, scans, video
from axial_transformers.data.arrays import example_shape, in_tiles, is_one_array, load_arrays, volume_in
from axial_transformers.data.blocks_of_arrays import Blocks, Sliced, channels_last, cut_volumes
from axial_transformers.data.config import DataConfig, Split, is_hub_dataset
from axial_transformers.data.examples import Examples
from axial_transformers.data.folders import Selection, files_below, natural_key
from axial_transformers.data.parsing import say
from axial_transformers.data.splits import (
    EmptySplitError,
    Part,
    consecutive_part,
    hashed_parts,
    part_of_file,
    part_of_folder,
)
from axial_transformers.progress import Progress
from axial_transformers.storage.files import source_path
from axial_transformers.wording import counted

FEW = 8


class Source(NamedTuple):
    """What a source holds, before it is read."""

    name: object
    parts: Mapping[Part, Sequence[Any]]
    """Files or data sets whose names state these parts; what states none trains."""
    read: Callable[[Sequence[Any]], Examples]
    names: Mapping[Any, str] | None = None
    """Names of single files, by whose hash the parts are chosen that nothing states; None: these parts are in order."""
    test_share: float = 0.0
    """Of the test part, where neither names nor options say."""
    finish: Callable[[Examples], Examples] = lambda examples: examples
    """What is done to the examples of a part."""


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
        `hf:OWNER/NAME[/SUBSET][@REVISION]`: a data set of the Hugging Face hub. A folder of its `save_to_disk`.
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
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: choose one of {', '.join(get_args(Split))}")
    if source == "digits":
        examples = load_digits(split)
    else:
        opened = _opened(source, config, split, progress)
        examples = opened.finish(_part(opened, config, split))
    values: object = examples.values
    if config.num_values not in (None, examples.num_values):
        known = f"values of {source} are 0..{examples.num_values - 1}; leave it out, or save them as an array"
        raise ValueError(f"data.num_values={config.num_values} is an option of arrays: {known}")
    if config.offsets == "random" and not isinstance(values, Blocks):
        raise ValueError(
            "data.offsets=random cuts clips of folders of videos and TFRecord files, and tiles of folders of pictures,"
            f" which {source} is not: use data.offsets=fixed"
        )
    if split in ("validation", "test") and len(examples) < FEW:
        hint = f"its bits/dim mean little: train with a larger data.{split}_fraction, or with more data"
        say(f"the {split} part of {source} has only {counted(len(examples), 'example')}: {hint}")
    return examples


def _part(source: Source, config: DataConfig, split: Split) -> Examples:
    """Read one split."""
    if split == "all":
        return source.read([*(source.names or chain(*source.parts.values()))])
    if split in source.parts and split != "train":
        return source.read(source.parts[split])
    train = source.parts.get("train", [])
    shares = (
        0.0 if "validation" in source.parts else config.validation_fraction,
        0.0 if "test" in source.parts else source.test_share if config.test_fraction is None else config.test_fraction,
    )
    if source.names is None:
        if not train:
            raise _empty(source, split)
        return _share(source, source.read(train), config, split, shares)
    assigned = hashed_parts([source.names[file] for file in train], config.seed, *shares)
    chosen = [file for file, part in zip(train, assigned, strict=True) if part == split]
    if not chosen:
        raise _empty(source, split, "file" * (len(train) == 1))
    return source.read(chosen)


def _share(
    source: Source, examples: Examples, config: DataConfig, split: Split, shares: tuple[float, float]
) -> Examples:
    """Return a part of examples in order; of blocks, whole slabs."""
    values: object = examples.values
    blocks = values if isinstance(values, Blocks) else None
    bounds = blocks.bounds() if blocks else range(len(examples) + 1)
    chosen = consecutive_part(len(bounds) - 1, split, *shares)
    if chosen.start == chosen.stop:
        if blocks:
            slabs = f"{source.name} has {len(bounds) - 1} slabs of blocks {list(blocks.block)}, too few for {split}"
            smaller = tuple(max(1, length // 2) for length in blocks.block)
            raise EmptySplitError(f"{slabs}: cut it into smaller ones, as by data.size={smaller}")
        raise _empty(source, split, "example" * (len(bounds) == 2))
    start, stop = bounds[chosen.start], bounds[chosen.stop]
    return examples.part(slice(start, stop))


def _empty(source: Source, split: Split, only: str = "") -> EmptySplitError:
    ways_out = {
        "train": "take another split",
        "validation": "raise data.validation_fraction, or change data.seed",
        "test": "set data.test_fraction, or give the test part as a source of its own with split=all",
    }
    if only and split != "test":
        ways_out[split] = f"one {only} cannot both train and validate, give two or more"
    stated = ", ".join(source.parts)
    return EmptySplitError(f"{source.name} has no {split} examples (it states {stated}): {ways_out[split]}")


def _opened(source: str | Path, config: DataConfig, split: Split, progress: Progress) -> Source:
    path = source_path(source)
    is_of_hub = is_hub_dataset(source)
    if not (is_of_hub or path.exists() or scans.is_scan(path)):
        raise FileNotFoundError(f"{path}: no such file or folder (the bundled digits are called digits)")
    kind, files, others = ("arrow", [], []) if is_of_hub else files_of(path, config)
    if not kind:
        raise _nothing_in(path, others)
    if kind != "video" and (config.frames, config.stride) != (None, 1):
        raise ValueError(
            f"{source} holds no videos, which data.frames and data.stride cut: data.size cuts other arrays"
        )
    if kind in ("arrow", "parquet", "tar"):
        return _dataset(str(source), files if kind != "arrow" else [], config, progress)
    if kind == "array":
        return _of_arrays(path, files, config, split, progress)
    read = _reader(kind, files, config, progress)
    if files != [path]:
        return _each(path, files, read)
    if kind == "image" and split != "all":
        raise ValueError(f"{path} is one picture without a {split} part: give a folder of pictures, or split all")
    return Source(path, _parts_of_file(path, split), lambda chosen: read(Selection(path.parent, chosen)))


def _nothing_in(path: Path, others: Sequence[Path]) -> ValueError:
    if any(file.suffix.lower() in video.SUFFIXES for file in (path, *others)):
        return ValueError(f"{path} holds videos: set how many frames a clip has, for example data.frames=16")
    return ValueError(
        f"{path} holds no images ({', '.join(picture_files.SUFFIXES)}), no videos ({', '.join(video.SUFFIXES)}),"
        f" no TFRecord files, no arrays ({', '.join(npy.SUFFIXES)}), no scans ({', '.join(scans.SUFFIXES)}) and no"
        " .parquet or .tar files: give another file or folder, or digits"
    )


def _reader(
    kind: str, files: Sequence[Path], config: DataConfig, progress: Progress
) -> Callable[[Selection], Examples]:
    if kind == "video":
        pixels = video.kind_of_videos(files, config)
        return partial(video.load_videos, options=config, kind=pixels, progress=progress)
    if kind == "image":
        pixels = images.kind_of_images(files, config)
        return partial(images.load_images, options=config, kind=pixels, progress=progress)
    return partial(_volumes, config=config, progress=progress)


def _parts_of_file(file: Path, split: Split) -> Mapping[Part, Sequence[Path]]:
    part = part_of_file(file.stem)
    return {part if part == split and part else "train": [file]}


def _volumes(selection: Selection, config: DataConfig, progress: Progress) -> Examples:
    volumes = dict[str, Sliced]()
    for file in progress(selection.chosen):
        scan = scans.read_scan(file) if scans.is_scan(file) else None
        name = file.relative_to(selection.root).as_posix()
        volumes[name] = channels_last(scan.values, scan.axes) if scan else volume_in(file, config)
    return cut_volumes(volumes, config)


def _of_arrays(path: Path, files: Sequence[Path], config: DataConfig, split: Split, progress: Progress) -> Source:
    def fitted(examples: Examples) -> Examples:
        is_known = config.num_values is not None or (examples.num_values, examples.lowest) == (256, 0)
        return in_tiles(path, examples if is_known else examples.in_own_range(path, None), config)

    root, parts = path, _parts_of_file(path, split)
    if files == [path]:
        root = path.parent
    else:
        stated = [(file, part_of_file(file.stem)) for file in files]
        parts = _parts(stated)
        for file, part in stated:
            if part is None and split != "all":
                wanted = "does not name its split (train, validation, test): give the file itself, or rename it"
                raise ValueError(f"{file} {wanted}")
    if is_one_array(config):
        return Source(path, parts, lambda chosen: _volumes(Selection(root, chosen), config, progress))
    return Source(path, parts, partial(load_arrays, options=config), finish=fitted)


def _dataset(source: str, files: Sequence[Path], config: DataConfig, progress: Progress) -> Source:
    parts: Mapping[Part, Sequence[Any]] = {
        part: [dataset] for part, dataset in hugging_face.open_parts(source, files).items()
    }
    return Source(source, parts, partial(hugging_face.load_dataset, source=source, options=config, progress=progress))


def files_of(source: Path, config: DataConfig) -> tuple[str, list[Path], list[Path]]:
    """Return what `load` reads of a file or a folder: its kind, the files of that kind, and all others.

    A kind is video, scan, image, array, arrow, tar, parquet, or "" where nothing is read. Folders of frames are videos.
    """
    if scans.is_scan(source) or not source.is_dir():
        return _kind_of_file(source, config), [source], []
    folder, shown = source, _shown(source)
    if hugging_face.is_saved(folder):
        return "arrow", [file for file in shown if file.suffix == ".arrow"], []
    pictures = [file for file in shown if file.suffix.lower() in picture_files.SUFFIXES]
    arrays = [file for file in shown if file.suffix.lower() in npy.SUFFIXES and file.parent == folder]
    kinds = {
        "video": _clips_among(shown, config),
        "scan": _scans_among(shown),
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


def _kind_of_file(file: Path, config: DataConfig) -> str:
    suffix = file.suffix.lower()
    if scans.is_scan(file):
        return "scan"
    if not file.is_file():
        return ""
    if suffix in picture_files.SUFFIXES and not (suffix in video.SUFFIXES and config.frames):
        return "image"
    if suffix in bair_videos.SUFFIXES or (suffix in video.SUFFIXES and config.frames):
        return "video"
    return "array" if suffix in npy.SUFFIXES else suffix[1:] if suffix in hugging_face.BUILDERS else ""


def _shown(folder: Path) -> list[Path]:
    files, left_out = files_below(folder)
    if left_out:
        say(f"{folder}: {left_out}")
    return files


def _scans_among(files: Sequence[Path]) -> list[Path]:
    """Return the scans among files, but none beside pictures, where a TIFF file of several pages is an unfit one."""
    found = [file for file in files if scans.is_scan(file)]
    pictures = {file for file in files if file.suffix.lower() in picture_files.SUFFIXES}
    return found if pictures <= {*found} else []


def _clips_among(files: Sequence[Path], config: DataConfig) -> list[Path]:
    records = [file for file in files if file.suffix.lower() in bair_videos.SUFFIXES]
    if config.frames is None:
        return records
    of_frames = {file.parent for file in files if video.is_frame(file)}
    return sorted([*records, *of_frames, *(file for file in files if file.suffix.lower() in video.SUFFIXES)])


def _each(folder: Path, files: Sequence[Path], load_files: Callable[[Selection], Examples]) -> Source:
    """Return a source of single files, in folders that may state their parts, and of classes in these."""
    relative = {file: file.relative_to(folder) for file in files}
    stated = [(file, part_of_folder(path.parts[0]) if path.parts[1:] else None) for file, path in relative.items()]
    has_splits = any(part for _, part in stated)
    if has_splits:
        for file, part in stated:
            if part is None:
                raise ValueError(f"{file} lies beside the folders of the splits: move it into one of them, or away")
        relative = {file: path.relative_to(path.parts[0]) for file, path in relative.items()}
    names = {file: path.as_posix() for file, path in relative.items()}
    test_share = 0.0 if has_splits else 0.1

    def read(chosen: Sequence[Path]) -> Examples:
        return load_files(Selection(folder, chosen, *_classes(relative, chosen)))

    return Source(folder, _parts(stated), read, names, test_share)


def _parts(stated: Sequence[tuple[Path, Part | None]]) -> dict[Part, list[Path]]:
    parts = dict[Part, list[Path]]()
    for file, part in stated:
        parts.setdefault(part or "train", []).append(file)
    return parts


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


MAX_OPENED = 1000


def example_sizes(source: str | Path, options: DataConfig) -> tuple[str, list[tuple[int, ...]]]:
    """Return lengths of the axes of some examples, and their letters where a scan states them, otherwise "".

    They are width and height of at most a thousand pictures, or the axes of the first array or scan.

    Raises:
        ValueError: an array or scan that cannot be read.
    """
    with warnings.catch_warnings(action="ignore"):  # `load` gives the same ones
        kind, files, _ = files_of(Path(source), options)
    if kind == "scan":
        scan = scans.read_scan(files[0])
        axes = [(letter, length) for letter, length in zip(scan.axes, scan.values.shape) if letter != "C"]
        return "".join(letter for letter, _ in axes), [tuple(length for _, length in axes)]
    if kind == "array":
        shape = example_shape(files[0], options)
        return "", [shape] if len(shape) > 1 else []
    if kind == "video":
        files = [frame for folder in files if folder.is_dir() for frame in video.frames_in(folder)]
    sizes = list[tuple[int, ...]]()
    for file in files[:: max(1, len(files) // MAX_OPENED)] if kind in ("image", "video") else []:
        with suppress(picture_files.PictureError), picture_files.opened(file) as header:
            sizes.append(picture_files.upright_size(header))
    return "", sizes


_DIGITS: dict[Split, slice] = {
    "train": slice(0, 1350),
    "validation": slice(1350, 1500),
    "test": slice(1500, 1797),
    "all": slice(0, 1797),
}


def load_digits(split: Split) -> Examples:
    """Return 8x8 digits of 17 values: 1350 train, 150 validate, 297 test."""
    return load_arrays([Path(__file__).with_name("digits.npz")], DataConfig(num_values=17))[_DIGITS[split]]
