"""The shapes and dtypes in signatures are those of the arguments and results.

In a process of its own: with the checks, wrong arguments raise errors of jaxtyping in place of the package's.
"""

import subprocess
import sys

from tests.paths import ROOT

SCRIPT = """
import torch._dynamo  # what is first imported behind the hook would be compiled anew

import jaxtyping
from jaxtyping import install_import_hook

import tests.shape_checks

rooms = [f"axial_transformers.{room}" for room in ("layers", "ops", "models", "exact", "decoding", "likelihood")]
install_import_hook(rooms, "tests.shape_checks.of_shapes")  # of what is imported later, too

import torch
from axial_transformers.decoding import decode_naively
from axial_transformers.decoding.sampling import complete, sample
from axial_transformers.likelihood.bits import bits_map, random_slice_loss
from experiments.dependencies import check, influence
from axial_transformers.likelihood.evaluation import evaluate
from tests.small_models import VARIANTS, random_given, random_model, random_values

for name, config in list(VARIANTS.items())[::12]:
    model = random_model(config)
    x, given = random_values(model, 3), random_given(model, 3)
    assert bits_map(model, x.to(torch.uint8), **given).shape == x.shape, name
    random_slice_loss(model, x, **given).backward()
    sample(model, known=x.to(torch.uint8), **given)
model = random_model(VARIANTS["2d"])
x = random_values(model, 3)
evaluate(model, x, batch_size=2)
check(influence(model, x[:1]))
complete(model, x.to(torch.uint8), rows=1, count=2, approximate=True)
decode_naively(model, lambda logits, position: logits.argmax(-1), x)
try:
    random_slice_loss(model, x.double())
except jaxtyping.TypeCheckError:
    print("checked")
"""


def test_annotations_are_true():
    command = [sys.executable, "-c", SCRIPT]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.stdout == "checked\n", ran.stderr[-3000:]
