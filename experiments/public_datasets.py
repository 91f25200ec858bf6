"""Builds the data sets that the documentation quotes from their public sources, and prints their fingerprints.

    python experiments/public_datasets.py fashion_mnist DATA
    python experiments/public_datasets.py imagenet --files train_32x32.tar valid_32x32.tar

fashion_mnist, mnist, clips64, photos and bair (32 GB, twice) are downloaded, compared with their checksums, and built
in the folder DATA. Downsampled ImageNet needs an account at image-net.org: its files are checked where they are, and
a folder of them is a data set as it stands. Exit status 2, and one line, if a file or a fingerprint is not the quoted
one; JSON on the last line.
"""

import gzip
import hashlib
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data import DataConfig, load, save_arrays
from dataset_sources import IMAGENET, QUOTED, SOURCES, TEST_PHOTOS, Quoted
from of_benchmarks import run_command

Files = Mapping[str, Path]
"""Downloaded files, by their names."""


def fetched(name: str, folder: Path) -> Files:
    """The files of a source, downloaded unless they are in the folder already."""
    files = {address.rpartition("/")[2]: folder / "downloads" / address.rpartition("/")[2] for address in SOURCES[name]}
    for address, checksum in SOURCES[name].items():
        path = files[address.rpartition("/")[2]]
        if not path.is_file():
            with urlopen(address, timeout=60) as stream:
                copy(stream, path)
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256" if len(checksum) == 64 else "md5").hexdigest()
        if found != checksum:
            path.unlink()
            raise ValueError(f"{address} has the checksum {found}, not {checksum}: it is another file, or cut short")
    return files


def fashion_mnist(files: Files, folder: Path) -> None:
    """All images, sorted by class and then shuffled with seed 0."""
    for part, name in (("train", "train"), ("test", "t10k")):
        images, labels = images_and_labels(files, name)
        order = np.argsort(labels, kind="stable")[np.random.RandomState(0).permutation(len(labels))]
        save_arrays(folder / f"fashion_mnist_{part}.npz", images[order], labels[order])


def mnist(files: Files, folder: Path) -> None:
    """The test images, in their order."""
    save_arrays(folder / "mnist_t10k.npz", *images_and_labels(files, "t10k"))


def images_and_labels(files: Files, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images uint8 [N, H, W, 1] and labels uint8 [N]."""
    images, labels = (read_idx(files[f"{name}-{kind}-ubyte.gz"]) for kind in ("images-idx3", "labels-idx1"))
    return images[..., None], labels


def read_idx(path: Path) -> NDArray[np.uint8]:
    """A packed IDX file: 0, 0, type (8: bytes), number of axes, their lengths in 4 bytes each, highest first."""
    with gzip.open(path) as file:
        content = file.read()
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def clips64(files: Files, folder: Path) -> None:
    """Clips of 16 frames, every second one; the last sixth of each video's clips is the test part."""
    parts: dict[str, list[NDArray[np.integer]]] = {"train": [], "test": []}
    for name in sorted(files):
        clips = load(files[name], DataConfig(frames=16, stride=2, size=64, cut="crop"), "all").values
        first = len(clips) - round(len(clips) / 6)
        parts["train"].append(clips[:first])
        parts["test"].append(clips[first:])
    for part, clips_of_videos in parts.items():
        save_arrays(folder / f"clips64_{part}.npz", np.concatenate(clips_of_videos))


def photos(files: Files, folder: Path) -> None:
    """The photographs without the rendered graphics, as they are."""
    for name, path in files.items():
        part = "test" if name.split("-")[0] in TEST_PHOTOS else "train"
        with path.open("rb") as stream:
            copy(stream, folder / "photos" / part / name)


def bair(files: Files, folder: Path) -> None:
    """TFRecord files, unpacked; nothing else of the archive."""
    (path,) = files.values()
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            place = re.fullmatch(r"(?:.*/)?(train|test)/([^/]+\.tfrecords)", member.name)
            if place and member.isfile() and (stream := archive.extractfile(member)):
                copy(stream, folder / "bair" / place[1] / place[2])


def copy(stream: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file)


def imagenet(files: Sequence[Path]) -> list[Quoted]:
    """The splits in files of downsampled ImageNet, whose checksums are compared.

    Raises:
        ValueError: a file is none of the old version's.
    """
    names = {checksum: name for name, checksum in IMAGENET.items()}
    parts = []
    if not files:
        raise ValueError(f"no files: give downloaded ones after --files, of {', '.join(IMAGENET)}")
    for file in files:
        with file.open("rb") as stream:
            name = names.get(hashlib.file_digest(stream, "sha256").hexdigest())
        if name is None:
            raise ValueError(
                f"{file} is none of {', '.join(IMAGENET)} of the old version, or damaged: give one of them"
            )
        size = int(re.findall(r"\d+", name)[0])
        parts.append(Quoted(source=str(file.absolute()), options=DataConfig(size=size, mode="rgb")))
    return parts


def report(parts: Iterable[Quoted], folder: Path) -> dict[str, str]:
    """Fingerprints by source, printed.

    Raises:
        ValueError: one is not the quoted one.
    """
    found = {}
    for part in parts:
        examples = load(str(folder / part.source), part.options, part.split)
        form = " x ".join(map(str, examples.values.shape[1:]))
        found[part.source] = examples.fingerprint
        print(f"{part.source}, {part.split}: {len(examples):,} examples of {form}, fingerprint {examples.fingerprint}")
        if part.fingerprint not in (None, examples.fingerprint):
            raise ValueError(
                f"{folder / part.source} has not the quoted fingerprint {part.fingerprint}: another release of numpy,"
                " Pillow or av reads the source in another way; take those of constraints.txt"
            )
    return found


BUILDERS: dict[str, Callable[[Files, Path], None]] = {
    "fashion_mnist": fashion_mnist,
    "mnist": mnist,
    "clips64": clips64,
    "photos": photos,
    "bair": bair,
}


def main(
    name: Literal["fashion_mnist", "mnist", "clips64", "photos", "bair", "imagenet"],
    folder: Path = Path(),
    files: tuple[Path, ...] = (),
) -> None:
    """Builds a data set.

    Args:
        folder: place of the data sets.
        files: of downsampled ImageNet, downloaded by hand.
    """
    try:
        if name == "imagenet":
            parts = imagenet(files)
        else:
            BUILDERS[name](fetched(name, folder), folder)
            parts = QUOTED[name]
        print(json.dumps(report(parts, folder)))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    run_command(main)
