"""What a reader of scans returns."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axial_transformers.storage import import_extra

_AXES = {1: "L", 2: "HW", 3: "DHW", 4: "TDHW"}


@dataclass(frozen=True, eq=False)
class Scan:
    """An array of a file, with what its values and axes mean."""

    values: NDArray[Any]
    """Integers or floats as stored, slowest axis first; mapped, or read where they are sliced, if the format allows."""
    axes: str
    """One letter of T, D, H, W, L, C for each axis, or another one that TIFF has for it; ? for one that the file does
    not tell."""
    scale: float = 1.0
    offset: float = 0.0
    """A stored value v means offset + scale * v in the file's unit."""
    suffix: str = ".npy"
    """The suffix of files that `write_scan` makes like this one: .nii, .nii.gz, .tif, .h5 or .npy."""
    header: bytes = field(default=b"", repr=False)
    """The geometry, as a NIfTI header without extensions."""


def package(name: str, path: Path) -> Any:
    """Return a package of the extra `scientific`, which reads this file."""
    return import_extra("scientific", name, path)


def usual_axes(count: int, channels: bool = False) -> str:
    """Return the letters of so many axes, the last of which may be channels."""
    return _AXES.get(count - channels, "?") + "C" * channels


def make_header(path: Path, affine: NDArray[np.float64], like: Any = None) -> bytes:
    """Return a NIfTI header with this affine [4, 4], voxels [W, H, D] to millimetres.

    Args:
        like: a header of nibabel, of another format. None: the affine is one of DICOM or ITK.
    """
    kind = package("nibabel", path).Nifti1Header
    if like:
        header = kind.from_header(like)
    else:
        header = kind()
        affine = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine  # DICOM and ITK count to the left and posterior
    header.set_sform(affine, 1)
    header.set_qform(affine, 1)
    header.set_xyzt_units("mm")
    return bytes(header.binaryblock)
