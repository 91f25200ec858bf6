#!/usr/bin/env bash
# A NIfTI file whose sform and qform differ, as after a registration that wrote one of them, or that has neither.
#
# Guess:   nibabel and SimpleITK take the same one; without both, x is i times the voxel size, as the standard's first
#          method says.
# Found:   nibabel 5.4.2 takes sform if it has a code. SimpleITK 2.5.7 takes it only if its code is 1 (scanner) or
#          there is no qform; with 2, 3 or 4 (aligned, Talairach, MNI) it takes qform. Without both, nibabel turns x
#          over and puts the middle of the volume at 0; SimpleITK turns x and y over and puts the first voxel at 0.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          codes of qform and sform 1 and 0: nibabel takes qform, SimpleITK qform
#          codes of qform and sform 0 and 4: nibabel takes sform, SimpleITK sform
#          codes of qform and sform 1 and 1: nibabel takes sform, SimpleITK sform
#          codes of qform and sform 1 and 2: nibabel takes sform, SimpleITK qform
#          codes of qform and sform 1 and 3: nibabel takes sform, SimpleITK qform
#          codes of qform and sform 1 and 4: nibabel takes sform, SimpleITK qform
#          codes 0 and 0: voxel (0, 0, 0) is at [2.0, -2.0, -2.0] by nibabel, [0.0, 0.0, 0.0] by SimpleITK
#          codes 0 and 0: voxel (1, 1, 1) is at [0.0, 0.0, 0.0] by nibabel, [-2.0, -2.0, 2.0] by SimpleITK
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

path = sys.argv[1]
SimpleITK.ProcessObject.GlobalWarningDisplayOff()


def save(qform_code, sform_code):
    image = nibabel.Nifti1Image(np.zeros((3, 3, 3), np.int16), None)
    image.header.set_zooms((2, 2, 2))
    for code, set_form, place in ((qform_code, image.set_qform, -10), (sform_code, image.set_sform, 10)):
        affine = np.diag([2.0, 2.0, 2.0, 1.0])
        affine[:3, 3] = place
        set_form(affine, code)
    nibabel.save(image, path)


def by_nibabel(voxel):
    return [round(float(x), 3) for x in nibabel.affines.apply_affine(nibabel.load(path).affine, voxel)]


def by_simpleitk(voxel):
    x, y, z = SimpleITK.ReadImage(path).TransformIndexToPhysicalPoint(voxel)
    return [round(x, 3) for x in (0.0 - x, 0.0 - y, z)]  # to the directions of NIfTI


names = {10.0: "sform", -10.0: "qform"}
for qform_code, sform_code in ((1, 0), (0, 4), (1, 1), (1, 2), (1, 3), (1, 4)):
    save(qform_code, sform_code)
    taken = f"nibabel takes {names[by_nibabel((0, 0, 0))[0]]}, SimpleITK {names[by_simpleitk((0, 0, 0))[0]]}"
    print(f"codes of qform and sform {qform_code} and {sform_code}: {taken}")
save(0, 0)
for voxel in ((0, 0, 0), (1, 1, 1)):
    print(f"codes 0 and 0: voxel {voxel} is at {by_nibabel(voxel)} by nibabel, {by_simpleitk(voxel)} by SimpleITK")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder/a.nii" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
