#!/usr/bin/env bash
# The slope of an AFNI file (.HEAD and .BRIK) whose volumes have factors (BRIK_FLOAT_FACS), as nibabel states it.
#
# Guess:   values are get_unscaled() times dataobj.slope plus dataobj.inter, as for NIfTI, Analyze and MGH.
# Found:   with nibabel 5.4.2, slope is 1.0 and inter 0.0, whatever the factors are, while dataobj and get_fdata() are
#          scaled. The factors are in dataobj.scaling, one for each volume, which no other format of nibabel has.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          factors 0.5, 0.5: slope 1.0, inter 0.0, scaling [0.5, 0.5]; 100 stored reads as 50.0 and 50.0
#          factors 0.5, 2.0: slope 1.0, inter 0.0, scaling [0.5, 2.0]; 100 stored reads as 50.0 and 200.0
#          factors 0.0, 0.0: slope 1.0, inter 0.0, scaling None; 100 stored reads as 100.0 and 100.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off nibabel==5.4.2 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import sys
from pathlib import Path

import nibabel
import numpy as np

folder = Path(sys.argv[1])


def numbers(kind, name, values):
    return f"\ntype = {kind}-attribute\nname = {name}\ncount = {len(values)}\n {' '.join(map(str, values))}\n"


def text(name, value):
    return f"\ntype = string-attribute\nname = {name}\ncount = {len(value) + 1}\n'{value}~\n"


for factors in ((0.5, 0.5), (0.5, 2.0), (0.0, 0.0)):
    header = text("TYPESTRING", "3DIM_HEAD_ANAT") + text("IDCODE_STRING", "x") + text("BYTEORDER_STRING", "LSB_FIRST")
    header += numbers("integer", "DATASET_RANK", [3, 2]) + numbers("integer", "DATASET_DIMENSIONS", [4, 3, 2, 0, 0])
    header += numbers("float", "DELTA", [1, 1, 1]) + numbers("float", "ORIGIN", [0, 0, 0])
    header += numbers("integer", "ORIENT_SPECIFIC", [0, 3, 4]) + numbers("integer", "BRICK_TYPES", [1, 1])
    header += numbers("float", "BRICK_FLOAT_FACS", factors) + numbers("integer", "SCENE_DATA", [0, 2, 0] + [-999] * 5)
    header += numbers("float", "IJK_TO_DICOM_REAL", [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0])
    (folder / "a+orig.HEAD").write_text(header)
    (folder / "a+orig.BRIK").write_bytes(np.full((2, 2, 3, 4), 100, "<i2").tobytes())
    found = nibabel.load(folder / "a+orig.HEAD")
    stored = found.dataobj
    scaling = None if stored.scaling is None else stored.scaling.tolist()
    first, second = found.get_fdata()[0, 0, 0]
    print(f"factors {factors[0]}, {factors[1]}: slope {stored.slope}, inter {stored.inter}, scaling {scaling};", end=" ")
    print(f"{stored.get_unscaled()[0, 0, 0, 0]} stored reads as {first} and {second}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder" | tee "$folder/output"
diff "$folder/output" <(sed -n 's/^#          \(factors .*\)$/\1/p' "$0") || { echo 'the behaviour has changed'; exit 1; }
