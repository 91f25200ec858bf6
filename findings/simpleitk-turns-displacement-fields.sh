#!/usr/bin/env bash
# A displacement field in NIfTI (intent 1006, vectors in mm), read and saved by SimpleITK.
#
# Guess:   vectors are those that are stored, as nibabel gives them, by whichever intent; what has been read can be
#          saved.
# Found:   SimpleITK 2.5.7 turns x and y of intent 1006 into its own directions (LPS), and leaves those of 1007 as
#          they are. It refuses to save the field that it has read. A cast or a crop drops the intent; then it saves
#          1007 with the turned signs, and for nibabel the field points the other way.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          nibabel:   intent 1006, [1.0, 2.0, 3.0]
#          SimpleITK: [-1.0, -2.0, 3.0]; saved again: refused; a crop saved: intent 1007, [-1.0, -2.0, 3.0]
#          nibabel:   intent 1007, [1.0, 2.0, 3.0]
#          SimpleITK: [1.0, 2.0, 3.0]; saved again: intent 1007, [1.0, 2.0, 3.0]; a crop saved: intent 1007, [1.0, 2.0, 3.0]
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
    return f"intent {int(image.header['intent_code'])}, {np.asarray(image.dataobj)[0, 0, 0, 0].tolist()}"


def saved_again(image):
    try:
        SimpleITK.WriteImage(image, again)
    except RuntimeError:
        return "refused"
    return by_nibabel(again)


for intent in (1006, 1007):
    vectors = np.broadcast_to(np.float32([1, 2, 3]), (2, 2, 2, 1, 3))
    image = nibabel.Nifti1Image(vectors, np.eye(4))
    image.header["intent_code"] = intent
    nibabel.save(image, stored)
    read = SimpleITK.ReadImage(stored)
    print(f"nibabel:   {by_nibabel(stored)}")
    print(f"SimpleITK: {list(read.GetPixel(0, 0, 0))}; saved again: {saved_again(read)}; a crop saved: {saved_again(read[1:])}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
