"""Write five scans and measurements that packages bring along into a folder, in their own formats.

pip install nibabel dipy stardist tensorly matplotlib
python experiments/scan_sets.py scans

mri.nii.gz         nibabel: two volumes of a head by magnetic resonance, int16 [2, 24, 96, 128]
diffusion.nii.gz   dipy: slices of a head, weighted by diffusion, uint16 [10, 128, 128]
nuclei.tif         stardist: cells of a worm by a microscope, uint16 [31, 61, 57]
fields.npy         tensorly: Indian Pines, fields seen from a plane in 200 bands, uint16 [145, 145, 200]
elevation.npy      matplotlib: height of land above the sea in metres, int16 [344, 403]
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from of_benchmarks import run_command

SETS = {
    "mri.nii.gz": "nibabel/tests/data/example4d.nii.gz",
    "diffusion.nii.gz": "dipy/data/files/S0_10slices.nii.gz",
    "nuclei.tif": "stardist/data/images/img3d.tif",
    "fields.npy": "tensorly/datasets/data/Indian_pines_corrected.npy",
    "elevation.npy": "matplotlib/mpl-data/sample_data/jacksboro_fault_dem.npz",
}


def main(folder: Path) -> None:
    """Copy the sets whose packages are installed; say which are not."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in SETS.items():
        package, within = path.split("/", 1)
        found = find_spec(package)
        if found is None or found.origin is None:
            print(f"{name}: pip install {package}")
            continue
        source = Path(found.origin).parent / within
        if source.suffix == ".npz":
            np.save(folder / name, np.load(source)["elevation"])
        else:
            shutil.copy(source, folder / name)
        print(f"{folder / name}, {(folder / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    run_command(main, description=__doc__)
