"""A run with the released code's settings makes the steps that the authors' code made, from the same weights."""

import numpy as np
import torch
from torch import Tensor

from axial_transformers.data import Examples
from axial_transformers.data.value_range import ValueRange
from axial_transformers.importers.official import import_official
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.training import TrainConfig
from axial_transformers.training.batches import Batch
from axial_transformers.training.processes import Processes
from axial_transformers.training.step import prepare_learner, step
from tests.paths import DATA

CASE = DATA / "official_e"
STEPS, BATCH = 6, 4
AS_RELEASED = TrainConfig(
    steps=40,
    batch_size=BATCH,
    learning_rate=0.01,
    warmup_steps=5,
    ema_decay=0.9,
    as_released=True,
    device="cpu",
)


def assert_within(found: object, expected: Tensor, *, absolute: float = 0.0, relative: float = 0.0) -> None:
    found = torch.as_tensor(found, dtype=torch.float64)
    torch.testing.assert_close(found, expected.double(), rtol=relative, atol=absolute)


def test_a_run_makes_the_authors_steps() -> None:
    with np.load(CASE / "case.npz") as arrays:
        case = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    batches = [Batch(case[f"train/x_{i}"], None, case[f"train/slice_inds_{i}"].long()) for i in range(STEPS)]
    unused = Examples(batches[0].values.numpy().astype(np.uint8), [""] * BATCH, range=ValueRange(0, 255))
    model = import_official(CASE / "init", raw=True, heads=4)
    lines = []
    with Processes(torch.device("cpu")) as processes:
        learner = prepare_learner(model, unused, AS_RELEASED.resolve_auto(), processes)
        learner.batches = (batch for batch in batches)
        for number in range(STEPS):
            if number == STEPS - 1:  # theirs averages the weights from before each update, ours those from after it
                assert_within(bits_per_dim(learner.weights.average, case["x"]), case["bits_per_dim_ema"], absolute=2e-5)
            step(learner)
            lines.append(learner.line())
        learner.close()
    assert_within([line["bits_per_dim"] for line in lines], case["train/loss"], absolute=1e-5)
    # They count the rows of the embedding's gradient that belong to the same value separately.
    assert_within([line["gradient_norm"] for line in lines], case["train/grad_norm"], relative=1e-4)
    assert_within([line["learning_rate"] for line in lines], case["train/lr"], absolute=1e-9)
    assert_within(bits_per_dim(learner.weights.model, case["x"]), case["bits_per_dim"], absolute=2e-5)
