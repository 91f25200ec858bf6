"""A model folder is read back bitwise, or refused in one line that names the file, before much is allocated."""

import json
import logging
import pickle
import resource
import struct
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.utils import parametrizations

from axial_transformers.compression import compress
from axial_transformers.decoding.sampling import sample
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.likelihood.evaluation import evaluate
from axial_transformers.models import AxialTransformer
from axial_transformers.models.config import MAX_LAYERS
from axial_transformers.storage.model_folders import CONFIG, SHIPPED, WEIGHTS, shipped_names
from tests.small_models import VARIANTS, random_model, random_values, small_config, small_model

MEGABYTE = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder, of a model with all its parts."""
    random_model(small_config((2, 3), 2, num_classes=3)).float().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refusal(folder: Path, error: type[Exception] = ValueError) -> str:
    """The line with which the folder is refused; little memory was taken, and the folder left as it was."""
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} if folder.is_dir() else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(error) as caught:
        AxialTransformer.from_pretrained(folder)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < 300 * MEGABYTE
    assert before == ({path.name: path.stat().st_mtime_ns for path in folder.iterdir()} if folder.is_dir() else None)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 1000
    assert str(folder) in line
    return line


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_a_model_is_read_back_bitwise(config, tmp_path):
    model = random_model(config).float().train()
    model.save_pretrained(tmp_path / "model")
    loaded = AxialTransformer.from_pretrained(tmp_path / "model")
    assert loaded.config == config
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    weights, read = model.state_dict(), loaded.state_dict()
    assert weights.keys() == read.keys()
    assert all(torch.equal(weights[name], read[name]) for name in weights)
    x = random_values(model, 2)
    assert torch.equal(model.eval()(x), loaded(x))


def test_the_same_model_gives_the_same_files(tmp_path):
    model = random_model(small_config((2, 3), 2))
    for name in ("one", "two"):
        model.save_pretrained(tmp_path / name)
    for file in (CONFIG, WEIGHTS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_folder_that_holds_something_is_left_untouched(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match="exists already"):
        random_model(small_config((5,))).save_pretrained(folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_model_folder_is_replaced_if_asked(folder):
    model = random_model(small_config((5,))).float()
    model.save_pretrained(folder, overwrite=True)
    assert AxialTransformer.from_pretrained(folder).config.shape == (5,)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    model.save_pretrained(folder.parent / "new", overwrite=True)
    assert AxialTransformer.from_pretrained(folder.parent / "new").config.shape == (5,)


@pytest.mark.parametrize(
    ("name", "says"), [("train.json", "also holds train.json"), (CONFIG, "holds no config.json of a model")]
)
def test_what_is_more_than_a_model_folder_is_not_replaced(folder, name, says):
    (folder / name).write_text("{}")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match=says):
        random_model(small_config((5,))).save_pretrained(folder, overwrite=True)
    (folder.parent / "link").symlink_to(folder)
    with pytest.raises(FileExistsError, match="link is not replaced"):
        random_model(small_config((5,))).save_pretrained(folder.parent / "link", overwrite=True)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_save_that_fails_leaves_nothing_but_the_former_model(folder, monkeypatch):
    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("axial_transformers.storage.model_folders.save_file", fail)
    for target in (folder, folder.parent / "new"):
        with pytest.raises(OSError, match="disk full"):
            random_model(small_config((5,))).save_pretrained(target, overwrite=target == folder)
    assert AxialTransformer.from_pretrained(folder).config.shape == (2, 3)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "model").mkdir()
    random_model(small_config((5,))).save_pretrained(tmp_path / "model")
    assert AxialTransformer.from_pretrained(tmp_path / "model").config.shape == (5,)


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 0.5, 0.99])
def test_truncated_weights_are_refused(folder, kept):
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    assert f"{WEIGHTS}: damaged or cut off" in refusal(folder)


def header(tensors: object, length: int | None = None) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


TERA = 1 << 40


HOSTILE = [
    header({}, length=TERA),
    header({}, length=2**64 - 1),
    header({"head.0.bias": {"dtype": "F32", "shape": [TERA], "data_offsets": [0, 4 * TERA]}}),
    header({"head.0.bias": {"dtype": "F32", "shape": [TERA], "data_offsets": [0, 0]}}),
    header({"head.0.bias": {"dtype": "F32", "shape": [TERA, TERA, TERA], "data_offsets": [0, 8]}}) + bytes(8),
    header({"head.0.bias": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}) + bytes(8),
    header({name: {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]} for name in ("a", "b")}) + bytes(32),
    header({"a": {"dtype": "F32", "shape": [8], "data_offsets": [32, 64]}}) + bytes(64),
    header([1, 2]),
    pickle.dumps({"head.0.bias": torch.zeros(8)}),
    b"not weights at all",
]
"""Headers of terabytes, offsets that are shared or leave gaps, sizes that overflow, code."""


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: repr(content[:60]))
def test_hostile_weights_are_refused(folder, content):
    (folder / WEIGHTS).write_bytes(content)
    assert WEIGHTS in refusal(folder)


def test_weights_that_are_not_those_of_the_configuration_are_told_by_name(folder):
    weights = load_file(folder / WEIGHTS)
    renamed = {name.replace("head", "haed"): tensor for name, tensor in weights.items()}
    save_file(renamed, folder / WEIGHTS)
    line = refusal(folder)
    assert "missing head.0.weight, head.0.bias" in line
    assert "unknown haed.0.bias, haed.0.weight" in line
    save_file(weights | {"head.0.bias": torch.zeros(9)}, folder / WEIGHTS)
    assert "head.0.bias is [9], not [8]" in refusal(folder)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.complex64])
def test_weights_that_are_not_floating_point_are_refused(folder, dtype):
    weights = load_file(folder / WEIGHTS)
    save_file(weights | {"head.0.bias": weights["head.0.bias"].to(dtype)}, folder / WEIGHTS)
    assert "head.0.bias" in refusal(folder)


def test_weights_of_several_dtypes_are_refused_and_those_of_one_are_read(folder):
    weights = load_file(folder / WEIGHTS)
    save_file(weights | {"head.0.bias": weights["head.0.bias"].half()}, folder / WEIGHTS)
    assert "head.0.bias is torch.float16" in refusal(folder)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        save_file({name: tensor.to(dtype) for name, tensor in weights.items()}, folder / WEIGHTS)
        assert AxialTransformer.from_pretrained(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_model_computes_in_at_least_float32_however_its_weights_are_stored(folder, dtype):
    stored = {name: tensor.to(dtype) for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(stored, folder / WEIGHTS)
    read = AxialTransformer.from_pretrained(folder).state_dict()
    assert {tensor.dtype for tensor in read.values()} == {torch.float64 if dtype == torch.float64 else torch.float32}
    assert all(torch.equal(read[name], tensor.to(read[name].dtype)) for name, tensor in stored.items())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_weights_that_are_not_finite_are_refused_by_name(folder, dtype, value):
    weights = {name: tensor.to(dtype) for name, tensor in load_file(folder / WEIGHTS).items()}
    weights["head.0.bias"][5] = value
    save_file(weights, folder / WEIGHTS)
    assert f"{WEIGHTS}: head.0.bias holds NaN or infinity" in refusal(folder)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (header({"dtype": "F32", "x": "y" * (9 * MEGABYTE)}), "a header of 9,437"),
        (
            header({f"{i}\n": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100)}),
            r"unknown 0\n, ",
        ),
        (header({"head.0.bias": {"dtype": "X\n" * 9999, "shape": [0], "data_offsets": [0, 0]}}), "damaged or cut off"),
        (header({"head.0.bias": {"dtype": "F32", "shape": [0] * 100_000, "data_offsets": [0, 0]}}), "tensors"),
    ],
    ids=["large", "lines", "long", "many axes"],
)
def test_headers_are_bounded_and_told_of_in_one_short_line(folder, content, says):
    (folder / WEIGHTS).write_bytes(content)
    config = json.loads((folder / CONFIG).read_text())
    for layers in (1, 2) if says != "tensors" else (2,):
        (folder / CONFIG).write_text(json.dumps(config | {"inner_layers": layers}))
        assert says in refusal(folder)


def test_a_model_of_many_layers_is_not_built_for_a_few_weights(folder):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"inner_layers": MAX_LAYERS - 4}))
    begun = time.process_time()
    assert "1024 layers have at least 12288 tensors, not " in refusal(folder)
    assert time.process_time() - begun < 0.3


def test_a_model_without_values_is_refused_wherever_they_are_needed(tmp_path):
    with torch.device("meta"):
        model = AxialTransformer(small_config((2, 3)))
    x = random_values(model, 2)
    for use in (
        lambda: model.save_pretrained(tmp_path / "model"),
        lambda: model(x),
        lambda: bits_per_dim(model, x),
        lambda: evaluate(model, x),
        lambda: sample(model, 2),
        lambda: compress(model, x),
        lambda: model.device,
    ):
        with pytest.raises(ValueError, match="the model is on the meta device, without values"):
            use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_a_missing_file_is_named(folder, file):
    (folder / file).unlink()
    assert file in refusal(folder, FileNotFoundError)


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_a_link_out_of_the_folder_is_refused(folder, tmp_path, file):
    (folder / file).rename(tmp_path / "elsewhere")
    (folder / file).symlink_to("../elsewhere")
    assert f"{file} is a link out of {folder}: if you trust it, put what it leads to in its place" in refusal(folder)


def test_links_within_the_folder_and_to_the_folder_are_followed(folder, tmp_path):
    (folder / WEIGHTS).rename(folder / "newest.safetensors")
    (folder / WEIGHTS).symlink_to("newest.safetensors")
    (tmp_path / "latest").symlink_to(folder)
    assert AxialTransformer.from_pretrained(tmp_path / "latest").config.shape == (2, 3)


def test_the_hubs_cache_may_link_to_its_blobs_and_no_further(folder, tmp_path):
    snapshot = tmp_path / "models--someone--model" / "snapshots" / "0123abcd"
    blobs = snapshot.parents[1] / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in (CONFIG, WEIGHTS):
        (folder / file).rename(blobs / file[::-1])
        (snapshot / file).symlink_to(Path("../../blobs") / file[::-1])
    assert AxialTransformer.from_pretrained(snapshot).config.shape == (2, 3)
    (blobs / WEIGHTS[::-1]).rename(tmp_path / "elsewhere")
    (blobs / WEIGHTS[::-1]).symlink_to(tmp_path / "elsewhere")
    assert "is a link out of" in refusal(snapshot)


def test_an_index_leads_nowhere(folder):
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"head.0.bias": "../../../etc/passwd"}}')
    assert AxialTransformer.from_pretrained(folder).config.shape == (2, 3)
    (folder / WEIGHTS).unlink()
    assert f"{WEIGHTS}: missing" in refusal(folder, FileNotFoundError)


@pytest.mark.parametrize("place", ["nothing", "a.file", "deeper/than/the/hub"])
def test_a_missing_folder_is_refused(tmp_path, place):
    (tmp_path / "a.file").write_text("")
    assert "no model folder there" in refusal(tmp_path / place, FileNotFoundError)


def test_another_models_configuration_is_refused(folder):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"model": "axial_resnet"}))
    assert "not the configuration of a model called 'axial_transformer'" in refusal(folder)
    config.pop("model")
    (folder / CONFIG).write_text(json.dumps(config))
    assert "'axial_transformer'" in refusal(folder)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "\xff", "[" * 100_000, '{"model": ' * 50_000, " " * (2 << 20)],
    ids=["empty", "open", "list", "null", "bytes", "deep list", "deep object", "large"],
)
def test_what_is_not_a_configuration_is_refused(folder, text):
    (folder / CONFIG).write_bytes(text.encode("latin-1"))
    assert CONFIG in refusal(folder)


BILLION = 10**9


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ({"wdith": 8}, "unknown fields ['wdith']"),
        ({"dim": "8"}, "dim is '8', not int"),
        ({"dim": 8.0}, "dim"),
        ({"dim": True}, "dim"),
        ({"dim": None}, "dim"),
        ({"dim": [8]}, "dim"),
        ({"dim": -8}, "dim"),
        ({"dim": BILLION, "heads": 1}, "dim must be at least 1 and"),
        ({"dim": 1 << 20}, "not the weights of this configuration"),
        ({"num_values": BILLION}, "num_values"),
        ({"num_values": 1 << 16}, "weights"),
        ({"num_classes": BILLION}, "num_classes"),
        ({"shape": [BILLION, BILLION]}, "shape"),
        ({"shape": [1 << 20, 1 << 10]}, "weights"),
        ({"shape": [1 << 19, 1 << 19]}, "too many positions"),
        ({"shape": []}, "shape"),
        ({"shape": 6}, "shape"),
        ({"shape": "2x3"}, "shape"),
        ({"shape": [2, "3"]}, "shape"),
        ({"shape": [1] * 64}, "shape"),
        ({"shape": [1] * 1000}, "shape"),
        ({"shape": [1] * 9, "channels": 1, "encoder_layers": 9, "outer_layers": 0}, "shape"),
        ({"channels": BILLION}, "channels"),
        ({"shape": [1 << 20, 1], "channels": 1 << 10, "layout": "frames"}, "channels"),
        ({"shape": [1, 1, 1, 1, 1, 1, 1, 1], "channels": 1 << 20, "dim": 1 << 20, "encoder_layers": 8}, "outer_layers"),
        ({"channels": 1 << 20}, "weights"),
        ({"dim": 10**400}, "dim"),
        ({"dropout": 10**400}, "dropout"),
        ({"shape": [10**400]}, "shape"),
        ({"heads": 3}, "dim 8 must be a multiple of model.heads 3"),
        ({"heads": 0}, "heads"),
        ({"mlp_ratio": 1e300}, "mlp_ratio"),
        ({"mlp_ratio": 10**400}, "mlp_ratio"),
        ({"mlp_ratio": float("nan")}, "mlp_ratio"),
        ({"mlp_ratio": float("inf")}, "mlp_ratio"),
        ({"mlp_ratio": 0.01}, "mlp_ratio"),
        ({"encoder_layers": BILLION}, "encoder_layers"),
        ({"encoder_layers": 0}, "encoder_layers"),
        ({"encoder_layers": 3}, "encoder_layers"),
        ({"encoder_layers": 1024}, "encoder_layers"),
        ({"encoder_layers": 200}, "weights"),
        ({"outer_layers": BILLION}, "outer_layers"),
        ({"outer_layers": [2, 2]}, "outer_layers"),
        ({"outer_layers": [2.0]}, "outer_layers"),
        ({"outer_layers": 3}, "outer_layers"),
        ({"inner_layers": BILLION}, "inner_layers"),
        ({"inner_layers": 2, "inner": "lstm"}, "inner"),
        ({"inner": "gru"}, "inner"),
        ({"layout": "diagonal"}, "layout"),
        ({"layout": ["rows"]}, "layout"),
        ({"channel_planes": 1}, "channel_planes"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": -0.1}, "dropout"),
        ({"known_channels": 2}, "known_channels"),
        ({"known_channels": -1}, "known_channels"),
        ({"known_channels": "x" * 100_000}, "known_channels"),
        ({"x" * 100_000: 1}, "unknown"),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else value,
)
def test_an_edited_configuration_is_refused_by_its_field(folder, edit, named):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | edit))
    assert named in refusal(folder).replace(str(folder), "", 1)


def test_a_missing_field_is_named(folder):
    config = json.loads((folder / CONFIG).read_text())
    del config["shape"]
    (folder / CONFIG).write_text(json.dumps(config))
    assert "missing fields ['shape']" in refusal(folder)


def test_a_field_with_a_default_may_be_missing(folder):
    config = json.loads((folder / CONFIG).read_text())
    del config["dropout"]
    (folder / CONFIG).write_text(json.dumps(config))
    assert AxialTransformer.from_pretrained(folder).config.dropout == 0


@pytest.mark.parametrize("name", shipped_names())
def test_a_model_of_the_package_is_read_by_its_name_as_float32(name, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "axial_transformers")
    monkeypatch.chdir(tmp_path)
    model = AxialTransformer.from_pretrained(name)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert caplog.messages == [f"{name}: the model that comes with the package"]


def test_a_folder_comes_before_a_model_of_the_package_of_its_name(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "axial_transformers")
    monkeypatch.chdir(tmp_path)
    small_model((2, 3)).save_pretrained("fashion_mnist")
    assert AxialTransformer.from_pretrained("fashion_mnist").config.shape == (2, 3)
    assert caplog.messages == ["fashion_mnist: the folder here, not the model that comes with the package"]


def test_the_models_of_the_package_take_at_most_eight_megabytes():
    assert {"fashion_mnist", "fashion_mnist_wide", "photos32", "clips32"} <= {*shipped_names()}
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*")) < 8e6


def compile_a_part(model):
    model.inner_decoder = torch.compile(model.inner_decoder, backend="eager")


def tie(model):
    model.outer_decoders[0].blocks[0].feedforward.norm.weight = model.head[0].weight


CHANGES = {
    "compiled": compile_a_part,
    "compiled in place": lambda model: model.inner_decoder.compile(backend="eager"),
    "tied": tie,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_torch_adds_to_a_model_is_left_out_of_its_folder(tmp_path, change):
    model = random_model(small_config((2, 3), 2)).eval()
    CHANGES[change](model)
    model.eval().save_pretrained(tmp_path / "model")
    x = torch.zeros(1, 2, 3, 2, dtype=torch.int64)
    torch.testing.assert_close(AxialTransformer.from_pretrained(tmp_path / "model")(x), model(x))


def half_the_head(model):
    model.head.half()


def spoil(model):
    model.head[0].weight.data[0] = torch.nan


REFUSED = {
    "old weight_norm": (lambda model: torch.nn.utils.weight_norm(model.head[1]), r"head\.1\.weight.*head\.1\.weight_g"),
    "weight_norm": (lambda model: parametrizations.weight_norm(model.head[1]), r"missing head\.1\.weight"),
    "extra": (lambda model: model.add_module("extra", torch.nn.Linear(2, 3)), r"unknown extra\.bias, extra\.weight"),
    "missing": (lambda model: model.head[0].register_parameter("bias", None), r"missing head\.0\.bias"),
    "wider": (lambda model: setattr(model, "head", torch.nn.Linear(2, 3)), r"head\.0\.weight"),
    "mixed": (half_the_head, r"several types \(.*head\.0\.weight is torch\.float16"),
    "not finite": (spoil, r"head\.0\.weight holds NaN"),
}


@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_what_could_not_be_read_is_not_written(tmp_path, change):
    model, (made, says) = random_model(small_config((2, 3), 2)), REFUSED[change]
    made(model)
    with pytest.raises(ValueError, match=rf"^[^\n]*model is not written, [^\n]*{says}[^\n]*$"):
        model.save_pretrained(tmp_path / "model")
    assert not [*tmp_path.iterdir()]
