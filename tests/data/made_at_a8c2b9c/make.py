"""Makes this folder's files, with the package of the commit that the folder is named after on the path.

python make.py FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import axial_transformers as axial
from axial_transformers import cli
from axial_transformers.compression import compress_files, fingerprint
from axial_transformers.data import load
from axial_transformers.layers.initialisation import randomise

RUN = """
    train digits --model.dim 8 --model.heads 2 --model.outer-layers 2 --model.inner-layers 1 --validate-on 20
    --training.schedule constant --training.log-every 1 --training.evaluate-every 4 --training.sample-every 1000
    --training.batch-size 8 --training.device cpu --training.steps 4 --out
"""

torch.set_num_threads(1)
out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)

config = axial.AxialTransformerConfig(
    shape=(3, 5), channels=3, num_classes=4, dim=16, heads=2, mlp_ratio=2.0,
    encoder_layers=2, outer_layers=2, inner_layers=2,
)  # fmt: skip
model = axial.AxialTransformer(config)
randomise(model, torch.Generator().manual_seed(3))
model.eval().save_pretrained(out / "model")

generator = torch.Generator().manual_seed(1)
x, label = torch.randint(256, (3, 3, 5, 3), generator=generator), torch.tensor([0, 3, 4])
with torch.no_grad():
    logits, bits = model(x, label), axial.bits_per_dim(model, x, label)
samples = axial.sample(model, 2, generator=torch.Generator().manual_seed(5), compile=False)
labels = torch.arange(70) % 4
images = axial.sample(model, label=labels, generator=generator, compile=False)
images[5] = 7  # which WebP stores in fewer bytes
(out / "labelled.axl").write_bytes(axial.compress(model, images, labels))
arrays = {"x": x.to(torch.uint8), "label": label, "logits": logits, "bits_per_dim": bits}
np.savez_compressed(out / "expected.npz", **arrays, images=images, samples=samples)

(out / "pictures").mkdir()
MODES = {"RGB": (3,), "L": (), "RGBA": (4,), "P": ()}
for i, (mode, size) in enumerate([("RGB", (3, 5)), ("RGB", (4, 11)), ("L", (6, 6)), ("RGBA", (9, 2)), ("P", (3, 5))]):
    values = np.random.default_rng(i).integers(0, 256, (*size, *MODES[mode]), dtype=np.uint8)
    picture = Image.fromarray(values)
    (picture.convert("P") if mode == "P" else picture).save(out / "pictures" / f"{i}.png")
compress_files(model, out / "pictures", out / "pictures.axl", other_sizes="tile")

run, again = out / "run", out / "again"
assert cli.main([*RUN.split(), str(run)]) == 0
shutil.copytree(run, again)
assert cli.main(["train", str(again), "--training.steps", "8"]) == 0
lines = [json.loads(line) for line in (again / "metrics.jsonl").read_text().splitlines()]
shutil.rmtree(again)
splits = ("train", "validation", "test")
facts = {
    "fingerprint_of_model": fingerprint(model).hex(),
    "fingerprints_of_digits": {split: load("digits", split=split).fingerprint for split in splits},
    **{
        figure: {line["step"]: line[figure] for line in lines if figure in line}
        for figure in ("nats_per_dim", "validation_bits_per_dim")
    },
}
(out / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
