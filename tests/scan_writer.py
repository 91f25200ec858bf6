"""Small scans, written by the libraries of their formats."""

import io
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pydicom
import tifffile
import zarr
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, RLELossless

SERIES = "1.2.826.0.1.3680043.8.498.1"
AXIAL = [1, 0, 0, 0, 1, 0]


def dicom(pixels: np.ndarray, packed: bool = False, **tags: Any) -> bytes:
    """A DICOM file of one slice [H, W] or of frames [D, H, W], with some attributes set or, if None, left out."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = MRImageStorage, SERIES
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    found = FileDataset(None, {}, file_meta=meta, preamble=bytes(128))
    found.SOPClassUID, found.SOPInstanceUID = MRImageStorage, SERIES
    found.SeriesInstanceUID, found.PhotometricInterpretation, found.SamplesPerPixel = SERIES, "MONOCHROME2", 1
    found.Rows, found.Columns = pixels.shape[-2:]
    found.BitsAllocated = found.BitsStored = 8 * pixels.itemsize
    found.HighBit, found.PixelRepresentation = 8 * pixels.itemsize - 1, int(pixels.dtype.kind == "i")
    found.ImageOrientationPatient, found.PixelSpacing = AXIAL, [2, 3]
    if pixels.ndim == 3:
        found.NumberOfFrames = len(pixels)
    found.PixelData = pixels.tobytes() + bytes(pixels.nbytes % 2)
    for name, value in tags.items():
        if value is None:
            found.pop(name, None)
        else:
            setattr(found, name, value)
    if packed:
        found.compress(RLELossless, pixels, generate_instance_uid=False)
    file = io.BytesIO()
    pydicom.dcmwrite(file, found, enforce_file_format=True)
    return file.getvalue()


def dicom_series(folder: Path, values: np.ndarray, suffix: str = ".dcm", spacing: float = 4.0, **tags: Any) -> Path:
    """A folder of the slices of a volume [D, H, W], their names in no order of the positions."""
    folder.mkdir(exist_ok=True)
    for i, pixels in enumerate(values):
        name = f"{(7 * i + 3) % len(values):02}{suffix}" if len(values) % 7 else f"{i}{suffix}"
        place = {"ImagePositionPatient": [10, 20, 30 + spacing * i], "InstanceNumber": i + 1}
        (folder / name).write_bytes(dicom(pixels, **{**place, **tags}))
    return folder


def make_scan(path: Path, values: np.ndarray) -> None:
    """Write a volume [D, H, W] of whole numbers; the first part of the name says how."""
    kind, suffix = path.name.split(".")[0], path.suffix
    if suffix in (".nii", ".gz"):
        image = nibabel.Nifti2Image if kind == "second" else nibabel.Nifti1Image
        image(values.T, np.diag([2.0, 3.0, 4.0, 1.0])).to_filename(path)
    elif suffix == ".dcm":
        path.write_bytes(dicom(values, packed=kind == "packed"))
    elif suffix == ".tif":
        options: dict[str, Any] = {"ome": {"ome": True}, "imagej": {"imagej": True}, "packed": {"compression": "zlib"}}
        tifffile.imwrite(path, values, **options.get(kind, {}), metadata={"axes": "ZYX"}, photometric="minisblack")
    elif suffix == ".zarr":
        zarr.create_array(path, data=values, chunks=(2, 2, 7), zarr_format=2 if kind == "second" else 3)
    else:
        with h5py.File(path, "w") as file:
            options = {"chunks": (2, 2, 7), "compression": "gzip", "shuffle": True} if kind == "packed" else {}
            file.create_dataset("group/values", data=values, **options)
