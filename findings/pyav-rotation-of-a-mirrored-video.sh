#!/usr/bin/env bash
# A video whose display matrix mirrors it, read by PyAV and turned by frame.rotation.
#
# Guess:   frame.rotation is how far a frame must be turned to look as players show it; a mirrored one, which no turn
#          brings upright, has the rotation 0, or none.
# Found:   with av 18.1.0, a video that is mirrored left to right has the rotation -180, as one that is turned upside
#          down; mirrored top to bottom it has 0, as one that is stored upright; a transposed one has a quarter turn. The
#          turn by the rotation gives another picture than players show in all three, without a word. The whole matrix is
#          in frame.side_data["DISPLAYMATRIX"].
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          upright                  rotation    0: as players show it
#          turned by 90 degrees     rotation  -90: as players show it
#          turned by 180 degrees    rotation -180: as players show it
#          mirrored left to right   rotation -180: ANOTHER PICTURE
#          mirrored top to bottom   rotation    0: ANOTHER PICTURE
#          transposed               rotation  -90: ANOTHER PICTURE
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off av==18.1.0 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import struct
import sys

import av
import numpy as np

picture = np.zeros((16, 32, 3), np.uint8)
picture[:4, :8], picture[12:, :8] = 255, 120
path = sys.argv[1]
with av.open(path, "w") as container:
    stream = container.add_stream("libx264rgb", rate=25, options={"qp": "0"})
    stream.width, stream.height, stream.pix_fmt = 32, 16, "rgb24"
    container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
    container.mux(stream.encode())
content = open(path, "rb").read()
place = content.index(b"tkhd") + 44  # the matrix of a track header takes (x, y) to (ax + cy, bx + dy)
cases = {
    "upright": ((1, 0, 0, 1), picture),
    "turned by 90 degrees": ((0, 1, -1, 0), np.rot90(picture, -1)),
    "turned by 180 degrees": ((-1, 0, 0, -1), picture[::-1, ::-1]),
    "mirrored left to right": ((-1, 0, 0, 1), picture[:, ::-1]),
    "mirrored top to bottom": ((1, 0, 0, -1), picture[::-1]),
    "transposed": ((0, 1, 1, 0), picture.swapaxes(0, 1)),
}
for name, ((a, b, c, d), shown) in cases.items():
    matrix = struct.pack(">9i", a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    with open(path, "wb") as file:
        file.write(content[:place] + matrix + content[place + 36 :])
    with av.open(path) as container:
        frame = next(container.decode(video=0))
        turned = np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90))
        same = turned.shape == shown.shape and bool((turned == shown).all())
        print(f"{name:24} rotation {frame.rotation:4}: {'as players show it' if same else 'ANOTHER PICTURE'}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder/a.mp4" | tee "$folder/output"
diff "$folder/output" <(sed -n 's/^#          \(.*rotation .*: .*\)$/\1/p' "$0") || { echo 'the behaviour has changed'; exit 1; }
