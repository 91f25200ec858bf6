"""DICOM: a file, or the slices of a series in a folder."""

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.errors import ParsingError, parsing, say
from axial_transformers.data.scan import Scan, make_header, package, usual_axes
from axial_transformers.data.splits import part_of_folder

_ALIKE = (
    "SeriesInstanceUID", "Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation",
    "BitsAllocated", "PixelRepresentation", "PixelSpacing", "RescaleSlope", "RescaleIntercept",
)  # fmt: skip
"""Attributes that the slices of a series share."""
_Slices = list[tuple[Any, NDArray[Any]]]
"""Attributes and pixels of files."""


def read_dicom(path: Path) -> Scan:
    """Return the slices of a series in the order of their positions, or a file; one slice has no depth."""
    slices = _slices(path)
    tags, pixels = slices[0]
    header = b""
    scale, offset = _only_scaling(path, slices)
    placed = all(
        tags_of_slice.get("ImagePositionPatient") and tags_of_slice.get("ImageOrientationPatient")
        for tags_of_slice, _ in slices
    )
    if placed and int(tags.get("NumberOfFrames") or 1) == 1:
        slices, affine = _in_order(path, slices)
        header = make_header(path, affine)
    elif len(slices) > 1:
        raise ParsingError(f"{path} holds slices without positions (ImagePositionPatient): give a file of frames")
    else:
        header = bytes(package("nibabel", path).Nifti1Header().binaryblock)
    values = np.stack([pixels_of_slice for _, pixels_of_slice in slices]) if len(slices) > 1 else pixels
    if int(tags.get("SamplesPerPixel") or 1) == 1:
        return Scan(values, usual_axes(values.ndim), scale, offset, ".nii.gz", header)
    if tags.PhotometricInterpretation.startswith("YBR_FULL"):
        say(f"its channels are {tags.PhotometricInterpretation}, not RGB, as they are stored")
    return Scan(values, usual_axes(values.ndim, channels=True), scale, offset)


def _slices(path: Path) -> _Slices:
    """Return the files of a series, in the order of their names."""
    pydicom = package("pydicom", path)
    slices = _Slices()
    for file in [path] if path.is_file() else sorted(filter(is_dicom, path.rglob("*"))):
        with parsing(file):
            tags = pydicom.dcmread(file)
            if tags.get("Rows"):
                slices.append((tags, pydicom.pixels.pixel_array(tags, raw=True)))
                tags.pop("PixelData", None)  # frees memory
            else:
                say(f"{file.name} holds no image, and is left out")
    if not slices:
        raise ParsingError(f"{path} holds no DICOM file with an image")
    first, _ = slices[0]
    for (tags, _), name in product(slices, _ALIKE):
        if tags.get(name) != first.get(name):
            names = [Path(file_tags.filename).relative_to(path) for file_tags in (first, tags)]
            raise ParsingError(
                f"{path} holds more than one series of slices ({names[0]} and {names[1]} differ in {name}): give a"
                " folder or file of one"
            )
    return slices


def _only_scaling(path: Path, slices: _Slices) -> tuple[float, float]:
    """Return the slope and the intercept of all slices and frames."""
    pairs = {pair for tags, _ in slices for pair in _scalings(tags)}
    if len(pairs) > 1:
        some = ", ".join(f"{slope:g} and {intercept:g}" for slope, intercept in sorted(pairs)[:3])
        raise ParsingError(
            f"{path} has frames of {len(pairs)} slopes and intercepts ({some}, ...): convert them to one, for example"
            " as .nii.gz by dcm2niix"
        )
    return pairs.pop()


def _scalings(tags: Any) -> Iterator[tuple[float, float]]:
    """Yield slope and intercept of each frame; an Enhanced file has them in groups, shared or by frame."""
    shared = tags.get("SharedFunctionalGroupsSequence") or []
    for frame in tags.get("PerFrameFunctionalGroupsSequence") or [tags]:
        stated = {"RescaleSlope": 1.0, "RescaleIntercept": 0.0}
        items = [tags]
        for group in (*shared, frame):
            items += group.get("PixelValueTransformationSequence") or []
        for item in items:
            stated |= {name: float(item.get(name)) for name in stated if item.get(name) is not None}
        slope, intercept = stated.values()
        yield slope or 1.0, intercept


def _in_order(path: Path, slices: _Slices) -> tuple[_Slices, NDArray[np.float64]]:
    """Return slices in the order of their positions, and their affine: voxels [W, H, D] to millimetres."""
    facing = np.array([tags.ImageOrientationPatient for tags, _ in slices], np.float64)
    if not np.allclose(facing, facing[0], atol=1e-3):
        raise ParsingError(f"{path} mixes slices of several orientations: give a folder or file of one")
    along, down = facing[0].reshape(2, 3)
    normal = np.cross(along, down)
    ordered = sorted(slices, key=lambda file: np.dot(file[0].ImagePositionPatient, normal))
    positions = np.array([tags.ImagePositionPatient for tags, _ in ordered], np.float64)
    step = (positions[-1] - positions[0]) / (len(ordered) - 1) if len(ordered) > 1 else normal
    uneven = np.abs((positions - positions[0] - np.outer(np.arange(len(ordered)), step)) @ normal)
    if not uneven.max() < 0.1 * np.linalg.norm(step):
        near = Path(ordered[uneven.argmax()][0].filename).name
        raise ParsingError(f"{path} lacks a slice near {near}, or has one twice: give a folder of one whole series")
    rows, columns = map(float, slices[0][0].get("PixelSpacing") or (1, 1))
    affine = np.eye(4)
    affine[:3] = np.stack([along * columns, down * rows, step, positions[0]], axis=1)
    return ordered, affine


def is_dicom(path: Path) -> bool:
    """Return True for .dcm, and for DICOM files without a suffix, or with numbers as one."""
    named = path.suffix.lower() == ".dcm"
    if path.name.startswith(".") or not (named or path.suffix[1:].isdigit() or not path.suffix) or not path.is_file():
        return False
    with path.open("rb") as file:
        return named or file.read(132)[128:] == b"DICM"


def holds_dicom(folder: Path) -> bool:
    """Return True for a folder with DICOM files, in it or in its first sub-folder; not for one of splits."""
    _, folders, names = next(os.walk(folder), ("", [], []))
    if any(is_dicom(folder / name) for name in names):
        return True
    inside = sorted(name for name in folders if not name.startswith("."))
    return bool(inside) and not any(map(part_of_folder, inside)) and holds_dicom(folder / inside[0])
