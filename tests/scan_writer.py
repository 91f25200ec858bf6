"""Small scans, written by the libraries of their formats."""

import gzip
import io
import struct
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


def file_of_nrrd(path: Path, values: np.ndarray, axes: list[str], space: str = "", **fields: str) -> None:
    """Write an array as NRRD by hand; of .nhdr, its values lie in a file beside it."""
    kind = {"i2": "short", "u2": "ushort", "u1": "uchar", "f4": "float"}[values.dtype.str[1:]]
    sizes = " ".join(map(str, values.shape[::-1]))
    lines = ["NRRD0004", f"type: {kind}", f"dimension: {values.ndim}", *([f"space: {space}"] if space else [])]
    lines += [f"sizes: {sizes}", f"kinds: {' '.join(axes)}", "endian: little", "encoding: raw"]
    lines += [f"{name.replace('_', ' ')}: {value}" for name, value in fields.items()]
    if path.suffix == ".nhdr":
        path.with_suffix(".raw").write_bytes(values.tobytes())
        path.write_text("\n".join([*lines, f"data file: {path.stem}.raw", "", ""]))
    else:
        path.write_bytes("\n".join([*lines, "", ""]).encode() + values.tobytes())


def file_of_meta_image(path: Path, values: np.ndarray, channels: int = 1, **fields: str) -> None:
    """Write an array as MetaImage by hand; of .mhd, its values lie in a file beside it."""
    sizes = values.shape[: values.ndim - (channels > 1)][::-1]
    kind = {"i2": "MET_SHORT", "u2": "MET_USHORT", "u1": "MET_UCHAR", "f4": "MET_FLOAT"}[values.dtype.str[1:]]
    lines = ["ObjectType = Image", f"NDims = {len(sizes)}", "BinaryData = True", "BinaryDataByteOrderMSB = False"]
    lines += [
        f"DimSize = {' '.join(map(str, sizes))}",
        f"ElementNumberOfChannels = {channels}",
        f"ElementType = {kind}",
    ]
    lines += [f"{name} = {value}" for name, value in fields.items()]
    place = f"{path.stem}.raw" if path.suffix == ".mhd" else "LOCAL"
    content = "\n".join([*lines, f"ElementDataFile = {place}", ""]).encode()
    if path.suffix == ".mhd":
        path.with_suffix(".raw").write_bytes(values.tobytes())
        path.write_bytes(content)
    else:
        path.write_bytes(content + values.tobytes())


def file_of_freesurfer(path: Path, values: np.ndarray, affine: np.ndarray) -> None:
    """Write a volume [(T,) D, H, W] as .mgh or .mgz by hand."""
    sizes = (*values.shape[::-1], 1)[:4]
    kind = {"u1": 0, "i4": 1, "f4": 3, "i2": 4}[values.dtype.str[1:]]
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    centre = (affine @ np.array([*(np.array(sizes[:3]) / 2), 1]))[:3]
    turned = (affine[:3, :3] / spacing).T
    header = (
        struct.pack(">7i h", 1, *sizes, kind, 0, 1) + np.array([*spacing, *turned.ravel(), *centre], ">f4").tobytes()
    )
    content = header.ljust(284, b"\0") + values.astype(values.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".mgz" else content)


def file_of_afni(path: Path, values: np.ndarray, factors: list[float]) -> None:
    """Write volumes [T, D, H, W] of 16 bits as .HEAD and .BRIK by hand.

    Voxels are 2, 3 and 4 mm large, the first one is at 5, 6, 7.
    """

    def lines(kind: str, name: str, found: list[object]) -> str:
        return f"\ntype = {kind}-attribute\nname = {name}\ncount = {len(found)}\n {' '.join(map(str, found))}\n"

    def text(name: str, found: str) -> str:
        return f"\ntype = string-attribute\nname = {name}\ncount = {len(found) + 1}\n'{found}~\n"

    count, sizes = len(values), values.shape[:0:-1]
    header = text("TYPESTRING", "3DIM_HEAD_ANAT") + text("IDCODE_STRING", "x") + text("BYTEORDER_STRING", "LSB_FIRST")
    header += lines("integer", "DATASET_RANK", [3, count]) + lines("integer", "DATASET_DIMENSIONS", [*sizes, 0, 0])
    header += lines("float", "DELTA", [2, 3, 4]) + lines("float", "ORIGIN", [5, 6, 7])
    header += lines("integer", "ORIENT_SPECIFIC", [0, 3, 4]) + lines("integer", "BRICK_TYPES", [1] * count)
    header += lines("float", "BRICK_FLOAT_FACS", [*factors]) + lines("integer", "SCENE_DATA", [0, 2, 0, *[-999] * 5])
    header += lines("float", "IJK_TO_DICOM_REAL", [2, 0, 0, 5, 0, 3, 0, 6, 0, 0, 4, 7])
    path.write_text(header)
    path.with_suffix(".BRIK").write_bytes(values.astype("<i2").tobytes())


def file_of_fits(path: Path, arrays: list[np.ndarray], **cards: object) -> None:
    """Write arrays as FITS by hand; the cards are of the first one."""
    content = b""
    for number, values in enumerate(arrays):
        bits = 8 * values.itemsize * (-1 if values.dtype.kind == "f" else 1)
        first: dict[str, object] = {"XTENSION": "'IMAGE   '"} if number else {"SIMPLE": "T"}
        sides = {f"NAXIS{axis + 1}": side for axis, side in enumerate(values.shape[::-1])}
        more: dict[str, object] = {"PCOUNT": 0, "GCOUNT": 1, "EXTNAME": f"'E{number}      '"} if number else {**cards}
        every = {**first, "BITPIX": bits, "NAXIS": values.ndim, **sides, **more}
        header = "".join(f"{name:8}= {value!s:>20}".ljust(80) for name, value in every.items()) + "END".ljust(80)
        stored = values.astype(values.dtype.newbyteorder(">")).tobytes()
        content += header.encode().ljust(-(-len(header) // 2880) * 2880) + stored + bytes(-len(stored) % 2880)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
