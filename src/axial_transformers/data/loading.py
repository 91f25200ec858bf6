"""Loading: from the name of a source to the examples of a split."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, get_args

from axial_transformers.data import bair_videos, hugging_face, images, npy, scans, video
from axial_transformers.data.arrays import example_shape, in_tiles, is_one_array, load_arrays, volume_in
from axial_transformers.data.blocks_of_arrays import (
    Blocks,
    Sliced,
    blocks_in,
    channels_last,
    cut_on_demand,
    joined_alike,
    range_of_array,
)
from axial_transformers.data.config import DataConfig, Split, is_hub_dataset
from axial_transformers.data.errors import ParsingError, say
from axial_transformers.data.examples import Examples, labelled
from axial_transformers.data.folders import files_below, gather, natural_key
from axial_transformers.data.splits import (
    EmptySplitError,
    Part,
    consecutive_part,
    hashed_parts,
    part_of_file,
    part_of_folder,
)
from axial_transformers.data.value_range import BYTES, ValueRange
from axial_transformers.progress import Progress
from axial_transformers.storage.files import source_path
from axial_transformers.wording import counted

DIGITS = Path(__file__).with_name("digits.npz")
"""1,797 digits of 8x8 pixels and 17 values."""
FEW = 8
MAX_OPENED = 1000
KINDS_OF_FOLDER = ("video", "image", "scan", "array", "parquet", "tar")
"""Of files of several kinds in a folder, `load` reads those of the first."""


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

    Hidden files are left out. `progress` wraps the loops over files.

    Raises:
        FileNotFoundError: no such source.
        EmptySplitError: nothing in that split; a ValueError.
        ValueError: examples that cannot be read; the message names the files.
    """
    config = config or DataConfig()
    if split != "train":
        config = replace(config, offsets="fixed")
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: choose one of {', '.join(get_args(Split))}")
    if source == "digits":  # 1,350 train, 150 validate, 297 test
        config = replace(config, num_values=config.num_values or 17)
        config = replace(config, validation_fraction=150 / 1797, test_fraction=297 / 1797)
    examples = _part(_opened(source, config, split, progress), config, split)
    if config.cut == "tiles" and isinstance(config.size, int) and examples.shape[-2:] != (config.size, config.size):
        examples = in_tiles(source, examples, config.size)
    values: object = examples.values
    if config.num_values not in (None, examples.range.num_values):
        known = f"values of {source} are {examples.range}; leave it out, or save them as an array"
        raise ValueError(f"data.num_values={config.num_values} is an option of arrays: {known}")
    if config.offsets == "random" and not isinstance(values, Blocks):
        raise ValueError(
            "data.offsets=random cuts clips of folders of videos and TFRecord files, tiles of pictures, and blocks,"
            f" which {source} has not: use data.offsets=fixed"
        )
    if split in ("validation", "test") and len(examples) < FEW:
        hint = f"its bits/dim mean little: train with a larger data.{split}_fraction, or with more data"
        say(f"the {split} part of {source} has only {counted(len(examples), 'example')}: {hint}")
    return examples


def _part(source: Source, config: DataConfig, split: Split) -> Examples:
    """Read one split; of blocks in order, whole slabs."""
    if split == "all":
        return source.read([*(source.names or chain(*source.parts.values()))])
    if split in source.parts and split != "train":
        return source.read(source.parts[split])
    train = source.parts.get("train", [])
    if not train:
        raise _empty(source, split)
    shares = (
        0.0 if "validation" in source.parts else config.validation_fraction,
        0.0 if "test" in source.parts else source.test_share if config.test_fraction is None else config.test_fraction,
    )
    if source.names is None:
        examples = source.read(train)
        values: object = examples.values
        bounds = values.bounds() if isinstance(values, Blocks) else range(len(examples) + 1)
        share = consecutive_part(len(bounds) - 1, split, *shares)
        if share.start == share.stop:
            raise _empty(source, split, ", or smaller blocks by data.size" if isinstance(values, Blocks) else "")
        return examples.part(slice(bounds[share.start], bounds[share.stop]))
    assigned = hashed_parts([source.names[file] for file in train], config.seed, *shares)
    chosen = [file for file, part in zip(train, assigned, strict=True) if part == split]
    if not chosen:
        raise _empty(source, split)
    return source.read(chosen)


def _empty(source: Source, split: Split, smaller: str = "") -> EmptySplitError:
    none = f"{source.name} has no {split} examples (it states {', '.join(source.parts)})"
    share = "" if split == "train" else f", raise data.{split}_fraction, or give that part as a source with split=all"
    return EmptySplitError(f"{none}: give more examples{smaller}{share}")


def _opened(source: str | Path, config: DataConfig, split: Split, progress: Progress) -> Source:
    path = _path(source)
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
    if kind in ("image", "video") and isinstance(config.size, tuple):
        raise ValueError(f"data.size={config.size} cuts arrays and scans: give pictures and videos one size")
    if kind in ("arrow", "parquet", "tar"):
        datasets = hugging_face.open_parts(str(source), files if kind != "arrow" else [])
        read = partial(hugging_face.load_dataset, source=str(source), options=config, progress=progress)
        return Source(source, {part: [dataset] for part, dataset in datasets.items()}, read)
    if files != [path]:
        return _of_folder(path, kind, files, config, split, progress)
    if kind == "image" and split != "all":
        raise ValueError(f"{path} is one picture without a {split} part: give a folder of pictures, or split all")
    part = part_of_file(path.stem)
    parts: Mapping[Part, Sequence[Path]] = {part if part == split and part else "train": files}
    file, _ = scans.parted(path)  # of file::folder/dataset
    return Source(path, parts, _reader(file.parent, kind, files, config, progress))


def _path(source: str | Path) -> Path:
    return DIGITS if source == "digits" else source_path(source)


def _nothing_in(path: Path, others: Sequence[Path]) -> ValueError:
    if any(file.suffix.lower() in video.SUFFIXES for file in (path, *others)):
        return ValueError(f"{path} holds videos: set how many frames a clip has, for example data.frames=16")
    for file in (path, *others):
        if advice := scans.advice_on(file):
            return ValueError(advice)
    return ValueError(
        f"{path} holds no images ({', '.join(images.SUFFIXES)}), no videos ({', '.join(video.SUFFIXES)}),"
        f" no TFRecord files, no arrays ({', '.join(npy.SUFFIXES)}), no scans ({', '.join(scans.SUFFIXES)}) and no"
        " .parquet or .tar files: give another file or folder, or digits"
    )


def _of_folder(
    folder: Path, kind: str, files: Sequence[Path], config: DataConfig, split: Split, progress: Progress
) -> Source:
    """Return a source of files whose names, or the names of whose folders, may state their parts."""
    below = {file: file.relative_to(folder) for file in files}
    if kind == "array":
        stated = {file: part_of_file(file.stem) for file in files}
        all_state = split != "all"
        advice = "does not name its split (train, validation, test): give the file itself, or rename it"
    else:
        stated = {file: part_of_folder(path.parts[0]) if path.parts[1:] else None for file, path in below.items()}
        all_state = any(stated.values())
        advice = "lies beside the folders of the splits: move it into one of them, or away"
    parts = dict[Part, list[Path]]()
    for file, part in stated.items():
        if all_state and part is None:
            raise ValueError(f"{file} {advice}")
        parts.setdefault(part or "train", []).append(file)
    if kind == "array":
        return Source(folder, parts, _reader(folder, kind, files, config, progress))
    if all_state:
        below = {file: path.relative_to(path.parts[0]) for file, path in below.items()}
    read = _reader(folder, kind, files, config, progress, None if kind == "scan" else _classes(below))
    names = {file: path.as_posix() for file, path in below.items()}
    return Source(folder, parts, read, names, 0.0 if all_state else 0.1)


def _classes(below: Mapping[Path, Path]) -> dict[Path, str] | None:
    """Return the sub-folder in which each file lies; None if one lies in none."""
    classes = {file: path.parts[0] for file, path in below.items() if path.parts[1:]}
    if classes and len(classes) < len(below):
        loose = counted(len(below) - len(classes), "file")
        say(f"{loose} beside sub-folders: no example has a class; for classes, move all files into sub-folders")
    return classes if len(classes) == len(below) else None


def _reader(
    root: Path,
    kind: str,
    files: Sequence[Path],
    config: DataConfig,
    progress: Progress,
    classes: Mapping[Path, str] | None = None,
) -> Callable[[Sequence[Path]], Examples]:
    """Return what makes examples of some of the files."""
    if kind == "array" and not is_one_array(config):
        return partial(load_arrays, options=config, root=root if len(files) > 1 else None)
    read: Callable[[Path], Iterator[tuple[str, Any]]] = partial(_volumes, options=config)
    bytes_only = False
    if kind in ("image", "video"):
        of_pixels = images.kind_of_images(files, config) if kind == "image" else video.kind_of_videos(files, config)
        read = partial(images.read_image if kind == "image" else video.read_videos, kind=of_pixels, options=config)
        bytes_only = of_pixels != "gray16"
    on_demand = kind not in ("image", "video") or config.offsets == "random"
    numbers = {name: i for i, name in enumerate(sorted({*(classes or {}).values()}))}

    def cut(file: Path) -> Iterator[tuple[Any, list[str]]]:
        for suffix, array in read(file):
            values, suffixes = (array, [""]) if on_demand else blocks_in(array, config)
            yield values, [suffix + each for each in suffixes]

    def load_files(chosen: Sequence[Path]) -> Examples:
        arrays, names, owners = gather(root, chosen, cut, config.skip_bad, progress)
        found = BYTES
        if not bytes_only:
            ranges = (range_of_array(name, each, config.grid, rounding=True) for name, each in zip(names, arrays))
            found = ValueRange.around([*ranges])
        if on_demand:
            blocks, names, of_arrays = cut_on_demand(dict(zip(names, arrays, strict=True)), config, found, root)
            values, owners = blocks.as_array(), [owners[number] for number in of_arrays]
        else:
            values = joined_alike(arrays, names, found, root)
        labels = [] if classes is None else [numbers[classes[chosen[owner]]] for owner in owners]
        return Examples(
            values=values,
            names=names,
            range=found.modelled(root, None if bytes_only else config.num_values),
            **(labelled(labels, len(labels), root, [*numbers]) if labels else {}),
        )

    return load_files


def _volumes(file: Path, options: DataConfig) -> Iterator[tuple[str, Sliced]]:
    """Yield the array [*A, C] of a scan or an array file."""
    scan = scans.read_scan(file, options.axes) if scans.is_scan(file) else None
    yield "", channels_last(scan.values, scan.axes) if scan else volume_in(file, options)


def files_of(source: Path, config: DataConfig) -> tuple[str, list[Path], list[Path]]:
    """Return what `load` reads of a file or a folder: its kind, the files of that kind, and all others.

    A kind is one of `KINDS_OF_FOLDER`, arrow, or "" where nothing is read. Folders of frames are videos.
    """
    if scans.is_scan(source) or not source.is_dir():
        return _kind_of_file(source, config), [source], []
    shown, left_out = files_below(source)
    if left_out:
        say(f"{source}: {left_out}")
    if hugging_face.is_saved(source):
        return "arrow", [file for file in shown if file.suffix == ".arrow"], []
    found = dict[str, list[Path]]()
    for file in shown:
        found.setdefault(_kind_of_file(file, config), []).append(file)
    if config.frames is not None:
        found["video"] = sorted([*found.get("video", []), *{file.parent for file in found.pop("image", [])}])
    elif "image" in found:  # beside images, a TIFF file of several pages is one that is not read
        found["image"] = [file for file in shown if file.suffix.lower() in images.SUFFIXES]
    found["array"] = [file for file in found.get("array", []) if file.parent == source]
    kind = next((kind for kind in KINDS_OF_FOLDER if found.get(kind)), "")
    files = found[kind] if kind else []
    if kind in ("array", "parquet", "tar"):
        files.sort(key=lambda file: (file.parent, natural_key(file)))
    read = {*files}
    return kind, files, [file for file in shown if not read & {file, file.parent}]


def _kind_of_file(file: Path, config: DataConfig) -> str:
    suffix = file.suffix.lower()
    if scans.is_scan(file):
        return "scan"
    if not file.is_file():
        return ""
    if suffix in bair_videos.SUFFIXES or (suffix in video.SUFFIXES and config.frames):
        return "video"
    if suffix in images.SUFFIXES:
        return "image"
    return "array" if suffix in npy.SUFFIXES else suffix[1:] if suffix in hugging_face.BUILDERS else ""


def example_sizes(source: str | Path, options: DataConfig) -> tuple[str, list[tuple[int, ...]]]:
    """Return lengths of the axes of some examples, and their letters where a scan states them, otherwise "".

    They are width and height of at most a thousand pictures, or the axes of the first array or scan.

    Raises:
        ValueError: an array or scan that cannot be read.
    """
    with warnings.catch_warnings(action="ignore"):  # `load` gives the same ones
        kind, files, _ = files_of(_path(source), options)
    if kind == "scan":
        scan = scans.read_scan(files[0], options.axes)
        axes = [(letter, length) for letter, length in zip(scan.axes, scan.values.shape) if letter != "C"]
        return "".join(letter for letter, _ in axes), [tuple(length for _, length in axes)]
    if kind == "array":
        shape = example_shape(files[0], options)
        return "", [shape] if len(shape) > 1 else []
    if kind == "video":
        files = [frame for folder in files if folder.is_dir() for frame in video.frames_in(folder)]
    sizes = list[tuple[int, ...]]()
    for file in files[:: max(1, len(files) // MAX_OPENED)] if kind in ("image", "video") else []:
        with suppress(ParsingError), images.opened(file) as header:
            sizes.append(images.upright_size(header))
    return "", sizes
