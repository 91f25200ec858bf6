"""What earlier releases wrote is still read, and gives the same numbers."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers import AxialTransformer, bits_per_dim, compress, decompress, sample
from axial_transformers.compression import compress_files, decompress_files, fingerprint
from axial_transformers.data import Examples, load
from axial_transformers.training import TrainConfig, read_run, train
from axial_transformers.training.checkpoint_record import Record
from conftest import Axial
from small_models import random_model, random_values, small_config

FOLDER = Path(__file__).parent / "data" / "made_at_a8c2b9c"
ARCHIVES = FOLDER.with_name("archives")
FACTS = json.loads((FOLDER / "expected.json").read_text())


@pytest.fixture(scope="module")
def model() -> AxialTransformer:
    return AxialTransformer.from_pretrained(FOLDER / "model")


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    with np.load(FOLDER / "expected.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def test_an_exported_model_gives_the_same_logits_and_bits(model, expected):
    x, label = expected["x"], expected["label"]
    with torch.no_grad():
        torch.testing.assert_close(model(x, label), expected["logits"], rtol=0, atol=1e-6)
    torch.testing.assert_close(bits_per_dim(model, x, label), expected["bits_per_dim"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_exported_model_draws_the_same_samples(model, expected, compiled):
    drawn = sample(model, 2, generator=torch.Generator().manual_seed(5), compile=compiled)
    assert torch.equal(drawn, expected["samples"])


def test_fingerprints_are_the_same(model):
    assert fingerprint(model).hex() == FACTS["fingerprint_of_model"]
    assert {split: load("digits", split=split).fingerprint for split in FACTS["fingerprints_of_digits"]} == FACTS[
        "fingerprints_of_digits"
    ]


def test_an_archive_decodes_to_the_same_images_and_is_written_the_same(model, expected):
    images, label = expected["images"], torch.arange(len(expected["images"])) % 4
    archive = (ARCHIVES / "labelled.axl").read_bytes()
    assert torch.equal(decompress(model, archive, label), images)
    assert compress(model, images, label, verify=False) == archive


def test_an_archive_of_pictures_gives_the_same_files_and_is_written_the_same(model, tmp_path):
    archive = ARCHIVES / "pictures.axl"
    decompress_files(model, archive, tmp_path / "again")
    names = {path.name for path in (FOLDER / "pictures").iterdir()}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    for name in names:
        old, new = Image.open(FOLDER / "pictures" / name), Image.open(tmp_path / "again" / name)
        assert (old.mode, old.size, old.tobytes()) == (new.mode, new.size, new.tobytes())
    compress_files(model, FOLDER / "pictures", tmp_path / "new.axl", other_sizes="tile", verify=False)
    assert (tmp_path / "new.axl").read_bytes() == archive.read_bytes()


def test_a_run_goes_on_with_the_same_losses(axial: Axial, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(FOLDER / "run", run)
    assert axial("train", run, "--training.steps", 8).status == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for figure in ("nats_per_dim", "validation_bits_per_dim"):
        found = {str(line["step"]): line[figure] for line in lines if figure in line}
        assert found == pytest.approx(FACTS[figure], abs=1e-5)
        assert list(found)[-1] == "8"


FEW_VALUES = small_config((3, 2), 2, num_values=17)
OF_OLD = dataclasses.replace(FEW_VALUES, input_divisor=255)


def test_a_model_stored_before_the_input_divisor_divides_by_255(tmp_path):
    model = random_model(OF_OLD)
    model.save_pretrained(tmp_path / "model")
    rewrite(tmp_path / "model/config.json", lambda config: config.pop("input_divisor"))
    loaded = AxialTransformer.from_pretrained(tmp_path / "model")
    x = random_values(model, 2)
    assert torch.equal(loaded(x), model(x))
    assert fingerprint(loaded) == fingerprint(model) != fingerprint(random_model(FEW_VALUES))


def test_a_run_begun_before_the_input_divisor_goes_on_dividing_by_255(tmp_path):
    values = random_values(random_model(OF_OLD), 6).numpy().astype(np.uint8)
    examples, config = Examples(values, [""] * len(values), num_values=17), TrainConfig(batch_size=2, device="cpu")

    def run(folder, model_config, steps, **options):
        torch.manual_seed(0)
        model = AxialTransformer(model_config)
        train(model, examples, dataclasses.replace(config, steps=steps), folder, **options)
        return model.state_dict()

    whole = run(tmp_path / "whole", OF_OLD, 3)
    folder = tmp_path / "run"
    run(folder, OF_OLD, 2)
    rewrite(folder / "train.json", lambda record: record["model"].pop("input_divisor"))
    checkpoint = folder / "checkpoints/step-00000002"
    record = Record.read(checkpoint)
    del record.identity["model"]["input_divisor"]
    record.write(checkpoint)

    with pytest.raises(ValueError, match=r"it has model\.input_divisor = 255, not 16"):
        run(folder, FEW_VALUES, 3, resume=True)
    resumed = run(folder, read_run(folder).model, 3, resume=True)
    torch.testing.assert_close(resumed, whole, rtol=0, atol=0)


def test_a_model_without_channel_encoder_is_the_same_as_before_the_input_divisor():
    stored = read_run(FOLDER / "run")
    made_now = dataclasses.replace(stored, model=dataclasses.replace(stored.model, input_divisor=None))
    checkpoint = Record.read(FOLDER / "run/checkpoints/step-00000004")
    assert json.loads(json.dumps(made_now.identity)) == checkpoint.identity


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
