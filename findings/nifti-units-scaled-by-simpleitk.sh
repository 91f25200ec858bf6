#!/usr/bin/env bash
# A NIfTI file whose header states micrometres or milliseconds, as volumes of microscopes and some of MRI do.
#
# Guess:   nibabel and SimpleITK give the same voxel sizes, origin and time step: as stored, or both in mm and s.
# Found:   SimpleITK 2.5.7 converts lengths to mm and times to s by the header's units (xyzt_units). nibabel 5.4.2
#          gives the stored numbers in affine and zooms. Positions differ 1,000 times between the two, and so they do
#          in what SimpleITK saves again.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          mm and sec
#            nibabel:   sizes [5.0, 5.0, 8.0, 2000.0], x of the origin 20
#            SimpleITK: sizes [5.0, 5.0, 8.0, 2000.0], x of the origin 20
#            nibabel, saved again by SimpleITK: sizes [5.0, 5.0, 8.0, 2000.0], x of the origin 20
#          micron and sec
#            nibabel:   sizes [5.0, 5.0, 8.0, 2000.0], x of the origin 20
#            SimpleITK: sizes [0.005, 0.005, 0.008, 2000.0], x of the origin 0.02
#            nibabel, saved again by SimpleITK: sizes [0.005, 0.005, 0.008, 2000.0], x of the origin 0.02
#          mm and msec
#            nibabel:   sizes [5.0, 5.0, 8.0, 2000.0], x of the origin 20
#            SimpleITK: sizes [5.0, 5.0, 8.0, 2.0], x of the origin 20
#            nibabel, saved again by SimpleITK: sizes [5.0, 5.0, 8.0, 2.0], x of the origin 20
#          unknown and unknown
#            nibabel:   sizes [5.0, 5.0, 8.0, 2000.0], x of the origin 20
#            SimpleITK: sizes [5.0, 5.0, 8.0, 2000.0], x of the origin 20
#            nibabel, saved again by SimpleITK: sizes [5.0, 5.0, 8.0, 2000.0], x of the origin 20
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off nibabel==5.4.2 SimpleITK==2.5.7 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import sys

import nibabel
import numpy as np
import SimpleITK

stored, again = f"{sys.argv[1]}/stored.nii", f"{sys.argv[1]}/again.nii"


def by_nibabel(path):
    image = nibabel.load(path)
    zooms = [round(float(zoom), 6) for zoom in image.header.get_zooms()]
    return f"sizes {zooms}, x of the origin {image.affine[0, 3]:g}"


for space, time in (("mm", "sec"), ("micron", "sec"), ("mm", "msec"), ("unknown", "unknown")):
    affine = np.diag([5.0, 5.0, 8.0, 1.0])
    affine[0, 3] = 20
    image = nibabel.Nifti1Image(np.zeros((2, 3, 4, 2), np.int16), affine)
    image.header["pixdim"][4] = 2000
    image.header.set_xyzt_units(space, time)
    nibabel.save(image, stored)
    read = SimpleITK.ReadImage(stored)
    SimpleITK.WriteImage(read, again)
    sizes = [round(size, 6) for size in read.GetSpacing()]
    print(f"{space} and {time}")
    print(f"  nibabel:   {by_nibabel(stored)}")
    print(f"  SimpleITK: sizes {sizes}, x of the origin {-read.GetOrigin()[0]:g}")
    print(f"  nibabel, saved again by SimpleITK: {by_nibabel(again)}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
