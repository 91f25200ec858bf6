"""The model is the authors': it computes what their TensorFlow implementation computed, from their files alone."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from axial_transformers.decoding.sampling import sample
from axial_transformers.importers.official import import_official
from axial_transformers.importers.official_variables import variables
from axial_transformers.likelihood.bits import LOG2, bits_per_dim, random_slice_loss
from axial_transformers.models import AxialTransformer, Conditioning
from axial_transformers.ops.elementwise import shift
from axial_transformers.recipes import NAMED
from tests.paths import DATA
from tests.tensor_bundle_writer import write_bundle

A, C, E = DATA / "official_a", DATA / "official_c", DATA / "official_e"

# Which stored numbers: the suffix of their names says with which weights or with what conditioning they were computed.
CASES = [
    pytest.param(C, "", id="c"),
    pytest.param(C, "_cond", id="c_cond"),
    pytest.param(A, "", id="a"),
    pytest.param(A, "_cond", id="a_cond"),
    pytest.param(E, "", id="e"),
    pytest.param(E, "_ema", id="e_ema"),
]
EVERY_CASE = pytest.mark.parametrize(("folder", "suffix"), CASES)


@cache
def imported(folder: Path, suffix: str) -> AxialTransformer:
    return import_official(folder, raw=suffix != "_ema", heads=2 if folder == C else 4, verify=True)


@cache
def stored(folder: Path) -> Mapping[str, Tensor]:
    """The arrays of a case, those of positions with the channel axis that the authors' model leaves out."""
    with np.load(folder / "case.npz", allow_pickle=False) as arrays:
        tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    if tensors["x"].ndim == 3:
        of_positions = [name for name in tensors if name.startswith(("x", "noise", "logits", "sample"))]
        tensors |= {name: tensors[name].unsqueeze(3) for name in of_positions}
    return tensors


def conditioning(folder: Path, suffix: str) -> Tensor | None:
    return stored(folder)["cond"] if suffix == "_cond" else None


def assert_within(found: Tensor, expected: Tensor, bound: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=bound, check_dtype=False)


@EVERY_CASE
def test_logits_agree(folder: Path, suffix: str) -> None:
    model, case = imported(folder, suffix), stored(folder)
    with torch.no_grad():
        assert_within(model(case["x"], cond=conditioning(folder, suffix)), case[f"logits{suffix}"], 2e-5)


@pytest.mark.parametrize(("folder", "suffix"), [case for case in CASES if case.id != "a_cond"])  # not stored for that
def test_bits_per_dim_agree(folder: Path, suffix: str) -> None:
    model, case = imported(folder, suffix), stored(folder)
    found = bits_per_dim(model, case["x"], cond=conditioning(folder, suffix))
    assert_within(found, case[f"bits_per_dim{suffix}"], 1e-6)


@EVERY_CASE
def test_samples_are_reproduced_exactly_from_their_noise(folder: Path, suffix: str) -> None:
    model, case = imported(folder, suffix), stored(folder)
    found = sample(model, noise=case["noise"], cond=conditioning(folder, suffix))
    stored_samples = [case[name] for name in (f"sample_fast{suffix}", f"sample_slow{suffix}") if name in case]
    assert stored_samples
    for expected in stored_samples:
        assert torch.equal(found.long(), expected.long())


def test_samples_at_a_temperature_are_reproduced_exactly() -> None:
    found = sample(imported(E, "_ema"), noise=stored(E)["noise"], temperature=0.99)
    assert torch.equal(found.long(), stored(E)["sample_fast_ema_t0.99"].long())


def test_the_channel_encoder_agrees_for_every_channel() -> None:
    model, case = imported(A, ""), stored(A)
    x = case["x"].long()
    assert model.encoder is not None
    for channel, expected in enumerate(case["conditioning"]):
        with torch.no_grad():
            assert_within(model.encoder(x, torch.full((len(x),), channel), 0.0), expected, 2e-5)


def test_slices_agree() -> None:
    model, case = imported(A, ""), stored(A)
    channel = case["slice_inds"].long()
    with torch.no_grad():
        assert_within(
            model.slice_and_outputs(model.check(case["x"]), channel)[1].squeeze(-2), case["slice_logits"], 2e-5
        )
        loss = random_slice_loss(model, case["x"], channel=channel)
    assert_within(loss / LOG2, case["slice_loss_bits"], 1e-6)


@pytest.mark.parametrize("suffix", ["", "_cond"])
def test_upper_context_and_hidden_rows_agree(suffix: str) -> None:
    model, case = imported(C, suffix), stored(C)
    x = case["x"].long()
    with torch.no_grad():
        embedded = model.embed_conditioning(len(x), Conditioning(cond=conditioning(C, suffix)))
        context = model.context(x, torch.zeros(len(x)), embedded)
        h = model.embed_value(x.squeeze(-1))
        deeper = model.outer_decoders[0](h, context)
        hidden = model.inner_decoder(shift(h, -2) + deeper)
    assert_within(deeper - context, case[f"upper_context{suffix}"], 2e-5)
    assert_within(hidden, case[f"row_hidden{suffix}"], 2e-5)


def test_gradients_agree() -> None:
    """Within 1e-5 of the largest of all: the true gradient of a key bias is zero, so its own size is no measure."""
    model, case = import_official(A, raw=True, heads=4), stored(A)
    (random_slice_loss(model, case["x"], channel=case["slice_inds"].long()) / LOG2).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    expected = {name.removeprefix("grad/"): values for name, values in case.items() if name.startswith("grad/")}
    found = variables(gradients, "ar_decoder/transformer2d/")
    assert found.keys() == expected.keys()
    largest = max(values.abs().max().item() for values in expected.values())
    for name, values in expected.items():
        assert_within(found[name], values, 1e-5 * largest)


def published(name: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and type of every variable of a published checkpoint."""
    for line in (DATA / "official_published" / f"{name}_variables.txt").read_text().splitlines():
        variable, axes, dtype = line.replace(", ", ",").split()
        yield variable, tuple(int(axis) for axis in axes.strip("[]").split(",") if axis), dtype


@pytest.mark.parametrize(("name", "size"), [("imagenet32", 32), ("imagenet64", 64)])
def test_the_published_variables_are_all_used_at_a_reduced_width(tmp_path: Path, name: str, size: int) -> None:
    generator = np.random.default_rng(0)
    reduced = (
        (variable, generator.normal(0, 0.1, [16 if size > 256 else size for size in shape]).astype(dtype))
        for variable, shape, dtype in published(name)
    )
    write_bundle(tmp_path / "model.ckpt", reduced)
    config = import_official(tmp_path, verify=True).config
    assert (config.shape, config.channels, config.num_values) == ((size, size), 3, 256)
    assert (config.encoder_layers, config.outer_layers, config.inner_layers) == (8, 8, 8)
    assert (config.heads, config.mlp_ratio, config.layout) == (16, 1.0, "channels")


@pytest.mark.parametrize("name", ["imagenet32", "imagenet64"])
def test_the_released_recipes_have_the_published_variables(name: str) -> None:
    config = NAMED[f"{name}_released"]().model
    with torch.device("meta"):
        tensors = AxialTransformer(config).state_dict()
    shapes = {name: tuple(view.shape) for name, view in variables(tensors, "ar_decoder/transformer2d/").items()}
    averages = {f"{name}/ExponentialMovingAverage": shape for name, shape in shapes.items()}
    assert {name: shape for name, shape, _ in published(name)} == {**shapes, **averages, "global_step": ()}
