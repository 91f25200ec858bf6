#!/usr/bin/env bash
# A CT slice in DICOM whose PhotometricInterpretation is MONOCHROME1: shown with small values as white.
#
# Guess:   it says how to show the image; the values in Hounsfield units do not depend on it.
# Found:   SimpleITK 2.5.7 inverts the stored numbers within their bits, and then applies slope and intercept: air is
#          3,047 HU with 12 bits, 64,487 with 16. The image keeps MONOCHROME1 among its metadata, so whoever heeds
#          that inverts it once more. pydicom 3.0.2 gives -1,000.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          MONOCHROME2, 12 bits: pydicom [-1000, 0, 40, 1000], SimpleITK [-1000, 0, 40, 1000], which says MONOCHROME2
#          MONOCHROME2, 16 bits: pydicom [-1000, 0, 40, 1000], SimpleITK [-1000, 0, 40, 1000], which says MONOCHROME2
#          MONOCHROME1, 12 bits: pydicom [-1000, 0, 40, 1000], SimpleITK [3047, 2047, 2007, 1047], which says MONOCHROME1
#          MONOCHROME1, 16 bits: pydicom [-1000, 0, 40, 1000], SimpleITK [64487, 63487, 63447, 62487], which says MONOCHROME1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off pydicom==3.0.2 SimpleITK==2.5.7 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import sys

import numpy as np
import pydicom
import SimpleITK
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.pixels import apply_rescale
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

path = sys.argv[1]
stored = np.array([[24, 1024, 1064, 2024]], np.uint16)  # air, water, soft tissue, bone
for interpretation in ("MONOCHROME2", "MONOCHROME1"):
    for bits in (12, 16):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        meta.MediaStorageSOPClassUID = CTImageStorage
        meta.MediaStorageSOPInstanceUID = "1.2.3"
        file = FileDataset(path, {}, file_meta=meta, preamble=bytes(128))
        file.SOPClassUID, file.SOPInstanceUID = CTImageStorage, "1.2.3"
        file.StudyInstanceUID, file.SeriesInstanceUID, file.Modality = "1.2.4", "1.2.5", "CT"
        file.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
        file.ImagePositionPatient, file.ImageOrientationPatient = [0, 0, 0], [1, 0, 0, 0, 1, 0]
        file.PixelSpacing, file.RescaleSlope, file.RescaleIntercept = [1, 1], 1, -1024
        file.SamplesPerPixel, file.PhotometricInterpretation, file.PixelRepresentation = 1, interpretation, 0
        (file.Rows, file.Columns), file.PixelData = stored.shape, stored.astype("<u2").tobytes()
        file.BitsAllocated, file.BitsStored, file.HighBit = 16, bits, bits - 1
        file.save_as(path, enforce_file_format=True)
        dataset = pydicom.dcmread(path)
        units = apply_rescale(dataset.pixel_array, dataset).astype(int).ravel().tolist()
        image = SimpleITK.ReadImage(path)
        others = SimpleITK.GetArrayFromImage(image).ravel().tolist()
        kept = image.GetMetaData("0028|0004").strip()
        print(f"{interpretation}, {bits} bits: pydicom {units}, SimpleITK {others}, which says {kept}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder/a.dcm" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
