"""Sources: what a name stands for, what there is, and the examples of its parts."""

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np

from axial_transformers.data import bair_videos, hugging_face, images, npy, scans, tables, video
from axial_transformers.data.arrays import example_shape, load_arrays, volume_in
from axial_transformers.data.blocks import Blocks, Sliced, View, channels_last, cut, differing, range_of_array
from axial_transformers.data.config import DataConfig, Split, is_hub_dataset
from axial_transformers.data.errors import ParsingError, say
from axial_transformers.data.examples import Examples, labelled
from axial_transformers.data.folders import files_below, gather, natural_key
from axial_transformers.data.images import PixelKind
from axial_transformers.data.lazy_array import Values, joined
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
"""1,797 digits of 8x8 pixels and 17 values: 1,350 train, 150 validate, 297 test."""
FEW = 8
MAX_OPENED = 1000
KINDS_OF_FOLDER = ("video", "image", "scan", "array", "parquet", "tar")
"""A folder that holds files of several kinds is read as the first of these."""
DATASETS = ("arrow", "parquet", "tar")
READ_BY = {
    "axes": ("array", "table", "scan", *DATASETS),
    "key": ("array",),
    "decimal": ("table",),
    "column": DATASETS,
    "label_column": ("table", *DATASETS),
}
"""Options that some kinds of sources have."""


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
    return open_source(source, config, progress).part(split)


def open_source(name: str | Path, config: DataConfig | None = None, progress: Progress = iter) -> "Source":
    """List what a source holds; its parts are read when they are asked for.

    Args:
        name: see `load`.
        progress: wraps the loops over files.

    Raises:
        FileNotFoundError: no such source.
        ValueError: nothing in it that is read, or not in this way.
    """
    config = config or DataConfig()
    path = DIGITS if name == "digits" else source_path(name)
    if is_hub_dataset(name):
        listing = Listing("arrow", [], [])
    elif path.exists() or scans.is_scan(path):
        listing = list_files(path, config)
    else:
        raise FileNotFoundError(f"{path}: no such file or folder (the bundled digits are called digits)")
    return Source(name, path, listing, config, progress)


def source_name(source: str | Path) -> str:
    """Return the name of a source as a string: that of the path `digits` is not that of the bundled digits."""
    return f"./{source}" if source == Path("digits") else str(source)


@dataclass(frozen=True)
class Listing:
    """The files of a source."""

    kind: str
    """One of `KINDS_OF_FOLDER`, arrow, or "" where nothing is read. Folders of frames are videos."""
    files: Sequence[Path]
    """The files of that kind, or folders of frames."""
    others: Sequence[Path]
    """All other files."""
    is_one_file: bool = False
    """True for a file, or a folder that is one scan or the frames of one video."""

    @property
    def all(self) -> list[Path]:
        return [*self.files, *self.others]


class Source:
    """What a name stands for. Its files are listed once; each is read once for all parts, and when it is needed.

    Attributes:
        name: as the user gave it.
        path: the file or folder; `file::dataset` of HDF5 or Zarr.
        listing: its files.
        config: how they are read.
    """

    def __init__(self, name: str | Path, path: Path, listing: Listing, config: DataConfig, progress: Progress) -> None:
        if name == "digits":
            values = config.num_values or 17
            config = replace(config, num_values=values, validation_fraction=150 / 1797, test_fraction=297 / 1797)
        self.name = name
        self.path = path
        self.listing = listing
        self.config = config
        self._progress = progress
        self._read_stored = lru_cache(1)(scans.read_stored)
        self._kept: tuple[Sequence[Any], Examples] | None = None
        self._check_options()

    def with_config(self, config: DataConfig) -> "Source":
        """Return the same source, read with other options that leave the kind of its files as it is."""
        source = Source(self.name, self.path, self.listing, config, self._progress)
        source._read_stored = self._read_stored
        return source

    def scan(self, file: Path) -> scans.Scan:
        """Return the scan in a file, with the axes that the options state; the last one that was read is kept."""
        return scans.with_axes(file, self._read_stored(file), self.config.axes)

    def file_axes(self, file: Path) -> str:
        """Return the axes of a scan that its file states, or those that the options state where the file does not."""
        stored = self._read_stored(file)
        return self.scan(file).axes if "?" in stored.axes or len(stored.axes) != stored.values.ndim else stored.axes

    def _check_options(self) -> None:
        config = self.config
        kind = self.listing.kind
        if not kind:
            raise self._nothing()
        if kind != "video" and (config.frames, config.stride) != (None, 1):
            raise ValueError(
                f"{self.name} holds no videos, which data.frames and data.stride cut: data.size cuts other arrays"
            )
        if kind in ("image", "video") and isinstance(config.size, tuple):
            raise ValueError(f"data.size={config.size} cuts arrays and scans: give pictures and videos one size")

    def say_unused_options(self) -> None:
        """Say which options that are set change nothing, since other kinds of sources have them."""
        kind = self.listing.kind
        if kind == "array" and self.listing.files[0].suffix.lower() in tables.SUFFIXES:
            kind = "table"
        for option, kinds in READ_BY.items():
            if kind not in kinds and getattr(self.config, option) is not None:
                say(f"data.{option} changes nothing for {self.name}: it is an option of other kinds of sources")

    def _nothing(self) -> ValueError:
        for file in (self.path, *self.listing.others):
            if file.suffix.lower() in video.SUFFIXES:
                return ValueError(
                    f"{self.path} holds videos: set how many frames a clip has, for example data.frames=16"
                )
            if advice := scans.advice_on(file):
                return ValueError(advice)
        return ValueError(
            f"{self.path} holds no images, arrays, tables, scans, data sets (.parquet, .tar) or TFRecord files: give "
            "another file or folder, or digits (docs/how-to/prepare_data.md lists all suffixes)"
        )

    @property
    def _is_dataset(self) -> bool:
        return self.listing.kind in DATASETS

    @cached_property
    def example_axes(self) -> tuple[str, list[tuple[int, ...]]]:
        """Letters of the axes, where a scan states them, else "", and the lengths of the axes of some examples.

        They are width and height of at most a thousand pictures, or the axes of the first array or scan.

        Raises:
            ValueError: an array or scan that cannot be read.
        """
        kind = self.listing.kind
        files = self.listing.files
        with warnings.catch_warnings(action="ignore"):  # `part` gives the same ones
            if kind == "scan":
                scan = self.scan(files[0])
                axes = zip(scan.axes, scan.values.shape)
                lengths = {letter: length for letter, length in axes if letter not in "NC"}
                return "".join(lengths), [tuple(lengths.values())]
            if kind == "array":
                shape = example_shape(files[0], self.config)
                return "", [shape] if len(shape) > 1 else []
            if kind == "video":
                files = [frame for folder in files if folder.is_dir() for frame in video.frames_in(folder)]
            elif kind != "image":
                return "", []
        sizes: list[tuple[int, ...]] = []
        for file in files[:: max(1, len(files) // MAX_OPENED)]:
            with suppress(ParsingError), images.opened(file) as header:
                sizes.append(images.upright_size(header))
        return "", sizes

    def part(self, split: Split = "train") -> Examples:
        """Return the examples of one split; see `load`."""
        if split not in get_args(Split):
            raise ValueError(f"no split {split!r}: choose one of {', '.join(get_args(Split))}")
        examples = self._read_part(split)
        size = self.config.size
        if self._holds_examples and self.config.cut == "tiles" and examples.shape[-2:] != (size, size):
            examples = self._in_tiles(examples)
        if self.config.num_values not in (None, examples.range.num_values):
            raise ValueError(
                f"data.num_values={self.config.num_values} is an option of arrays: values of {self.name} are "
                f"{examples.range}; leave it out, or save them as an array"
            )
        if isinstance(examples.values, Blocks):
            if split != "train":
                examples = replace(examples, values=examples.values.in_order())
        elif split == "train" and self.config.offsets == "random":
            raise ValueError(
                "data.offsets=random cuts clips of folders of videos and TFRecord files, tiles of pictures, and "
                f"blocks, which {self.name} has not: use data.offsets=fixed"
            )
        if split in ("validation", "test") and len(examples) < FEW:
            say(
                f"the {split} part of {self.name} has only {counted(len(examples), 'example')}, too few for a reliable"
                f" bits/dim: use a larger data.{split}_fraction or more data"
            )
        return examples

    def _read_part(self, split: Split) -> Examples:
        """Return the examples of one split, not yet cut into tiles; of blocks in order, whole slabs."""
        if self.listing.is_one_file and split != "all":
            if self.listing.kind == "image":
                raise ValueError(
                    f"{self.path} is one picture without a {split} part: give a folder of pictures, or split=all"
                )
            stated = part_of_file(self.path.stem)
            if stated in ("validation", "test"):
                if split != stated:
                    raise EmptySplitError(
                        f"{self.name} is by its name the {stated} part, and has no {split} part: rename it to divide it"
                    )
                split = "all"
        if split == "all":
            return self._read([*(chain(*self._parts.values()) if self._is_in_order else self._below)])
        self._require_stated()
        if split in self._parts and split != "train":
            return self._read(self._parts[split])
        train = self._parts.get("train", [])
        if self._is_in_order and train:
            return self._consecutive(self._read(train), split)
        names = [self._below[file].as_posix() for file in train]
        assigned = hashed_parts(names, self.config.seed, *self._shares)
        files = [file for file, part in zip(train, assigned) if part == split]
        if not files:
            raise self._empty(split)
        return self._read(files)

    def _require_stated(self) -> None:
        """Raise ValueError for an array file whose name has to state its part, and does not."""
        if self.listing.kind != "array" or self.listing.is_one_file:
            return
        for file, part in self._stated.items():
            if part is None:
                raise ValueError(
                    f"{file} does not name its split (train, validation, test): give the file itself, or rename it"
                )

    def _consecutive(self, examples: Examples, split: Split) -> Examples:
        bounds: Sequence[int] = range(len(examples) + 1)
        advice = "give more examples"
        if isinstance(examples.values, Blocks):
            bounds = examples.values.bounds()
            advice += ", or smaller blocks by data.size"
        chosen = consecutive_part(len(bounds) - 1, split, *self._shares)
        if chosen.start == chosen.stop:
            raise self._empty(split, advice)
        return examples.part(slice(bounds[chosen.start], bounds[chosen.stop]))

    def _empty(self, split: Split, advice: str = "give more examples") -> EmptySplitError:
        if split != "train":
            advice += f", raise data.{split}_fraction, or give that part as a source with split=all"
        return EmptySplitError(f"{self.name} has no {split} examples (it states {', '.join(self._parts)}): {advice}")

    @cached_property
    def _parts(self) -> dict[Part, list[Any]]:
        """Files, or data sets, by the part that their names or folders state. What states none trains."""
        if self._is_dataset:
            of_builder = [] if self.listing.kind == "arrow" else self.listing.files
            datasets = hugging_face.open_parts(str(self.name), of_builder)
            return {part: [dataset] for part, dataset in datasets.items()}
        parts: dict[Part, list[Any]] = {}
        for file, part in self._stated.items():
            parts.setdefault(part or "train", []).append(file)
        return parts

    @cached_property
    def _stated(self) -> dict[Path, Part | None]:
        """The part that the name of each file states, or its folder below that of the source."""
        return {file: self._stated_part(file) for file in self.listing.files}

    def _stated_part(self, file: Path) -> Part | None:
        if self.listing.is_one_file:
            return None
        if self.listing.kind == "array":
            return part_of_file(file.stem)
        folders = file.relative_to(self.path).parts[:-1]
        return part_of_folder(folders[0]) if folders else None

    @cached_property
    def _below(self) -> dict[Path, Path]:
        """The paths of files in the folder, or in that of their part.

        Raises:
            ValueError: a file lies beside the folders of parts.
        """
        below = {file: file.relative_to(self.path) for file in self.listing.files}
        if not self._states_parts:
            return below
        for file, part in self._stated.items():
            if part is None:
                raise ValueError(f"{file} lies beside the folders of the splits: move it into one of them, or away")
        return {file: path.relative_to(path.parts[0]) for file, path in below.items()}

    @property
    def _states_parts(self) -> bool:
        return any(self._stated.values())

    @property
    def _is_in_order(self) -> bool:
        """True if parts that nothing states follow each other; those of single files are chosen by their names."""
        return self._is_dataset or self.listing.is_one_file or self.listing.kind == "array"

    @property
    def _shares(self) -> tuple[float, float]:
        """The shares of examples that validate and that test, of parts that nothing states."""
        validation = 0.0 if "validation" in self._parts else self.config.validation_fraction
        usual = 0.0 if self._is_in_order or self._states_parts else 0.1
        test = usual if self.config.test_fraction is None else self.config.test_fraction
        return validation, 0.0 if "test" in self._parts else test

    def _read(self, items: Sequence[Any]) -> Examples:
        """Return the examples of files or data sets. The last ones that were read are kept for other parts of them."""
        if self._kept is None or self._kept[0] != items:
            self._kept = items, self._read_anew(items)
        return self._kept[1]

    def _read_anew(self, items: Sequence[Any]) -> Examples:
        if self._is_dataset:
            return hugging_face.load_dataset(items, str(self.name), self.config, self._progress)
        if self._holds_examples:
            return load_arrays(items, self.config, self.path if len(self.listing.files) > 1 else None)
        root = scans.parted(self.path)[0].parent if self.listing.is_one_file else self.path
        arrays, names, owners = gather(root, items, self._arrays_in, self.config.skip_bad, self._progress)
        values_range = BYTES
        if not self._holds_bytes:
            grid = self.config.grid
            ranges = [range_of_array(name, array, grid, rounding=True) for name, array in zip(names, arrays)]
            values_range = ValueRange.around(ranges)
        values: Values
        names_of_values: Sequence[str]
        if self._holds_pixels and not self.config.divides:
            _require_alike(arrays, names, self.path)
            arrays = [array[None] for array in arrays]  # `joined` frees what it has copied
            values = joined(arrays, values_range.type)
            names_of_values = names
        else:
            values, names_of_values, owners_of_blocks = cut(arrays, names, self.config, values_range, self.path)
            owners = [owners[number] for number in owners_of_blocks]
        return Examples(
            values=values,
            names=names_of_values,
            range=values_range.modelled(self.path, None if self._holds_bytes else self.config.num_values),
            **self._class_labels([items[owner] for owner in owners]),
        )

    @property
    def _holds_examples(self) -> bool:
        """True if array files hold [N, *A, C], and not one array each that is cut."""
        is_cut = isinstance(self.config.size, tuple) or "N" not in (self.config.axes or "N")
        return self.listing.kind == "array" and not is_cut

    @property
    def _holds_pixels(self) -> bool:
        return self.listing.kind in ("image", "video")

    @property
    def _holds_bytes(self) -> bool:
        """True for pictures and videos of 8 bits."""
        return self._holds_pixels and self._pixel_kind != "gray16"

    @cached_property
    def _pixel_kind(self) -> PixelKind:
        """The channels as which all pictures or videos are read."""
        reader = images if self.listing.kind == "image" else video
        return reader.choose_kind(self.listing.files, self.config)

    def _arrays_in(self, file: Path) -> Iterator[tuple[str, Sliced]]:
        """Yield the arrays [*A, C] of a file, with suffixes of their names."""
        if self.listing.kind == "image":
            image = images.decoded(file, self._pixel_kind, self.config)
            yield "", images.at_size(file, image, self.config)
        elif self.listing.kind == "video":
            yield from video.read_videos(file, self._pixel_kind, self.config)
        elif self.listing.kind == "scan":
            scan = self.scan(file)
            array = channels_last(scan.values, scan.axes)
            if "N" not in scan.axes:
                yield "", array
                return
            for number in range(array.shape[0]):
                yield f"#{number}", View(array, (number,))
        else:
            yield "", volume_in(file, self.config)

    def _class_labels(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return the classes of examples of these files, as fields of `Examples`; nothing without classes."""
        if self._classes is None:
            return {}
        names = sorted({*self._classes.values()})
        numbers = np.searchsorted(names, [self._classes[file] for file in files])
        return labelled(numbers, len(files), self.path, names)

    @cached_property
    def _classes(self) -> dict[Path, str] | None:
        """The sub-folder in which each picture or video lies; None if one lies in none."""
        if not self._holds_pixels or self.listing.is_one_file:
            return None
        classes = {file: path.parts[0] for file, path in self._below.items() if path.parts[1:]}
        loose = len(self._below) - len(classes)
        if classes and loose:
            say(
                f"{counted(loose, 'file')} beside sub-folders: no example has a class; for classes, move all files into"
                " sub-folders"
            )
        return None if loose else classes

    def _in_tiles(self, examples: Examples) -> Examples:
        """Return the tiles of examples in array files, of which a part is whole examples."""
        values = np.asarray(examples.values)
        values_range = ValueRange.of(values)._replace(grid=examples.range.grid)
        blocks, names, owners = cut([*values], examples.names, self.config, values_range, self.name)
        labels = None if examples.labels is None else examples.labels[owners]
        return replace(examples, values=blocks, names=names, labels=labels)


def _require_alike(arrays: Sequence[Sliced], names: Sequence[str], where: object) -> None:
    """Raise ValueError for arrays of different shapes."""
    for array, name in zip(arrays, names):
        if array.shape != arrays[0].shape:
            raise ValueError(f"{where}: {differing(names[0], arrays[0].shape, name, array.shape)}")


def list_files(source: Path, config: DataConfig) -> Listing:
    """Return what is read of a file or a folder, and what is not."""
    if scans.is_scan(source) or not source.is_dir():
        return Listing(_file_kind(source, config), [source], [], is_one_file=True)
    shown, left_out = files_below(source)
    if left_out:
        say(f"{left_out} in {source}")
    if hugging_face.is_saved(source):
        return Listing("arrow", [file for file in shown if file.suffix == ".arrow"], [])
    by_kind: defaultdict[str, list[Path]] = defaultdict(list)
    for file in shown:
        if kind := _file_kind(file, config):
            by_kind[kind].append(file)
    pictures = by_kind.pop("image", [])
    if config.frames:
        folders_of_frames = {file.parent for file in pictures}
        by_kind["video"] = sorted([*by_kind["video"], *folders_of_frames])
    elif pictures:  # beside images, a TIFF file of several pages is one that is not read
        by_kind["image"] = [file for file in shown if file.suffix.lower() in images.SUFFIXES]
    by_kind["array"] = [file for file in by_kind["array"] if file.parent == source]
    kind = next((kind for kind in KINDS_OF_FOLDER if by_kind[kind]), "")
    files = by_kind[kind]
    if kind in ("array", "parquet", "tar"):
        files.sort(key=lambda file: (file.parent, natural_key(file)))
    read = {*files}
    others = [file for file in shown if not read & {file, file.parent}]
    return Listing(kind, files, others, is_one_file=files == [source])


def _file_kind(file: Path, config: DataConfig) -> str:
    """Return one of `KINDS_OF_FOLDER`, or "" for a file that is not read."""
    suffix = file.suffix.lower()
    if scans.is_scan(file):
        return "scan"
    if suffix in bair_videos.SUFFIXES or (suffix in video.SUFFIXES and config.frames):
        return "video"
    if suffix in images.SUFFIXES:
        return "image"
    if suffix in npy.SUFFIXES:
        return "array"
    return suffix[1:] if suffix in hugging_face.BUILDERS else ""
