"""Every recipe is a whole configuration that states what it reaches."""

import math
import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from axial_transformers import data, recipes
from axial_transformers.cli.train import requested
from axial_transformers.data import DataConfig, Examples, load
from axial_transformers.data.value_range import ValueRange
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.recipes import NAMED, NOT_YET_MEASURED, of_own_data, tiled
from axial_transformers.recipes.custom import block_of, kind_of_values
from axial_transformers.recipes.for_archive import prepare_for_archive
from axial_transformers.recipes.prepare import decide_cut, decide_model, prepare
from axial_transformers.training import read_run
from axial_transformers.training.costs import parameters, step_costs, training_flops
from axial_transformers.training.optimizer import learning_rate
from axial_transformers.training.trained_model import check_values
from tests.conftest import TINY, Axial
from tests.launching import fork


def data_of(sizes: list[tuple[int, ...]], **settings: object) -> DataConfig:
    """The options of reading images of these sizes."""
    return tiled(replace(of_own_data(), **settings), sizes).data


@pytest.mark.parametrize("name", NAMED)
def test_a_recipe_states_the_number_it_reaches(name):
    recipe = NAMED[name]
    assert recipe.title
    assert "bits/dim" in recipe.reaches or recipe.reaches.startswith(NOT_YET_MEASURED)


@pytest.mark.parametrize(("name", "size"), [("imagenet32", 32), ("imagenet64", 64)])
def test_the_papers_models_are_as_the_paper_says(name, size):
    model = NAMED[name]().model
    assert (model.shape, model.channels, model.dim, model.heads) == ((size, size), 3, 2048, 16)
    assert (model.encoder_layers, model.layers_of_outer_decoders, model.inner_layers) == (8, (8,), 4)


@pytest.mark.usefixtures("home")
def test_the_recipe_paper_trains_the_papers_model_of_any_images_without_additions(axial: Axial):
    Path("photos").mkdir()
    for i in range(9):
        Image.new("RGB", (12, 9), (i, 90, 200)).save(f"photos/{i}.png")
    for source, encoder in (("photos", 2), ("digits", 0)):
        trained = axial("train", "paper", source, "--training.steps", "2", "--samples", "0", "--out", f"runs/{source}")
        assert trained.status == 0, trained.err
        run = read_run(f"runs/{source}").run
        model = run.model
        found = (model.encoder_layers, model.layout, model.values, model.channel_planes)
        assert found == (encoder, "channels", "categorical", "one_hot")
        assert (model.gated_convolutions, model.rotary, model.centred, model.num_classes) == (0, None, False, None)
        assert run.training.optimizer == "adam"
    assert axial("inspect", "paper").err.splitlines() == [
        "axial inspect: recipe paper has no data of its own: axial train paper FOLDER_OR_FILE"
    ]


def test_what_is_added_to_the_papers_model_brings_no_other_addition():
    run = NAMED["paper"]().changed({"model.values": "ordinal", "model.centred": True})
    model = recipes.suited(run, Examples(np.zeros((20, 4, 4, 3), np.uint8), ["zeros"] * 20)).model
    assert (model.centred, model.activity, model.layout, model.gated_convolutions) == (True, False, "channels", 0)


@pytest.mark.parametrize(("name", "rate", "dropout"), [("imagenet32", 1e-4, 0.04), ("imagenet64", 2e-4, 0.0)])
def test_the_released_training_is_as_released(name, rate, dropout):
    recipe = NAMED[f"{name}_released"]()
    training = recipe.training
    assert (training.learning_rate, training.warmup_steps, training.clip_norm) == (rate, 5_000, 1.0)
    assert (training.ema_decay, training.batch_size, training.betas) == (0.99995, 64, (0.9, 0.999))
    assert training.as_released
    assert (recipe.model.mlp_ratio, recipe.model.dropout) == (1.0, dropout)


@pytest.mark.parametrize("name", ["imagenet32", "imagenet64", "bair"])
def test_the_papers_training_is_as_the_paper_says(name):
    recipe = NAMED[name]()
    assert recipe.training.steps == 200_000
    assert recipe.model.hidden == recipe.model.dim == 2048
    wider = replace(recipe.model, mlp_ratio=4.0)
    sizes = [sum(parameters(model).values()) / 1e9 for model in (recipe.model, wider)]
    assert sizes == pytest.approx([0.505, 1.009], abs=0.003)


LARGE = ("bair", "clips32")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LARGE or "imagenet" in name else ()) for name in NAMED],
)
def test_a_recipes_step_fits_the_machine_that_it_names(name, tmp_path):
    """A GPU of that size multiplies bfloat16; a CPU takes float32, which needs more memory.

    In a process of its own, since training in this one makes it keep freed memory: 9 GB of the largest recipe.
    """
    recipe = NAMED[name]
    run = recipes.suited(recipe(), load("digits")) if recipe().open else recipe()
    precision = "float32" if recipe.fits.device == "cpu" else "bfloat16"
    training = replace(run.training, precision=precision, device="cpu", compile=False)

    def counted() -> int:
        signal.alarm(1200)
        return int(step_costs(run.model, training).memory / 1e9 > recipe.fits.gigabytes)

    assert fork(1, counted, tmp_path) == [(0, "", "")]


@pytest.mark.parametrize(
    ("name", "warmup", "schedule"),
    [
        ("digits", 100, "linear"),
        ("fashion_mnist", 200, "linear"),
        ("clips32", 100, "linear"),
        ("clips32_frames", 100, "cosine"),
        ("photos32", 400, "linear"),
        ("gray_photos32", 400, "linear"),
        ("imagenet32", 5_000, "constant"),
    ],
)
def test_a_whole_runs_learning_rates_are_those_that_were_measured(name, warmup, schedule):
    config = NAMED[name]().training
    peak, steps = config.learning_rate, config.steps

    def measured(step: int) -> float:
        if step < warmup:
            return peak * (step + (not config.as_released)) / warmup
        fallen = (step - warmup) / (steps - warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * fallen))
        return peak * {"constant": 1.0, "cosine": cosine, "linear": 1 - fallen}[schedule]

    for step in (*range(0, 2 * warmup, 7), warmup - 1, warmup, *range(2 * warmup, steps, steps // 50), steps - 1):
        assert learning_rate(step, config) == measured(step)


@pytest.mark.parametrize("name", ["bair", "clips32", "clips32_frames"])
def test_a_clip_comes_frame_by_frame_so_that_given_frames_are_the_exact_condition(name):
    frames = NAMED[name]().model.bijection.order[:, 0]
    assert (frames.diff() >= 0).all()


@pytest.mark.usefixtures("home")
def test_large_pictures_are_cut_into_tiles_unless_told(axial: Axial):
    for i in range(3):
        Path("photos/train").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((96, 70 + i, 3), 40 * i, np.uint8)).save(f"photos/train/{i}.png")
    inspected = axial("inspect", "photos", *TINY)
    assert "32 x 32" in inspected.out
    assert "cut into square tiles of 32; to change that: --data.size" in inspected.err
    small = [(8, 8)] * 3
    assert data_of(small) == data_of([]) == DataConfig()
    assert data_of([(64, 64), (64, 63)]) == DataConfig(size=32, cut="tiles")
    of_64 = AxialTransformerConfig(shape=(64, 64))
    assert data_of([(64, 64), (64, 65)], model=of_64) == DataConfig(size=64, cut="tiles")
    cropped = DataConfig(size=16, cut="crop")
    assert data_of([(640, 480)], data=cropped, open=()) == cropped
    assert data_of([(640, 480), (20, 20), (9, 9)]) == DataConfig(size=8, cut="tiles")


@pytest.mark.usefixtures("home")
def test_large_arrays_are_cut_into_tiles_unless_told(capsys):
    np.save("scan.npy", np.arange(11 * 70 * 65, dtype=np.uint8).reshape(11, 70, 65))
    Path("films").mkdir()
    np.save("films/train_1.npy", np.zeros((11, 2, 64, 64, 1), np.uint8))
    np.save("films/val_1.npy", np.zeros((11, 2, 64, 64, 1), np.uint8))
    for words, shape in (("scan.npy", (32, 32)), ("films", (2, 32, 32)), ("scan.npy --data.cut exact", (70, 65))):
        asked = requested(words.split())[0]
        run, source = decide_cut(asked, data.open_source(asked.source, asked.data))
        assert decide_model(run, source.part("train")).model.shape == shape
        assert ("cut into square tiles of 32" in capsys.readouterr().err) == (shape[-1] == 32)
    assert data_of([(64, 64)]) == data_of([(16, 63, 63)]) == DataConfig()
    assert data_of([(4, 64, 64)]) == DataConfig(size=32, cut="tiles")


def tile_maps(rng: np.random.Generator) -> np.ndarray:
    """Maps of 38 kinds of tiles: grass 0-3, water 4-7 with an edge, two kinds of houses, trees, flowers."""
    maps = rng.integers(0, 4, (100, 16, 16))
    for each in maps:
        each[rng.random((16, 16)) < 0.05] = 34 + rng.integers(4)
        (y, x), (h, w) = rng.integers(0, 10, 2), rng.integers(3, 6, 2)
        each[y : y + h, x : x + w] = rng.integers(4, 8, (h, w))
        each[y, x : x + w], each[y + h - 1, x : x + w] = 9, 14
        each[y : y + h, x], each[y : y + h, x + w - 1] = 11, 12
        for first in (16, 22):
            (y, x), w = rng.integers(0, 10, 2), rng.integers(3, 7)
            each[y, x : x + w], each[y + 1 : y + 3, x : x + w] = first + 1, first + 3
            each[y, x], each[y, x + w - 1], each[y + 2, x + w // 2], each[y + 1, x + 1] = first + np.array((0, 2, 4, 5))
        y, x = rng.integers(0, 14, 2)
        each[y : y + 2, x : x + 2] = [[28, 29], [30, 31]]
    return maps


def areas(rng: np.random.Generator, labels: int) -> np.ndarray:
    """Maps of large areas with labels."""
    at = np.indices((24, 24))[:, None, None]
    points = rng.integers(0, 24, (2, 100, 6, 1, 1))
    nearest = ((at - points) ** 2).sum(0).argmin(1)
    return np.take_along_axis(rng.integers(0, labels, (100, 6)), nearest.reshape(100, -1), 1).reshape(100, 24, 24)


def waves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Sums of waves along all axes, about -1..1."""
    at = np.stack(np.indices(shape))
    phases, lengths = rng.uniform(0, 6, (2, 100, len(shape), *[1] * len(shape)))
    return np.sin(at / (2 + lengths / 2) + phases).mean(1)


def kinds_of_data(rng: np.random.Generator) -> dict[str, tuple[str, np.ndarray]]:
    smooth = waves(rng, 16, 16)
    shades = (128 + 120 * smooth + rng.normal(0, 2, smooth.shape)).astype(int)
    sound = np.sin(np.arange(200) * rng.uniform(0.02, 0.6, (100, 1))) * rng.uniform(0.01, 1, (100, 1))
    outer = (np.indices((16, 16)) - 8).__pow__(2).sum(0) > 50
    rates = rng.gamma(1, 1, (1000, 1)) * np.array([2, 5, 20, 50, 100])
    numbers = {
        "photographs": shades,
        "scans with a background": np.where(outer, -1024, (900 * smooth).astype(int)),
        "12 shades of heat": (6 + 5.9 * smooth).astype(int),
        "audio, 16 bits": (30_000 * sound + rng.normal(0, 40, sound.shape)).astype(int),
        "counts": rng.poisson(rates),
    }
    steps = rng.dirichlet(np.full(4, 0.5), 4).cumsum(1)
    dna = [rng.integers(0, 4, 500)]
    for _ in range(40):
        dna.append((rng.random((500, 1)) > steps[dna[-1]][:, :3]).sum(1))
    symbols = {
        "tiles": tile_maps(rng),
        "labels": areas(rng, 8),
        "palette of 256": rng.permutation(256)[shades.clip(0, 255)],
        "DNA": np.stack(dna, 1),
        "tokens": rng.integers(0, 512, (40, 16, 16)),
        "noise": rng.integers(0, 256, (40, 16, 16)),
        "two values": 255 * (smooth > 0),
    }
    named = {"ordinal": numbers, "categorical": symbols}
    return {name: (kind, x) for kind, each in named.items() for name, x in each.items()}


DATA = kinds_of_data(np.random.default_rng(0))


@pytest.mark.parametrize("name", DATA)
def test_values_are_numbers_where_unlike_neighbours_differ_as_those_of_other_values_do(name):
    kind, values = DATA[name]
    x = values[..., None].astype(np.int32)
    lowest, highest = int(x.min()), int(x.max())
    examples = Examples(x, [name] * len(x), range=ValueRange(lowest, highest))
    found, why = kind_of_values(examples)
    assert found == kind, why


@pytest.mark.usefixtures("home")
def test_a_row_of_the_plan_says_which_kind_of_values_was_decided_and_why():
    for name, kind, other in (("12 shades of heat", "numbers", "categorical"), ("tiles", "symbols", "ordinal")):
        np.save("data.npy", DATA[name][1].astype(np.uint8))
        own = prepare("data.npy")
        said = own.why_values
        assert re.match(rf"values are {kind}: .* \d+% ", said)
        chosen = prepare(requested(["data.npy", "--model.values", other])[0])
        assert (chosen.run.model.values, chosen.why_values) == (other, None)
        assert [each.model.centred for each in (own.run, chosen.run)] == [kind == "numbers", kind != "numbers"]


@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ((145, 145, 200), (7, 7, 200)),
        ((10, 300, 513), (10, 6, 171)),
        ((1, 1, 1), (1, 1, 1)),
    ],
)
def test_a_block_of_a_volume_has_whole_rows_up_to_256(shape, block):
    assert block_of(shape) == block


@pytest.mark.parametrize(
    ("channels", "values", "layout"),
    [
        (1, "ordinal", "channels"),
        (2, "ordinal", "pixels"),
        (8, "ordinal", "pixels"),
        (9, "ordinal", "columns"),
        (3, "categorical", "columns"),
    ],
)
def test_numbers_of_several_channels_share_a_position(channels, values, layout):
    x = np.zeros((20, 4, 4, channels), np.uint8)
    run = recipes.suited(of_own_data().changed({"model.values": values}), Examples(x, ["zeros"] * 20))
    assert run.model.layout == layout


@pytest.mark.parametrize(("shape", "layers"), [((9,), (2, (), 3)), ((4, 5), (2, (2,), 1)), ((2, 3, 4), (1, (3, 2), 1))])
@pytest.mark.parametrize("channels", [1, 2, 9])
def test_own_data_take_gated_convolutions(shape, layers, channels):
    x = np.arange(math.prod(shape) * channels, dtype=np.uint8).reshape(1, *shape, channels).repeat(20, 0)
    model = recipes.suited(of_own_data(), Examples(x, ["ramp"] * 20)).model
    assert (model.gated_convolutions, model.outer_layers, model.inner_layers) == layers
    assert model.mlp_ratio == 2 / 3


@pytest.mark.parametrize("setting", [{"model.layout": "columns"}, {"model.encoder_layers": 2}], ids=str)
def test_settings_that_one_position_a_pixel_does_not_have_choose_another_layout(setting):
    run = of_own_data().changed({"model.values": "ordinal"} | setting)
    x = np.zeros((20, 4, 4, 3), np.uint8)
    assert recipes.suited(run, Examples(x, ["zeros"] * 20)).model.layout == "columns"


def test_a_layout_can_be_asked_for_before_the_values_are_known():
    run = of_own_data().changed({"model.layout": "pixels"})
    levels = np.linspace(0, 90, 16).astype(np.uint8).reshape(1, 4, 4, 1).repeat(3, -1)
    assert recipes.suited(run, Examples(levels.repeat(20, 0), ["ramp"] * 20)).model.values == "ordinal"
    with pytest.raises(ValueError, match="columns"):
        recipes.suited(run.changed({"model.values": "categorical"}), Examples(levels, ["ramp"]))


def test_given_channels_of_own_data_need_a_channel_encoder():
    x = np.zeros((20, 4, 4, 3), np.uint8)
    asked = {"model.values": "ordinal", "model.known_channels": 1}
    with pytest.raises(ValueError, match=r"model\.encoder_layers"):
        recipes.suited(of_own_data().changed(asked), Examples(x, ["zeros"] * 20))
    run = recipes.suited(of_own_data().changed(asked | {"model.encoder_layers": 2}), Examples(x, ["zeros"] * 20))
    assert run.model.layout == "channels"


def test_the_size_of_a_model_follows_from_the_shape_and_the_number_of_examples():
    for shape, count, dim, batch, evaluated in (
        ((24, 24, 1), 489, 64, 8, 250),
        ((8, 1), 600, 16, 64, 250),
        ((64, 64, 3), 600, 64, 1, 21),
        ((8, 8, 200, 1), 20, 16, 1, 20),
    ):
        slopes = np.random.default_rng(0).uniform(0, 9, (count, *[1] * len(shape)))
        x = (slopes * np.indices(shape).sum(axis=0)).astype(np.int32)
        run = recipes.custom(Examples(x, ["ramp"] * count, range=ValueRange(0, 2999)))
        assert (run.model.dim, run.training.batch_size, run.validate_on) == (dim, batch, evaluated)
        assert run.model.dim % (2 * run.model.heads) == 0
        assert run.training.head_learning_rate == (None if shape[-1] == 3 else pytest.approx(0.04 / dim))
        assert run.training.learning_rate == (2e-2 if len(shape) == 4 else 5e-3)
        assert training_flops(run.model) * batch <= 12e9
        assert sum(parameters(run.model).values()) <= x.size or dim == 16


def few_of_many(count: int) -> np.ndarray:
    """Values [60, 8, 8, 1] of smooth pictures, of which `count` occur between -20,000 and 20,000."""
    row = np.linspace(0, 1, 8)
    smooth = row[:, None] * row + np.random.default_rng(0).normal(0, 0.2, (60, 8, 8))
    ranks = (smooth.clip(0, 1) * (count - 1)).round()
    return (ranks * (40_000 / (count - 1)) - 20_000).round().astype(np.int16)[..., None]


def test_few_of_many_values_are_coded_by_their_ranks(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    values = few_of_many(30)
    np.save("few.npy", values)
    caplog.set_level("INFO")
    model = prepare("few.npy").run.model
    assert model.levels == tuple(np.unique(values).tolist())
    assert (model.num_values, model.lowest, model.highest) == (30, -20_000, 20_000)
    assert any("30" in record.message and "ranks" in record.message for record in caplog.records)
    asked = requested(["few.npy", "--model.lowest", "-20000", "--model.num-values", "40001"])[0]
    assert prepare(asked).run.model.levels is None
    assert prepare(requested(["few.npy", "--data.num-values", "45000"])[0]).run.model.levels is None


@pytest.mark.parametrize("count", [1200, 4000])
def test_values_that_are_seldom_seen_again_are_coded_as_they_are(count, tmp_path, monkeypatch):
    """A new file would hold others."""
    monkeypatch.chdir(tmp_path)
    np.save("some.npy", few_of_many(count))
    assert prepare("some.npy").run.model.levels is None


def test_a_scan_that_a_tool_saved_again_is_coded_by_ranks(tmp_path, monkeypatch):
    """nibabel spreads 300 values over 65,536 numbers where the header is that of 16 bits."""
    nibabel = pytest.importorskip("nibabel")
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).integers(0, 300, (8, 30, 40)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), "a.nii")
    image = nibabel.load("a.nii")
    nibabel.save(nibabel.Nifti1Image(image.get_fdata(), image.affine, image.header), "again.nii")
    model = prepare("again.nii").run.model
    assert model.num_values == len(model.levels or ()) == 300
    assert model.highest - model.lowest > 60_000
    assert prepare("a.nii").run.model.levels is None


def test_values_beyond_the_last_blocks_count(tmp_path, monkeypatch):
    """The last row, column and slice belong to no block."""
    nibabel = pytest.importorskip("nibabel")
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).integers(0, 300, (25, 33, 33)).astype(np.int16) * 100
    values[24, 32] = 31_000
    values[:, 32, 32] = 12_345
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), "a.nii")
    levels = prepare("a.nii").run.model.levels
    assert levels is not None
    assert {12_345, 31_000} < {*levels}
    assert levels == prepare_for_archive("a.nii", Path("a.run"), {}, force=True).prepared.run.model.levels


def test_a_value_that_occurs_once_lets_expect_others_but_not_in_an_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = few_of_many(30)
    values[5, 3, 3] = 77
    np.save("few.npy", values)
    assert prepare("few.npy").run.model.levels is None
    assert 77 in (prepare_for_archive("few.npy", Path("few.run"), {}, force=True).prepared.run.model.levels or ())


def test_data_with_other_values_than_the_levels_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", few_of_many(30))
    model = prepare("few.npy").run.model
    np.save("other.npy", other := few_of_many(30).clip(-19_990, 19_999))
    with pytest.raises(ValueError, match=r"other.*-19990"):
        check_values(load("other.npy", split="all"), model, "other.npy")
    assert other.min() == -19_990
