#!/usr/bin/env bash
# A PGM file whose highest value (maxval) is not 255 or 65535: labels of 20 classes, or 12 bits of a camera.
#
# Guess:   both Pillow and OpenCV give the numbers that the file holds.
# Found:   Pillow 13.0.0 brings them to 0..255 or 0..65535, so that class 2 of 20 is 26, and says nothing. OpenCV
#          5.0.0.93 does so for text (P2) of up to 8 bits, and rounds it another way; for binary files (P5), and for
#          text of more bits, it gives what is stored.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          text   [0, 1, 2, 20]: Pillow [0, 13, 26, 255], OpenCV [0, 12, 25, 255]
#          binary [0, 1, 2, 20]: Pillow [0, 13, 26, 255], OpenCV [0, 1, 2, 20]
#          text   [0, 1, 2, 255]: Pillow [0, 1, 2, 255], OpenCV [0, 1, 2, 255]
#          binary [0, 1, 2, 255]: Pillow [0, 1, 2, 255], OpenCV [0, 1, 2, 255]
#          text   [0, 1, 2, 4095]: Pillow [0, 16, 32, 65535], OpenCV [0, 1, 2, 4095]
#          binary [0, 1, 2, 4095]: Pillow [0, 16, 32, 65535], OpenCV [0, 1, 2, 4095]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off pillow==13.0.0 opencv-python-headless==5.0.0.93 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import io

import cv2
import numpy as np
from PIL import Image

for maxval in (20, 255, 4095):
    numbers = [0, 1, 2, maxval]
    header = f"4 1\n{maxval}\n".encode()
    binary = np.array(numbers, ">u2" if maxval > 255 else "u1").tobytes()
    files = {"text": b"P2\n" + header + b" ".join(b"%d" % number for number in numbers) + b"\n"}
    files["binary"] = b"P5\n" + header + binary
    for kind, content in files.items():
        pillow = np.asarray(Image.open(io.BytesIO(content))).ravel().tolist()
        opencv = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED).ravel().tolist()
        print(f"{kind:6} {numbers}: Pillow {pillow}, OpenCV {opencv}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
