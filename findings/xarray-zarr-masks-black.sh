#!/usr/bin/env bash
# An image in a Zarr array of format 2, as OME-Zarr up to 0.4 has, opened by xarray.
#
# Guess:   what zarr wrote as uint8 comes back as uint8; fill_value only stands for chunks that are not stored.
# Found:   xarray 2026.9.0 takes fill_value of format 2, which zarr 3.1.6 sets to 0, as the mark of missing values.
#          All black pixels become NaN, the type float32, and means are those of the other pixels. In format 3 nothing
#          is masked. xarray's own files of format 2 have no fill_value, so a round trip by xarray alone does not show
#          it.
# Ran on:  2026-11-28, Python 3.11, Linux, x86-64.
# Output:
#          format 2: float32 [nan, nan, 90.0, 255.0], mean 172.5
#          format 2, mask_and_scale=False: uint8 [0, 0, 90, 255], mean 86.25
#          format 3: uint8 [0, 0, 90, 255], mean 86.25
#          format 3, mask_and_scale=False: uint8 [0, 0, 90, 255], mean 86.25
#          format 2 by xarray: uint8
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --progress-bar off xarray==2026.9.0 zarr==3.1.6 numpy==2.4.6
cat > "$folder/run.py" <<'PYTHON'
import sys

import numpy as np
import xarray
import zarr

image = np.array([[0, 0, 90, 255]], np.uint8)
for version in (2, 3):
    place = f"{sys.argv[1]}/{version}.zarr"
    group = zarr.open_group(place, mode="w", zarr_format=version)
    if version == 2:
        stated = {"attributes": {"_ARRAY_DIMENSIONS": ["y", "x"]}}
    else:
        stated = {"dimension_names": ["y", "x"]}
    group.create_array("image", data=image, **stated)
    ways = {"": {}, ", mask_and_scale=False": {"mask_and_scale": False}}
    for name, options in ways.items():
        read = xarray.open_zarr(place, consolidated=False, **options)["image"]
        print(f"format {version}{name}: {read.dtype} {read.values.ravel().tolist()}, mean {read.mean().item()}")
own = xarray.Dataset({"image": (("y", "x"), image)})
own.to_zarr(f"{sys.argv[1]}/own.zarr", zarr_format=2)
print(f"format 2 by xarray: {xarray.open_zarr(f'{sys.argv[1]}/own.zarr')['image'].dtype}")
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder" | tee "$folder/output"
diff "$folder/output" <(sed -n '/^# Output:/,/^set /s/^#          //p' "$0") || { echo 'the behaviour has changed'; exit 1; }
