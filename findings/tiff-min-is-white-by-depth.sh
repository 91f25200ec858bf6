#!/usr/bin/env bash
# A gray TIFF file in which 0 means white (PhotometricInterpretation 0), as scanners and film digitisers write it.
#
# Guess:   a reader inverts such a file, or it does not; 8 and 16 bits are alike.
# Found:   Pillow 13.0.0 and OpenCV 5.0.0.93 invert 8 bits and leave 16 bits as they are. tifffile 2026.3.3 inverts
#          neither. So the 16-bit scan of a film is a negative beside the 8-bit one, and nothing tells.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          minisblack uint8 [0, 1, 200]: Pillow [0, 1, 200], OpenCV [0, 1, 200], tifffile [0, 1, 200]
#          minisblack uint16 [0, 1, 200]: Pillow [0, 1, 200], OpenCV [0, 1, 200], tifffile [0, 1, 200]
#          miniswhite uint8 [0, 1, 200]: Pillow [255, 254, 55], OpenCV [255, 254, 55], tifffile [0, 1, 200]
#          miniswhite uint16 [0, 1, 200]: Pillow [0, 1, 200], OpenCV [0, 1, 200], tifffile [0, 1, 200]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off pillow==13.0.0 opencv-python-headless==5.0.0.93 tifffile==2026.3.3 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import io

import cv2
import numpy as np
import tifffile
from PIL import Image

for photometric in ("minisblack", "miniswhite"):
    for dtype in (np.uint8, np.uint16):
        stored = np.array([[0, 1, 200]], dtype)
        file = io.BytesIO()
        tifffile.imwrite(file, stored, photometric=photometric)
        readers = {
            "Pillow": np.asarray(Image.open(file)),
            "OpenCV": cv2.imdecode(np.frombuffer(file.getvalue(), np.uint8), cv2.IMREAD_UNCHANGED),
            "tifffile": tifffile.imread(io.BytesIO(file.getvalue())),
        }
        read = ", ".join(f"{name} {values.ravel().tolist()}" for name, values in readers.items())
        print(f"{photometric} {stored.dtype} {stored.ravel().tolist()}: {read}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
