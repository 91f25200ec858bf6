"""Makes this folder's archives, of the model, images and pictures in ../made_at_a8c2b9c.

python make.py
"""

from pathlib import Path

import numpy as np
import torch

import axial_transformers as axial
from axial_transformers.compression import compress_files

here = Path(__file__).parent
earlier = here.with_name("made_at_a8c2b9c")
model = axial.AxialTransformer.from_pretrained(earlier / "model")
images = torch.from_numpy(np.load(earlier / "expected.npz")["images"])
(here / "labelled.axl").write_bytes(axial.compress(model, images, torch.arange(len(images)) % 4))
compress_files(model, earlier / "pictures", here / "pictures.axl", other_sizes="tile")
