"""Writes this folder's archives anew, of its models, images, pictures and values.

python make.py
"""

from pathlib import Path

import numpy as np
import torch

import axial_transformers as axial
from axial_transformers.compression import compress_files

here = Path(__file__).parent
model = axial.AxialTransformer.from_pretrained(here / "model")
images = torch.from_numpy(np.load(here / "images.npz")["images"])
(here / "labelled.axl").write_bytes(axial.compress(model, images, torch.arange(len(images)) % 4))
(here / "pictures.axl").unlink(missing_ok=True)
compress_files(model, here / "pictures", here / "pictures.axl", embed=False, force=True)
for name in ("tokens", "numbers"):
    values = torch.from_numpy(np.load(here / f"{name}.npz")["values"])
    (here / f"{name}.axl").write_bytes(axial.compress(axial.AxialTransformer.from_pretrained(here / name), values))
