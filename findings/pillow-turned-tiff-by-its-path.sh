#!/usr/bin/env bash
# An uncompressed TIFF file that is to be turned by a quarter (Orientation 5 to 8), opened by its path or as a stream.
#
# Guess:   the pixels do not depend on how the file was opened.
# Found:   Pillow 13.0.0 maps an uncompressed gray file that it opens by its path, in the shape that it has after
#          turning. Rows are then cut at the wrong length: the picture is scrambled, and its size changes when it is
#          loaded. As a stream, compressed or in colours, the same picture is right.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          gray            by path  : size (3, 2), loaded (2, 3), [[3, 0], [4, 1], [5, 2]] in place of [[4, 2, 0], [5, 3, 1]]
#          gray            by stream: size (3, 2), loaded (3, 2), right
#          gray of 16 bits by path  : size (3, 2), loaded (2, 3), [[3, 0], [4, 1], [5, 2]] in place of [[4, 2, 0], [5, 3, 1]]
#          gray of 16 bits by stream: size (3, 2), loaded (3, 2), right
#          gray by Deflate by path  : size (3, 2), loaded (3, 2), right
#          gray by Deflate by stream: size (3, 2), loaded (3, 2), right
#          colours         by path  : size (3, 2), loaded (3, 2), right
#          colours         by stream: size (3, 2), loaded (3, 2), right
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off pillow==13.0.0 tifffile==2026.3.3 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import sys

import numpy as np
import tifffile
from PIL import Image

gray = np.arange(6, dtype=np.uint8).reshape(3, 2)
pictures = {
    "gray": (gray, None),
    "gray of 16 bits": (gray.astype(np.uint16), None),
    "gray by Deflate": (gray, "zlib"),
    "colours": (np.stack([gray] * 3, axis=2), None),
}
path = sys.argv[1]
upright = np.rot90(gray, -1).tolist()  # Orientation 6: the first column is the upper row, from the right
for name, (pixels, compression) in pictures.items():
    orientation = [(274, "H", 1, 6, True)]
    photometric = "rgb" if pixels.ndim == 3 else "minisblack"
    tifffile.imwrite(path, pixels, photometric=photometric, compression=compression, extratags=orientation)
    for way in ("path", "stream"):
        with open(path, "rb") as stream:
            image = Image.open(path if way == "path" else stream)
            opened = image.size
            values = np.atleast_3d(np.asarray(image))[..., 0].tolist()
        said = "right" if values == upright else f"{values} in place of {upright}"
        print(f"{name:15} by {way:6}: size {opened}, loaded {image.size}, {said}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder/a.tif" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
